"""How the layers of a wrapped model can move: what is known of each of them, and what is not."""

import dataclasses
import math
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    QuantileTransformer,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from iknow import Ball, EpistemicClassifier, Nearest
from iknow.core.robustness import Movement, Sensitivity
from iknow.errors import LayerError
from iknow.metrics import Minkowski, Weighted
from iknow.models import PrecomputedModel, SklearnModel, TorchModel
from tests.metrics.bounding import mlp_lipschitz

X, Y = load_iris(return_X_y=True)


def assess(model, layers, metric=None):
    classifier = EpistemicClassifier(
        model, layers, rule=Ball(1.0), metric=metric, progress=False, classes=[0, 1, 2]
    )
    return classifier.fit(X.astype(np.float32), Y).assess(X[:20].astype(np.float32))


@pytest.fixture(scope="module")
def network():
    model = make_pipeline(StandardScaler(), MLPClassifier((8,), max_iter=250, random_state=0))
    with pytest.warns(UserWarning, match="Maximum iterations"):
        return model.fit(X, Y)


@pytest.fixture(scope="module")
def tree():
    return FrozenEstimator(DecisionTreeClassifier(random_state=0).fit(X, Y))


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def constants_of(assessment):
    return {layer: movement.lipschitz for layer, movement in assessment.movements.items()}


def test_a_network_of_scikit_learn_is_bounded_as_its_metrics_say(network):
    layers = ["input", "standardscaler", "hidden1", "logits"]
    constants = constants_of(assess(FrozenEstimator(network), layers))
    # Rounding grows with the input, so a little is added to what real arithmetic would have.
    assert constants == {
        layer: pytest.approx(exact, rel=1e-5)
        for layer, exact in mlp_lipschitz(network, layers).items()
    }
    assert constants["input"] > 1.0


def test_a_torch_module_is_bounded_as_far_as_it_is_a_chain(module):
    norm = np.linalg.norm(module[0].weight.detach().double().numpy(), 2)
    constants = constants_of(assess(module, ["input", "1"]))
    assert constants == {
        layer: pytest.approx(exact, rel=1e-4) for layer, exact in (("input", 1.0), ("1", norm))
    }


@pytest.mark.parametrize(
    ("metric", "factor"),
    [(Minkowski(1), 2.0), (Minkowski(math.inf), 1.0), (Weighted(np.diag([1, 3, 2, 1])), 3.0)],
    ids=repr,
)
def test_the_metric_of_a_layer_is_part_of_its_constant_and_its_rounding(tree, metric, factor):
    movement = assess(tree, ["input"], metric).movements["input"]
    assert movement.lipschitz == pytest.approx(factor, rel=1e-5)
    sizes = np.linalg.norm(np.float64(X[:20].astype(np.float32)), axis=1)
    # The activation is off by 2^-24 of its size, before and after; so is a weighted one once more.
    expected = 2 * 2.0**-24 * sizes * factor
    if isinstance(metric, Weighted):
        expected = expected + 2 * 2.0**-24 * sizes * np.linalg.norm(metric.map)
    assert (movement.rounding >= expected).all()
    assert (movement.rounding <= 2 * expected).all()


def test_a_metric_must_speak_for_its_own_transform(module):
    class Stretched(Minkowski):
        def transform(self, activations):
            return 100 * np.asarray(activations)

    class Said(Stretched):
        def expansion(self, n_features):
            return 100.0

        def rounding(self, n_features):
            return 100 * 2.0**-23

    assessment = assess(module, ["input"], Stretched(2.0))
    with pytest.warns(UserWarning, match="Stretched changes transform but not expansion"):
        assert not assessment.robust_radius.any()
    said = constants_of(assess(module, ["input"], Said(2.0)))
    assert said["input"] == pytest.approx(100, rel=1e-4)


def test_a_metric_that_changes_the_width_is_asked_about_the_activations(tree):
    """It was asked about its own points, one feature wide: radii were twice too large."""

    class Total(Minkowski):
        def transform(self, activations):
            return np.asarray(activations, dtype=np.float64).sum(axis=1, keepdims=True)

        def expansion(self, n_features):
            return math.sqrt(n_features)

        def rounding(self, n_features):
            return n_features * 2.0**-24

    movement = assess(tree, ["input"], Total(2)).movements["input"]
    assert movement.lipschitz == pytest.approx(2.0, rel=1e-5)
    assert movement.lipschitz >= 2.0


def test_of_any_classifier_the_input_layer_is_known(tree):
    assessment = assess(tree, ["input", "output"])
    assert constants_of(assessment) == {"input": pytest.approx(1.0), "output": math.inf}
    assert (assessment.robust_radius > 0).any()


