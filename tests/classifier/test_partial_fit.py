"""Evidence that arrives in parts is the evidence of the whole."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from iknow import Ball, EpistemicClassifier
from iknow.errors import InputError
from iknow.testing import assert_same_evidence

X, Y = load_iris(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(X))
X, Y = X[ORDER], Y[ORDER]
MODEL = FrozenEstimator(LogisticRegression(max_iter=500).fit(X[:90], Y[:90]))
PARTS = [slice(0, 40), slice(40, 41), slice(41, 90)]


def fitted(**parameters):
    return EpistemicClassifier(MODEL, progress=False, **parameters).fit(X[:90], Y[:90])


@pytest.mark.parametrize("parameters", [{}, {"rule": Ball}, {"metric": "euclidean"}])
def test_parts_give_the_evidence_of_the_whole(parameters):
    whole = fitted(**parameters)
    classifier = EpistemicClassifier(MODEL, progress=False, **parameters)
    for part in PARTS:
        classifier.partial_fit(X[part], Y[part])
    for layer, index in whole.indexes_.items():
        found = classifier.indexes_[layer]
        np.testing.assert_array_equal(np.sort(found.rows), np.sort(index.rows))
        if found.metric == index.metric:  # one that is fitted to the data saw the first part
            queries = X[90:] if layer == "input" else MODEL.decision_function(X[90:])
            assert_same_evidence(
                found.gather(queries, 3, per_class=2), index.gather(queries, 3, per_class=2)
            )
    assert classifier.tune(X[90:], Y[90:]).assess(X[:9]).belief.shape == (9,)


def test_parts_may_be_sorted_by_class():
    order = np.argsort(Y[:90], kind="stable")
    classifier = EpistemicClassifier(MODEL, metric="euclidean", progress=False)
    for part in np.split(order, [10, 30, 60]):
        classifier.partial_fit(X[part], Y[part], rows=part)
    expected = fitted(metric="euclidean").indexes_["input"].gather(X[90:])
    assert_same_evidence(classifier.indexes_["input"].gather(X[90:]), expected)


def test_what_was_promised_of_less_evidence_is_gone():
    classifier = fitted().tune(X[90:], Y[90:])
    classifier.partial_fit(X[:5] + 0.01, Y[:5])
    assert not hasattr(classifier, "selection_")
    with pytest.raises(NotFittedError, match="no neighborhoods yet: call tune"):
        classifier.assess(X[90:])
    given = fitted(rule=Ball(0.5)).partial_fit(X[:5] + 0.01, Y[:5])
    assert given.assess(X[90:]).belief.shape == (60,)


def test_rows_count_on_or_are_given():
    classifier = fitted().partial_fit(X[90:95], Y[90:95])
    assert np.sort(classifier.indexes_["input"].rows)[-5:].tolist() == [90, 91, 92, 93, 94]
    classifier.partial_fit(X[95:97], Y[95:97], rows=[1000, 500])
    assert np.sort(classifier.indexes_["input"].rows)[-2:].tolist() == [500, 1000]
    before = vars(classifier).copy()
    with pytest.raises(InputError, match="the rows of new ones must differ"):
        classifier.partial_fit(X[97:99], Y[97:99], rows=[3, 4])
    with pytest.raises(InputError, match="labels the classifier does not know"):
        classifier.partial_fit(X[97:99], [0, 7])
    with pytest.raises(InputError, match="training data must be finite"):
        classifier.partial_fit(np.full((2, 4), np.nan), [0, 1])
    assert vars(classifier) == before


def test_a_loader_may_bring_a_part():
    classifier = fitted().partial_fit((X[r], Y[r]) for r in (slice(90, 100), slice(100, 103)))
    assert classifier.indexes_["input"].n_rows == 103
    with pytest.raises(InputError, match=r"3 features, but .* is expecting 4"):
        classifier.partial_fit(X[:3, :3], Y[:3])
    classifier = EpistemicClassifier(MODEL, progress=False)
    classifier.partial_fit((X[r], Y[r]) for r in (slice(0, 10), slice(10, 30)))
    with pytest.raises(InputError, match=r"3 features, but .* is expecting 4"):
        classifier.partial_fit(X[:3, :3], Y[:3])


def test_parts_cannot_train_a_model():
    assert hasattr(EpistemicClassifier(MODEL), "partial_fit")
    assert hasattr(EpistemicClassifier(MODEL.estimator), "partial_fit")
    assert not hasattr(EpistemicClassifier(LogisticRegression()), "partial_fit")
