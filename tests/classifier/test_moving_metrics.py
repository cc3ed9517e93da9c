"""Certificates in layers whose metric is fitted, or bounded for each sample: attacked."""

import math
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

from iknow import EpistemicClassifier, Nearest, RelativeBall
from iknow.metrics import Cosine, Scaled, Whitened

METRICS = [Cosine(), Scaled(), Whitened()]


def some_data(seed, n_features, offset=0.0, n=80):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    x = rng.normal(size=(n, n_features)) * np.geomspace(1, 9, n_features)
    return (x + offset + 6 * labels[:, None]).astype(np.float32), labels


def fitted(model, layers, metric, x, labels, rule):
    classifier = EpistemicClassifier(model, layers, rule=rule, metric=metric, progress=False)
    return classifier.fit(x, labels)


def network_of(x, labels, width):
    network = MLPClassifier((width,), max_iter=150, random_state=0, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return FrozenEstimator(network.fit(x, labels))


def attack(classifier, x, radius, belief, rng, aims):
    """Moved inputs within the radius: at random, toward samples of the other class, and to 0."""
    random = rng.normal(size=(300, x.shape[0]))
    toward = np.vstack([random, aims - x, -x[None], np.eye(len(x)), -np.eye(len(x))])
    toward /= np.maximum(np.linalg.norm(toward, axis=1, keepdims=True), 1e-30)
    sizes = radius * np.array([0.3, 0.9, 1 - 1e-7])
    moved = (x + sizes[:, None, None] * toward).reshape(-1, len(x)).astype(np.float32)
    moved = moved[np.linalg.norm(np.float64(moved) - x, axis=1) < radius]
    after = classifier.assess(moved).justification
    return len(moved), (after[:, 1 - belief] & ~after[:, belief]).any()


@pytest.mark.parametrize("rule", [Nearest(1), RelativeBall(1.0, 1.2)], ids=["nearest", "relative"])
@pytest.mark.parametrize("metric", METRICS, ids=repr)
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_nothing_within_the_radius_is_known_to_be_of_the_other_class(metric, rule, offset):
    x, labels = some_data(0, 3, offset)
    models = {
        "input": FrozenEstimator(DecisionTreeClassifier(random_state=0).fit(x, labels)),
        "hidden1": network_of(x, labels, 6),
    }
    rng = np.random.default_rng(1)
    n_attacked = 0
    for layer, model in models.items():
        classifier = fitted(model, [layer], metric, x, labels, rule)
        assessment = classifier.assess(x)
        radii, beliefs = assessment.robust_radius, assessment.belief_codes
        for at in np.argsort(-radii)[:10]:
            if 0 < radii[at] < math.inf:
                belief = int(beliefs[at])
                aims = np.float64(x[labels != belief])
                tried, broken = attack(classifier, np.float64(x[at]), radii[at], belief, rng, aims)
                n_attacked += tried > 0
                assert not broken
    assert n_attacked >= (5 if offset == 0 else 1)


def test_a_radius_by_cosine_is_within_a_factor_of_two_of_the_true_one():
    """In the plane the angle between classes is known: 90° apart, turned by up to 45°."""
    x = np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    model = FrozenEstimator(DecisionTreeClassifier(random_state=0).fit(x, [0, 1]))
    classifier = fitted(model, ["input"], Cosine(), x, [0, 1], Nearest(1))
    for length in (1e-3, 1.0, 1e3):
        (radius,) = classifier.assess(np.array([[length, 0.0]], dtype=np.float32)).robust_radius
        true = length * math.sin(math.pi / 4)
        assert true / 2 <= radius * (1 + 1e-5) < true


def test_what_has_no_direction_is_not_certified_and_does_not_spoil_the_rest():
    x, labels = some_data(2, 3)
    model = FrozenEstimator(DecisionTreeClassifier(random_state=0).fit(x, labels))
    classifier = fitted(model, ["input"], Cosine(), x, labels, Nearest(1))
    queries = np.vstack([np.zeros((1, 3)), np.full((1, 3), np.nan), x[:20]]).astype(np.float32)
    assessment = classifier.assess(queries)
    radii = assessment.robust_radius
    assert radii[:2].tolist() == [0, 0]
    np.testing.assert_array_equal(radii[2:], classifier.assess(x[:20]).robust_radius)
    assert (radii[2:] > 0).any()
    movement = assessment.movements["input"]
    assert np.isinf(movement.rounding[0])
    np.testing.assert_array_equal(movement[3:7].stretch, movement.stretch[3:7])


def test_a_subclass_does_not_inherit_a_bound_of_another_transform():
    class Signed(Cosine):
        def transform(self, activations):
            return 100 * super().transform(activations)

        def expansion(self, n_features):
            return math.inf

        def rounding(self, n_features):
            return 1e-3

    x, labels = some_data(3, 3)
    model = FrozenEstimator(DecisionTreeClassifier(random_state=0).fit(x, labels))
    classifier = fitted(model, ["input"], Signed(), x, labels, Nearest(1))
    assert not classifier.assess(x).robust_radius.any()
