"""Lipschitz constants of a wrapped model: what is known of each layer, and what is not."""

import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from iknow import Ball, EpistemicClassifier
from iknow.geometry import Minkowski, Weighted
from iknow.geometry.sklearn import mlp_lipschitz
from iknow.models.arrays import PrecomputedModel

X, Y = load_iris(return_X_y=True)


def assess(model, layers, metric=None):
    classifier = EpistemicClassifier(
        model, layers, neighborhoods=Ball(1.0), metric=metric, progress=False, classes=[0, 1, 2]
    )
    return classifier.fit(X.astype(np.float32), Y).assess(X[:20].astype(np.float32))


@pytest.fixture(scope="module")
def network():
    model = make_pipeline(StandardScaler(), MLPClassifier((8,), max_iter=50, random_state=0))
    with pytest.warns(UserWarning, match="Maximum iterations"):
        return model.fit(X, Y)


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def test_a_network_of_scikit_learn_is_bounded_as_its_geometry_says(network):
    layers = ["input", "standardscaler", "hidden1", "logits"]
    constants = assess(FrozenEstimator(network), layers).lipschitz
    assert dict(constants) == mlp_lipschitz(network, layers)
    assert constants["input"] == 1.0


def test_a_torch_module_is_bounded_as_far_as_it_is_a_chain(module):
    norm = np.linalg.norm(module[0].weight.detach().double().numpy(), 2)
    constants = dict(assess(module, ["input", "1"]).lipschitz)
    assert constants == {"input": 1.0, "1": pytest.approx(norm)}


@pytest.mark.parametrize(
    ("metric", "factor"),
    [(Minkowski(1), 2.0), (Minkowski(math.inf), 1.0), (Weighted(np.diag([1, 3, 2, 1])), 3.0)],
    ids=repr,
)
def test_the_metric_of_a_layer_is_part_of_its_constant(module, metric, factor):
    constants = assess(module, ["input"], metric).lipschitz
    assert constants["input"] == pytest.approx(factor)


def test_of_any_classifier_the_input_layer_is_known():
    tree = FrozenEstimator(DecisionTreeClassifier(random_state=0).fit(X, Y))
    assessment = assess(tree, ["input", "output"])
    assert dict(assessment.lipschitz) == {"input": 1.0, "output": math.inf}
    assert (assessment.certified_radius > 0).any()


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        return self.last(x + self.inner(x))


@pytest.mark.parametrize("kind", ["residual", "quantiles", "precomputed"])
def test_where_nothing_is_known_nothing_is_certified_and_a_warning_says_why(kind):
    if kind == "residual":
        assessment, reason = assess(Residual(), ["last"]), "layer 'last'"
    elif kind == "quantiles":
        steps = QuantileTransformer(n_quantiles=20), MLPClassifier((4,), max_iter=5, random_state=0)
        with pytest.warns(UserWarning, match="Maximum iterations"):
            model = make_pipeline(*steps).fit(X, Y)
        reason = "layer 'logits'.*QuantileTransformer"
        assessment = assess(FrozenEstimator(model), ["logits"])
    else:
        outputs = np.eye(3)[Y], {"input": X}
        classifier = EpistemicClassifier(PrecomputedModel(), neighborhoods=Ball(1), progress=False)
        assessment = classifier.fit(outputs, Y).assess(outputs)
        reason = "layer 'input': nothing is known about the inside of PrecomputedModel"
    with pytest.warns(UserWarning, match=f"no layer has a known Lipschitz constant.*{reason}"):
        assert not assessment.certified_radius.any()


def test_a_model_of_ones_own_may_know_its_constants():
    class Doubling(PrecomputedModel):
        def lipschitz(self, layer):
            return 2.0

    outputs = np.eye(3)[Y], {"twice": 2 * X}
    classifier = EpistemicClassifier(Doubling(), neighborhoods=Ball(1), progress=False)
    assert dict(classifier.fit(outputs, Y).assess(outputs).lipschitz) == {"twice": 2.0}


def test_constants_are_found_once_and_only_on_request(module, monkeypatch):
    calls = []
    from iknow.geometry import torch as geometry

    real = geometry.lipschitz_constants
    monkeypatch.setattr(
        geometry, "lipschitz_constants", lambda *args: calls.append(args) or real(*args)
    )
    assessment = assess(module, ["1"])
    assert (assessment.margin < np.inf).all()
    assessment.explain(0)
    assert not calls
    first = assessment.certified_radius
    np.testing.assert_array_equal(assessment.under({"1": Ball(1.0)}).certified_radius, first)
    np.testing.assert_array_equal(assessment[:5].certified_radius, first[:5])
    assert len(calls) == 1


def test_an_assessment_takes_its_constants_along_when_it_is_pickled(module):
    assessment = assess(module, ["1"])
    copy = pickle.loads(pickle.dumps(assessment))
    assert type(copy.lipschitz) is dict
    np.testing.assert_array_equal(copy.certified_radius, assessment.certified_radius)
