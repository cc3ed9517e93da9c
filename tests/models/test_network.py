"""Networks: where scores are in all that one returns, and pooling against loops over tokens."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, softmax

from iknow.errors import InputError, LayerError
from iknow.models.network import Pooling, as_columns, check_scores, find_output

SCORES, STATE, LOSS = np.ones((4, 3)), np.zeros((4, 8)), np.float64(0.5)
ROWS = np.random.default_rng(0).normal(size=(5, 7, 3)).astype(np.float32)


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


# Pooling


@given(st.lists(st.integers(1, 7), min_size=5, max_size=5), st.booleans(), st.integers(0, 4))
def test_padding_on_either_side_and_of_any_length_changes_nothing(lengths, on_the_left, more):
    real = [ROWS[i, :length] for i, length in enumerate(lengths)]
    width = max(lengths) + more
    values = np.full((5, width, 3), np.nan, dtype=np.float32)  # nobody may look at padding
    mask = np.zeros((5, width), dtype=np.int64)
    for i, row in enumerate(real):
        place = slice(width - len(row), width) if on_the_left else slice(0, len(row))
        values[i, place], mask[i, place] = row, 1
    expected = {
        "mean": [sum(row) / len(row) for row in real],
        "cls": [row[0] for row in real],
        "last": [row[-1] for row in real],
    }
    for way, rows in expected.items():
        np.testing.assert_allclose(Pooling(way)("h", values, mask=mask), rows, rtol=1e-5, atol=1e-6)


def test_the_pooled_vector_of_a_sample_is_the_same_to_the_bit_however_far_it_is_padded():
    mask = np.ones((5, 7), dtype=bool)
    padded = np.concatenate([ROWS, np.full((5, 4, 3), 9, dtype=np.float32)], axis=1)
    wider = np.concatenate([mask, np.zeros((5, 4), dtype=bool)], axis=1)
    for way in ("mean", "cls", "last"):
        np.testing.assert_array_equal(
            Pooling(way)("h", padded, mask=wider), Pooling(way)("h", ROWS, mask=mask)
        )


def test_convolutions_are_averaged_over_space():
    images = np.random.default_rng(1).normal(size=(2, 3, 4, 5))
    pooled = Pooling("mean")("conv", images, features_last=False)
    expected = [[np.mean(channel) for channel in image] for image in images]
    np.testing.assert_allclose(pooled, expected)
    last = Pooling("mean")("conv", np.moveaxis(images, 1, -1))
    np.testing.assert_allclose(last, expected)


def test_a_sample_without_any_token_has_no_vector():
    mask = np.array([[1, 1], [0, 0]])
    for way in ("mean", "cls", "last"):
        pooled = Pooling(way)("h", np.ones((2, 2, 3)), mask=mask)
        assert np.isnan(pooled).all(axis=1).tolist() == [False, True]


def test_vectors_and_the_input_stay_as_they_are_and_a_mapping_names_its_layers():
    vectors = np.ones((4, 6))
    assert Pooling("mean")("h", vectors) is vectors
    assert Pooling(lambda values: values.max(axis=1))("h", vectors) is vectors
    assert Pooling("mean")("input", ROWS).shape == ROWS.shape
    by_layer = Pooling({"input": "mean", "h": lambda values: values.max(axis=1)})
    assert by_layer("input", ROWS).shape == (5, 3)
    np.testing.assert_array_equal(by_layer("h", ROWS), ROWS.max(axis=1))
    assert by_layer("other", ROWS) is ROWS
    by_layer.check_names(["input", "h"], "Net")
    with pytest.raises(
        LayerError, match="pool= names layers, and Net has no layer 'h': it has 'input'"
    ):
        by_layer.check_names(["input"], "Net")


@pytest.mark.parametrize("pool", ["max", 3, {"h": "max"}, {"h": 1}, np.ones(2)])
def test_an_unknown_way_is_refused(pool):
    with pytest.raises(InputError, match="pool must be 'mean', 'cls', 'last', a function"):
        Pooling(pool)


def test_what_makes_no_sense_is_refused_with_what_does():
    mask = np.array([[1] * 6 + [0]] * 5)
    with pytest.raises(LayerError, match="padding would count as text: say pool='mean'"):
        Pooling()("h", ROWS, mask=mask)
    with pytest.raises(LayerError, match="does not hold the 7 tokens"):
        Pooling("mean")("h", ROWS[:, :4], mask=mask)
    with pytest.raises(LayerError, match="has channels and no tokens"):
        Pooling("cls")("h", ROWS, features_last=False)
    with pytest.raises(LayerError, match=r"must have shape \(n, tokens, features\)"):
        Pooling("last")("h", ROWS[:, :, None])
    with pytest.raises(LayerError, match=r"one vector per sample, 5 rows.*got shape \(3,\)"):
        Pooling(lambda values: values[0, 0])("h", ROWS)
