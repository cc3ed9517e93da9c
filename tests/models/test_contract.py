"""The contract of models: the adapters keep it, one of one's own can, and others are caught."""

import numpy as np
import pytest
import torch
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import nn

import iknow.metrics
import iknow.models
from iknow import Ball, EpistemicClassifier
from iknow.errors import InputError
from iknow.models import Layer, Model, PrecomputedModel, SklearnModel, TorchModel, make_observation
from iknow.models.model import check_layers
from iknow.testing import ModelContract

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 4)).astype(np.float32)
Y = np.arange(12) % 3


class TestTorch(ModelContract):
    def make_model(self):
        torch.manual_seed(0)
        dropped = nn.Dropout()  # only while training
        return TorchModel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), dropped, nn.Linear(8, 3)))

    def make_inputs(self):
        return X


class TestSklearn(ModelContract):
    def make_model(self):
        network = MLPClassifier((6,), max_iter=20, random_state=0, solver="lbfgs")
        model = make_pipeline(StandardScaler(), network)
        with pytest.warns(UserWarning, match="lbfgs failed to converge"):
            model.fit(X, Y)
        return SklearnModel(model)

    def make_inputs(self):
        return X.astype(np.float64)


class TestVotes(ModelContract):
    def make_model(self):
        return SklearnModel(SVC().fit(X, Y))

    def make_inputs(self):
        return X.tolist()


class TestPrecomputed(ModelContract):
    def make_model(self):
        return PrecomputedModel()

    def make_inputs(self):
        return np.eye(3)[Y], {"a": X, "b": X[:, None, :2]}


class Rotating(Model):
    """A model of one's own."""

    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]

    @property
    def classes(self):
        return np.array(["a", "b", "c"])

    def layers(self, batch):
        return Layer("turned", "hidden"), Layer("input", "hidden")

    def observe(self, batch, layers):
        check_layers(layers, ("turned", "input"), "Rotating")
        values = {"turned": 3 * batch @ self.turn, "input": batch}
        return make_observation(batch[:, :3], {layer: values[layer] for layer in layers})

    def sensitivity(self, layer, inputs):
        return 3.0001 if layer == "turned" else 1.0


class TestRotating(ModelContract):
    def make_model(self):
        return Rotating()

    def make_inputs(self):
        return X


def test_a_model_of_ones_own_is_certified_by_what_it_promises():
    made = EpistemicClassifier(Rotating(), rule=Ball(0.5), progress=False)
    radii = made.fit(X, np.array(["a", "b", "c"])[Y]).assess(X).robust_radius
    assert (radii > 0).any()


class Hasty(Rotating):
    def sensitivity(self, layer, inputs):
        return 2.9


class Random(Rotating):
    def observe(self, batch, layers):
        return super().observe(batch + 1e-3 * RNG.normal(size=batch.shape), layers)


class Centering(Rotating):
    def observe(self, batch, layers):
        return super().observe(batch - batch.mean(axis=0), layers)


class Forgiving(Rotating):
    def observe(self, batch, layers):
        return super().observe(np.nan_to_num(batch), layers)


@pytest.mark.parametrize(
    ("model", "test"),
    [
        (Hasty, "no_movement_breaks_what_is_promised"),
        (Random, "the_same_inputs_are_answered_alike_twice"),
        (Centering, "an_answer_does_not_depend_on_the_rest_of_the_batch"),
        (Forgiving, "an_input_that_is_not_finite_disturbs_no_other"),
    ],
)
def test_the_contract_finds_what_breaks_it(model, test):
    contract = ModelContract()
    contract.make_model, contract.make_inputs = model, lambda: X
    with pytest.raises(AssertionError):
        getattr(contract, f"test_{test}")()


def test_what_only_looks_like_a_model_is_told_to_inherit():
    class Duck:
        def observe(self, batch, layers):
            return None

    with pytest.raises(InputError, match=r"Duck has a method observe.*inherit from iknow\.models"):
        EpistemicClassifier(Duck()).fit(X, Y)


@pytest.mark.parametrize("module", [iknow.models, iknow.metrics, iknow.testing])
def test_every_public_name_can_be_had(module):
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert sorted(set(module.__all__)) == sorted(module.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        module.nothing  # noqa: B018