class Squares(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 3)
        nn.init.zeros_(self.last.weight)  # it always says the same

    def forward(self, x):
        return self.last(x * x)


@pytest.mark.parametrize("kind", ["squares", "quantiles", "precomputed"])
def test_where_nothing_is_known_nothing_is_certified_and_a_warning_says_why(kind):
    if kind == "squares":
        assessment, reason = assess(Squares(), ["last"]), "layer 'last'"
    elif kind == "quantiles":
        steps = QuantileTransformer(n_quantiles=20), MLPClassifier((4,), max_iter=5, random_state=0)
        with pytest.warns(UserWarning, match="Maximum iterations"):
            model = make_pipeline(*steps).fit(X, Y)
        reason = "layer 'logits'.*QuantileTransformer"
        assessment = assess(FrozenEstimator(model), ["logits"])
    else:
        outputs = np.eye(3)[Y], {"input": X}
        classifier = EpistemicClassifier(PrecomputedModel(), rule=Ball(1), progress=False)
        assessment = classifier.fit(outputs, Y).assess(outputs)
        reason = "layer 'input': nothing is known about the inside of PrecomputedModel"
    with pytest.warns(UserWarning, match=f"no layer has a known Lipschitz constant.*{reason}"):
        assert not assessment.robust_radius.any()


class Doubling(PrecomputedModel):
    """A model of one's own, of inputs that are half of its activations."""

    def sensitivity(self, layer, inputs):
        return 2.0


class Careful(Doubling):
    def sensitivity(self, layer, inputs):
        return Sensitivity(2.0, rounding=0.25)


class Squaring(Doubling):
    def observe(self, batch, layers):
        seen = super().observe(batch, layers)
        squares = {layer: values**2 for layer, values in seen.activations.items()}
        return dataclasses.replace(seen, activations=squares)


def assess_doubled(model, values):
    outputs = np.eye(3)[Y], {"twice": values}
    classifier = EpistemicClassifier(model, rule=Ball(1), progress=False)
    return classifier.fit(outputs, Y).assess(outputs)


def test_a_model_of_ones_own_may_know_its_constants_and_its_rounding():
    assessment = assess_doubled(Doubling(), 2 * X)
    movement, size = assessment.movements["twice"], np.linalg.norm(2 * X, axis=1)
    assert movement.lipschitz == pytest.approx(2.0)
    # It promised 2 for what it returned; that this is stored in float32 it did not know.
    np.testing.assert_allclose(movement.rounding, 2 * 2.0**-24 * size, rtol=1e-5)
    careful = assess_doubled(Careful(), 2 * X).movements["twice"]
    np.testing.assert_allclose(careful.rounding, 0.5)
    lone = Doubling()
    lone.sensitivity = lambda layer, inputs: Sensitivity(3.0)
    assert constants_of(assess_doubled(lone, X))["twice"] == pytest.approx(3.0)


def test_a_promise_about_another_model_is_not_believed(network):
    with pytest.warns(UserWarning, match="Squaring changes observe but not sensitivity"):
        assert not assess_doubled(Squaring(), X).robust_radius.any()

    class Scaled(SklearnModel):
        def observe(self, batch, layers):
            seen = super().observe(batch, layers)
            larger = {layer: 100 * values for layer, values in seen.activations.items()}
            return dataclasses.replace(seen, activations=larger)

    class Doubled(SklearnModel):  # observe is the adapter's, and what it calls is not
        def _activations(self, batch, layers):
            found = super()._activations(batch, layers)
            return {layer: 2 * values for layer, values in found.items()}

    class Stranger(PrecomputedModel):  # has what an adapter has, and does something else with it
        def __init__(self, estimator):
            self.estimator = estimator

    replaced = SklearnModel(network)
    replaced.observe = lambda batch, layers: SklearnModel(network).observe(10 * batch, layers)
    promising = Doubling()
    promising.observe = Squaring().observe
    for model, reason in (
        (Scaled(network), "Scaled changes observe but not sensitivity"),
        (Doubled(network), "nothing is known about the inside of Doubled"),
        (replaced, "nothing is known about the inside of a SklearnModel with its own 'observe'"),
    ):
        with pytest.warns(UserWarning, match=reason):
            assert not assess(model, ["input"]).robust_radius.any()
    with pytest.warns(UserWarning, match="inside of a Doubling with its own 'observe'"):
        assert not assess_doubled(promising, X).robust_radius.any()
    with pytest.warns(UserWarning, match="nothing is known about the inside of Stranger"):
        assert not assess_doubled(Stranger(network), X).robust_radius.any()


