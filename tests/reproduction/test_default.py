"""iknow's default in the tables against a classifier that is tuned for each of them by itself."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from iknow import Assertion, EpistemicClassifier
from reproduction.default import tune_default
from reproduction.setups import Architecture, Training
from reproduction.torch import one_thread, train_network

COVERAGES = {"two": 0.62, "logit": 0.85}


@pytest.fixture(scope="module")
def digits():
    """A trained network, and the parts of the digits: for training, validation and testing."""
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(y))
    parts = [(X[rows], y[rows]) for rows in np.split(order, [900, 1300])]
    with one_thread():
        training = Training(batch=32, epochs=20, least=0.8)
        network, _ = train_network(Architecture(hidden=(32, 16)), training, *parts[:2], 10, seed=0)
    return network, *parts


def wrap(network, train):
    return EpistemicClassifier(network, classes=np.arange(10), progress=False).fit(*train)


def test_one_search_gives_what_each_tuned_classifier_asserts(digits):
    network, train, (X_val, _), (X_test, _) = digits
    default = tune_default(wrap(network, train), X_val, COVERAGES)
    assert list(default.levels) == list(COVERAGES)
    noise = np.random.default_rng(1).normal(0, 0.2, X_test.shape).astype(np.float32)
    for X in (X_test, X_test + noise):
        found = default.find_known(X)
        for layers, coverage in COVERAGES.items():
            alone = wrap(network, train).tune(X_val, coverage=coverage)
            known = alone.assess(X).assertion == Assertion.IK
            np.testing.assert_array_equal(found[layers], known)
        # The levels are nested: more coverage keeps all that was known.
        assert (found["two"] <= found["logit"]).all()
        assert (found["two"] != found["logit"]).any()


def test_the_coverage_on_validation_data_is_matched(digits):
    network, train, (X_val, _), _ = digits
    default = tune_default(wrap(network, train), X_val, COVERAGES)
    for layers, known in default.find_known(X_val).items():
        assert known.mean() == pytest.approx(COVERAGES[layers], abs=0.01)


def test_the_classifier_is_left_as_it_comes(digits):
    network, train, (X_val, _), _ = digits
    classifier = tune_default(wrap(network, train), X_val, COVERAGES).classifier
    assert classifier.layers_ == ("input", "relu2")
    assert classifier.selection_.levels.quorum == (1, 3)
