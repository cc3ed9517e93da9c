"""Where scores are in all that a network returns, and what a single number means."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, softmax

from iknow.errors import InputError
from iknow.models.network import as_columns, check_scores, find_output

SCORES, STATE, LOSS = np.ones((4, 3)), np.zeros((4, 8)), np.float64(0.5)


@dataclass
class Output:
    loss: Any
    logits: Any
    states: Any = None


Pair = namedtuple("Pair", ["classes", "box"])


@pytest.mark.parametrize(
    ("returned", "option"),
    [
        (SCORES, None),
        (SCORES, 0),
        (SCORES, "logit"),
        (SCORES, lambda returned: returned),
        ((LOSS, SCORES), None),
        ([SCORES], None),
        ((SCORES, STATE), 0),
        ((STATE, SCORES), -1),
        ({"logits": SCORES, "state": STATE}, None),
        ({"classes": SCORES, "state": STATE}, "classes"),
        ({"classes": SCORES, "state": STATE}, 0),
        ({"classes": SCORES, "loss": LOSS}, None),
        ({"probability": SCORES, "state": STATE}, "probability"),
        ({"risk": SCORES, "state": STATE}, ("risk", "logit")),
        (OrderedDict(loss=LOSS, logits=SCORES), None),
        (Output(LOSS, SCORES), None),
        (Output(LOSS, SCORES, STATE), 1),
        (Output(None, STATE, SCORES), "states"),
        (Pair(SCORES, STATE), "classes"),
        (Pair(STATE, SCORES), 1),
        (((STATE,), SCORES), None),
        ({"heads": (STATE, SCORES)}, lambda returned: returned["heads"][1]),
    ],
)
def test_the_scores_are_found(returned, option):
    check_scores(option)
    assert find_output(returned, option, 4, "Net") is SCORES


@pytest.mark.parametrize(
    ("returned", "option", "words"),
    [
        ((SCORES, STATE), None, r"0 of shape \(4, 3\), 1 of shape \(4, 8\): say which by scores="),
        ({"a": SCORES, "b": STATE}, "c", r"no output 'c': it returns 'a' of shape \(4, 3\), 'b'"),
        ({"a": SCORES}, 1, "no output 1"),
        (SCORES, "classes", "returns one array, so scores='classes' names nothing"),
        ((LOSS, (SCORES, STATE)), None, r"1 \(tuple\)"),
        ("text", None, "must return an array of scores, or several arrays; got str"),
        ({}, None, "must return an array of scores, or several arrays; got dict"),
    ],
)
def test_what_cannot_be_found_is_refused_with_what_came(returned, option, words):
    with pytest.raises(InputError, match=words):
        find_output(returned, option, 4, "Net")


@pytest.mark.parametrize("option", [True, 1.5, ("a", "odds"), ("a", "b", "c"), [], {"a": 1}])
def test_an_option_without_meaning_is_refused(option):
    with pytest.raises(InputError, match="scores must be the name or the position of an output"):
        check_scores(option)


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_a_logit_keeps_its_probability_and_a_probability_its_value(shape):
    logits = np.array([-3.0, -0.1, 0.0, 0.4, 30.0]).reshape(shape)
    columns = as_columns(logits, "logit", "Net")
    np.testing.assert_allclose(softmax(columns, axis=1)[:, 1], expit(logits.ravel()))
    shares = as_columns(expit(logits), ("risk", "probability"), "Net")
    np.testing.assert_array_equal(shares[:, 1], expit(logits.ravel()))
    assert columns.argmax(axis=1).tolist() == shares.argmax(axis=1).tolist() == [0, 0, 0, 1, 1]


def test_a_single_number_is_never_guessed():
    with pytest.raises(InputError, match=r"got \(4,\) from Net.*scores='logit'.*'probability'"):
        as_columns(np.ones(4), None, "Net")
    with pytest.raises(InputError, match=r"from 0 to 1; Net returned 1\.5: say scores='logit'"):
        as_columns(np.array([0.5, np.nan, 1.5]), "probability", "Net")


def test_a_number_that_is_none_stays_none():
    for option in ("logit", "probability"):
        assert np.isnan(as_columns(np.array([np.nan]), option, "Net")).all()