@pytest.mark.parametrize(
    "value",
    [
        -1.0,
        math.nan,
        Sensitivity(1.0, rounding=math.nan),
        Sensitivity(1.0, relative_rounding=1.0),
        Sensitivity(1.0, relative_rounding=-0.5),
    ],
)
def test_what_is_no_bound_certifies_nothing(value):
    class Odd(PrecomputedModel):
        def sensitivity(self, layer, inputs):
            return value

    with pytest.warns(UserWarning, match="must be >= 0"):
        assert not assess_doubled(Odd(), X).robust_radius.any()


def test_frames_of_numbers_are_certified_and_frames_of_text_are_refused(tree):
    frame = pd.DataFrame(X.astype(np.float32))
    classifier = EpistemicClassifier(tree, ["input"], rule=Ball(1.0), progress=False)
    expected = assess(tree, ["input"]).robust_radius
    radii = classifier.fit(frame, Y).assess(frame[:20]).robust_radius
    np.testing.assert_array_equal(radii, expected)
    with pytest.raises(LayerError, match="not all numbers"):
        classifier.assess(frame[:20].astype(str))


@pytest.mark.filterwarnings("ignore:feature 0 of layer 'input' has values near")
def test_timestamps_that_float32_cannot_tell_apart_are_not_told_apart():
    """At 1.7e9 float32 goes in steps of 128: the one before was certified, and then flipped."""
    start = 1.7e9 // 128 * 128
    labels = np.array([0, 1])

    def known(model, at):
        return model.assess(at[:, None]).justification.tolist()

    rows = start + np.array([[0.0], [384.0]])
    model = FrozenEstimator(DecisionTreeClassifier().fit(rows, labels))
    near = EpistemicClassifier(model, ["input"], rule=Nearest(1), progress=False)
    near.fit(rows, labels)
    at = start + np.array([191.9, 192.1])
    assert known(near, at) == [[True, False], [False, True]]
    assert near.assess(at[:, None]).robust_radius.tolist() == [0, 0]

    rows = start + np.array([[0.0], [3840.0]])
    far = EpistemicClassifier(model, ["input"], rule=Nearest(1), progress=False)
    far.fit(rows, labels)
    (radius,) = far.assess(np.array([[start]])).robust_radius
    assert 1700 < radius < 1920
    inside = start + np.linspace(-radius, radius, 4001)[1:-1]
    assert [False, True] not in known(far, inside)


@pytest.mark.parametrize("evidence", [False, True])
def test_bisectors_are_crossed_where_the_metric_is_euclidean(tree, evidence):
    def radii(metric):
        classifier = EpistemicClassifier(
            tree, ["input"], rule=Nearest(1), metric=metric,
            progress=False,
        ).fit(X, Y)  # fmt: skip
        assessment = classifier.assess(X, evidence=evidence)
        plain = {"input": Movement(1.0)}
        return assessment.robust_radius, replace(assessment, movements=plain).robust_radius

    found, by_distance = radii(None)
    ahead = by_distance > 1e-3
    assert ahead.sum() > 100
    assert (found[ahead] >= by_distance[ahead] * (1 - 1e-4)).all()
    assert np.median(found[ahead] / by_distance[ahead]) > 1.05
    found, by_distance = radii(Minkowski(math.inf))
    assert (found[ahead] <= by_distance[ahead]).all()
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    np.testing.assert_allclose(radii(Weighted(turned))[0], radii(None)[0], atol=1e-5)


def test_without_activations_there_are_no_bisectors_and_still_certificates(tree, monkeypatch):
    kept = assess(tree, ["input"])
    monkeypatch.setattr("iknow.classifier.observe.BYTES_OF_ACTIVATIONS_KEPT", 0)
    dropped = assess(tree, ["input"])
    assert np.isneginf(dropped.movements["input"].crossing)
    assert (dropped.robust_radius > 0).any()
    assert (dropped.robust_radius <= kept.robust_radius).all()
    weighted = assess(tree, ["input"], Weighted(np.eye(4)))
    with pytest.warns(UserWarning, match="too large to keep: assess fewer samples at once"):
        assert not weighted.robust_radius.any()


def test_an_array_that_is_used_again_does_not_change_a_certificate(tree):
    classifier = EpistemicClassifier(tree, ["input"], rule=Ball(1.0), progress=False)
    classifier.fit(X, Y)
    buffer = X[:20].copy()
    first = classifier.assess(buffer)
    buffer *= 1e-6
    expected = classifier.assess(X[:20])
    np.testing.assert_array_equal(first.robust_radius, expected.robust_radius)


