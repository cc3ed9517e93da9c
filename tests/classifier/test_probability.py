"""How likely a belief is right: tuned, assessed, saved, exported, and on strange data."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from iknow import Ball, EpistemicClassifier
from iknow.errors import InputError

X, y = load_digits(return_X_y=True)
X = X / 16
TRAINING, VALIDATION, TEST = slice(600), slice(600, 1200), slice(1200, None)


@pytest.fixture(scope="module")
def model():
    return LogisticRegression(max_iter=300).fit(X[TRAINING], y[TRAINING])


def make(model, **parameters):
    classifier = EpistemicClassifier(FrozenEstimator(model), progress=False, **parameters)
    return classifier.fit(X[TRAINING], y[TRAINING])


@pytest.fixture(scope="module")
def tuned(model):
    return make(model).tune(X[VALIDATION], y[VALIDATION], coverage=0.8)


def test_it_is_calibrated_on_new_samples(tuned):
    a = tuned.assess(X[TEST])
    right = a.belief == y[TEST]
    low = a.probability < np.median(a.probability)
    for half in (low, ~low):
        spread = 2.5 * np.sqrt(0.25 / half.sum())
        assert abs(a.probability[half].mean() - right[half].mean()) < spread
    assert right[low].mean() < right[~low].mean()


def test_a_sure_model_is_not_believed_about_what_was_never_seen(model, tuned):
    noise = np.random.default_rng(0).random((300, 64)) * 10
    a = tuned.assess(noise)
    never_seen = a.level == 0
    assert never_seen.mean() > 0.9
    assert model.predict_proba(noise).max(axis=1).mean() > 0.85
    bottom = tuned.selection_.calibration.probabilities[0]
    assert (a.probability[never_seen] == bottom).all()
    assert bottom <= tuned.assess(X[TEST]).probability.min()
    assert bottom <= 0.5


def test_where_nothing_taught_it_there_is_none_and_the_error_says_what_to_do(model):
    a = make(model).tune(X[VALIDATION], coverage=0.8).assess(X[TEST])
    with pytest.raises(InputError, match="labels to learn from"):
        a.probability  # noqa: B018
    assert "probability" not in a.to_frame()
    assert "probability" not in a.to_dict()
    paper = EpistemicClassifier.paper(FrozenEstimator(model), progress=False)
    paper.fit(X[TRAINING], y[TRAINING]).tune(X[VALIDATION], y[VALIDATION])
    with pytest.raises(InputError, match="as the default rule has them"):
        paper.assess(X[TEST]).probability  # noqa: B018


def test_other_neighborhoods_and_another_model_take_nothing_over(tuned, model):
    a = tuned.assess(X[TEST])
    for other in (a.under({"input": Ball(1.0)}), a.only(["input"])):
        with pytest.raises(InputError, match="no probabilities"):
            other.probability  # noqa: B018
    given = make(model, rule=tuned.selection_).assess(X[TEST])
    assert given.levels is not None
    assert given.calibration is None  # a promise about another model


def test_samples_without_a_belief_have_none_and_invalid_ones_the_lowest(tuned):
    a = tuned.assess(X[TEST])
    silent = replace(
        a[:3],
        belief_codes=np.array([a.belief_codes[0], -1, a.belief_codes[2]]),
        invalid=np.array([True, True, False]),
    )
    lowest = tuned.selection_.calibration.probabilities[0]
    assert silent.probability[0] == lowest
    assert np.isnan(silent.probability[1])
    record = json.loads(json.dumps(silent.answers.to_dict(), allow_nan=False))
    assert record["probability"] == [lowest, None, a.probability[2]]
    assert silent.to_frame()["probability"].isna().tolist() == [False, True, False]


def test_a_saved_and_an_exported_bundle_say_the_same_to_the_last_bit(tuned, tmp_path):
    expected = tuned.assess(X[TEST]).probability
    assert len(np.unique(expected)) > 20
    tuned.save(tmp_path / "plain.iknow")
    tuned.save(tmp_path / "portable.iknow", onnx=True, samples=X[VALIDATION])
    for loaded in (
        EpistemicClassifier.load(tmp_path / "plain.iknow", tuned.model),
        EpistemicClassifier.load(tmp_path / "portable.iknow"),
    ):
        found = loaded.assess(X[TEST])
        assert found.probability.tobytes() == expected.tobytes()
        assert found.to_dict()["probability"] == expected.tolist()


def test_parts_of_an_assessment_keep_it(tuned):
    a = tuned.assess(X[TEST])
    np.testing.assert_array_equal(a[5:9].probability, a.probability[5:9])