def test_inputs_beyond_what_arithmetic_was_looked_at_for_are_not_certified(tree):
    classifier = EpistemicClassifier(tree, ["input"], rule=Nearest(1), progress=False)
    far = np.array([[0.0] * 4, [1e14] * 4, [-1e15] * 4])
    classifier.fit(far, [0, 1, 2])
    radii = classifier.assess(far).robust_radius
    assert radii[2] == 0 < radii[0] <= 1e14


def test_a_model_that_has_changed_since_certifies_nothing():
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    assessment = assess(module, ["1"])
    with torch.no_grad():
        module[0].weight.mul_(0.5)  # with constants of half the size: radii of twice the length
    with pytest.warns(
        UserWarning,
        match="no longer answers some inputs as it did in the assessment: it has changed",
    ):
        assert not assessment.robust_radius.any()


def test_a_bound_that_real_inputs_break_certifies_nothing():
    class Hasty(SklearnModel):
        def sensitivity(self, layer, inputs):
            return 0.1

    model = Hasty(DecisionTreeClassifier(random_state=0).fit(X, Y))
    with pytest.warns(UserWarning, match="further apart than the bound of 0.1 allows"):
        assert not assess(model, ["input"]).robust_radius.any()


def test_bounds_are_found_once_and_only_on_request(module, monkeypatch):
    calls = []
    from iknow.metrics import lipschitz_torch as metrics

    real = metrics.sensitivities
    monkeypatch.setattr(metrics, "sensitivities", lambda *args: calls.append(args) or real(*args))
    assessment = assess(module, ["1"])
    assert (assessment.margin < np.inf).all()
    assessment.explain(0)
    assert not calls
    some = assessment[3:9].robust_radius
    first = assessment.robust_radius
    np.testing.assert_array_equal(some, first[3:9])
    np.testing.assert_array_equal(assessment.under({"1": Ball(1.0)}).robust_radius, first)
    np.testing.assert_array_equal(assessment[:5].robust_radius, first[:5])
    np.testing.assert_array_equal(assessment[2:9][1:3].robust_radius, first[3:5])
    assert len(calls) == 1
    (_, shape, layers, probe, adapter) = calls[0]
    assert (shape, layers) == ((4,), ["1"])
    assert isinstance(adapter(module), TorchModel)
    np.testing.assert_array_equal(probe, X[:8].astype(np.float32))


def test_an_assessment_takes_its_movements_along_when_it_is_pickled(module):
    assessment = assess(module, ["1"])
    part = assessment[4:]
    copies = [pickle.loads(pickle.dumps(each)) for each in (assessment, part)]
    assert all(type(copy.movements) is dict for copy in copies)
    np.testing.assert_array_equal(copies[0].robust_radius, assessment.robust_radius)
    np.testing.assert_array_equal(copies[1].robust_radius, assessment.robust_radius[4:])


PIPELINES = {
    "clipping": [StandardScaler(), PCA(), MaxAbsScaler(clip=True)],
    "whitening": [PCA(whiten=True), MinMaxScaler()],
    "nothing": [],
}


@pytest.mark.parametrize("offset", [0.0, 1e5])
@pytest.mark.parametrize("name", PIPELINES)
def test_no_point_of_the_plane_within_the_radius_is_known_to_be_another_class(name, offset):
    """The whole disc is searched, about inputs that float32 and the scalers have trouble with."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, 80)
    x = rng.normal(size=(80, 2)) @ np.array([[1.0, 9.0], [0.0, 5.0]]) + 12 * labels[:, None]
    x = (x + offset).astype(np.float32)
    steps = PIPELINES[name]
    network = MLPClassifier((6,), max_iter=200, random_state=0, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = FrozenEstimator(make_pipeline(*steps, network).fit(x, labels))
    layers = ["input", "hidden1"]
    angles = np.linspace(0, 2 * np.pi, 60)
    disc = (
        np.array([np.cos(angles), np.sin(angles)]).T[None] * np.linspace(0.02, 1, 20)[:, None, None]
    )
    n_certified = 0
    for chosen in (layers, layers[1:]):
        classifier = EpistemicClassifier(model, chosen, rule=Nearest(1), progress=False)
        classifier.fit(x, labels)
        assessment = classifier.assess(x)
        for at in np.flatnonzero(assessment.robust_radius > 0)[:12]:
            reach = assessment.robust_radius[at] * (1 - 1e-9)
            moved = (x[at].astype(np.float64) + reach * disc.reshape(-1, 2)).astype(np.float32)
            moved = moved[np.linalg.norm(moved - np.float64(x[at]), axis=1) < reach]
            if len(moved):
                n_certified += 1
                after = classifier.assess(moved).justification
                other = 1 - assessment.belief_codes[at]
                assert not (after[:, other] & ~after[:, 1 - other]).any()
    assert n_certified > 10
