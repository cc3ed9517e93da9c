"""Observations: made, checked, and joined over batches; and the contract of models: the adapters
keep it, one of one's own can, and others are caught.
"""

import tracemalloc
from dataclasses import replace

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
from iknow.errors import InputError, LayerError
from iknow.models import Layer, Model, PrecomputedModel, SklearnModel, TorchModel, make_observation
from iknow.models.inputs import cut_batches
from iknow.models.model import Observation, check_layers, join_whole, observe_all
from iknow.testing import ModelContract

N = 21
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 4))
X[13, 2] = np.nan
SCORES = RNG.normal(size=(N, 3))


def network():
    torch.manual_seed(0)
    return TorchModel(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)))


def perceptron():
    mlp = MLPClassifier((5,), random_state=0, tol=1.0, n_iter_no_change=1)
    return SklearnModel(mlp.fit(np.nan_to_num(X), np.arange(N) % 3))


def outputs():
    return SCORES, {"a": X, "b": SCORES[:, :, None] ** 2}


def without_scores(observation):
    return replace(observation, scores=np.empty((len(observation), 0)))


def equal(found, expected, rtol=0.0):
    assert type(found) is type(expected) is Observation
    assert found.activations.keys() == expected.activations.keys()
    np.testing.assert_array_equal(found.invalid, expected.invalid)
    np.testing.assert_array_equal(found.belief, expected.belief)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=rtol, atol=rtol)
    for layer, values in expected.activations.items():
        np.testing.assert_allclose(found.activations[layer], values, rtol=rtol, atol=rtol)
        assert found.activations[layer].dtype == values.dtype == np.float32


# All batches as one


@pytest.mark.parametrize("size", [1, 3, 7, N])
@pytest.mark.parametrize(
    ("make", "inputs", "layers", "rtol"),
    [
        (PrecomputedModel, outputs(), ("b", "a"), 0.0),
        # A matrix product may round otherwise for another number of rows.
        (network, X, ("input", "1", "output"), 1e-5),
        (perceptron, X, ("input", "hidden1", "logits"), 1e-5),
    ],
    ids=["precomputed", "torch", "sklearn"],
)
def test_all_batches_together_are_one_big_observation(make, inputs, layers, rtol, size):
    model = make()
    prepared = model.prepare(inputs)
    expected = model.observe(prepared, layers)
    assert expected.invalid.tolist() == [row == 13 for row in range(N)]
    found, n_columns = observe_all(model, cut_batches(prepared, size), N, layers)
    equal(found, without_scores(expected), rtol)
    assert n_columns == 3
    assert list(found.activations) == list(layers)


def test_batches_may_come_from_an_iterator_and_without_layers():
    model = network()
    found, _ = observe_all(model, iter(cut_batches(X, 4)), N, ())
    equal(found, without_scores(model.observe(X, ())), 1e-5)


def test_scores_with_a_varying_number_of_columns_are_refused():
    batches = [make_observation(np.ones((N, width)), {}) for width in (3, 2)]
    with pytest.raises(InputError, match="2 columns for some samples and 3 for others"):
        observe_all(PrecomputedModel(), batches, 2 * N, ())


def test_the_scores_of_all_batches_are_not_kept_in_memory():
    n_batches, size, n_classes = 50, 200, 1000
    scores = np.zeros((size, n_classes))  # 1.6 MB; all of them would be 80 MB

    class Scorer(PrecomputedModel):
        def observe(self, batch, layers):
            return make_observation(scores + 1.0, {"a": np.ones((size, 2))})

    tracemalloc.start()
    try:
        observe_all(Scorer(), range(n_batches), n_batches * size, ("a",))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * scores.nbytes


def test_a_layer_of_varying_width_is_refused_by_name():
    batches = [make_observation(SCORES, {"a": X[:, :width], "b": X}) for width in (3, 2)]
    with pytest.raises(LayerError) as caught:
        observe_all(PrecomputedModel(), batches, 2 * N, ("a", "b"))
    assert str(caught.value) == (
        "layer 'a' gives 2 features for some samples and 3 for others: choose a layer of fixed size"
    )


@pytest.mark.parametrize(("n_batches", "got"), [(0, 0), (1, N)])
def test_missing_batches_are_an_error(n_batches, got):
    batches = [make_observation(SCORES, {})] * n_batches
    with pytest.raises(InputError, match=f"expected observations of 42 samples; got {got}"):
        observe_all(PrecomputedModel(), batches, 2 * N, ())


def test_successive_observations_join_with_and_without_activations():
    whole = make_observation(*outputs())
    parts = [whole[:4], whole[4:5], whole[5:]]
    equal(join_whole(parts), whole)
    parts = [replace(part, activations={}) for part in parts]
    equal(join_whole(parts), make_observation(SCORES, {}, invalid=whole.invalid))


# One observation


def test_rows_of_an_observation_are_an_observation():
    whole = make_observation(*outputs())
    rows = np.array([20, 0, 13])
    part = whole[rows]
    assert len(whole) == N
    assert len(part) == 3
    assert part.invalid.tolist() == [False, False, True]
    np.testing.assert_array_equal(part.belief, whole.belief[rows])
    np.testing.assert_array_equal(part.scores, whole.scores[rows])
    np.testing.assert_array_equal(part.activations["b"], whole.activations["b"][rows])


def test_the_belief_is_the_highest_score_and_the_first_of_equals():
    assert make_observation([[1, 3, 2], [5, 5, 1]], {}).belief.tolist() == [1, 0]


def test_a_given_belief_is_kept_unless_a_score_is_nan():
    scores = [[0.0, 1.0], [np.nan, 1.0], [1.0, 0.0], [2.0, 3.0]]
    given = np.array([0, 1, 1, -1])
    observation = make_observation(scores, {}, belief=given)
    assert observation.belief.tolist() == [0, -1, 1, -1]
    assert observation.invalid.tolist() == [False, True, False, True]
    assert given.tolist() == [0, 1, 1, -1]


@pytest.mark.parametrize("belief", [[0, 2], [-2, 0], [0], [0.0, 1.0], [[0], [1]]])
def test_a_given_belief_must_be_positions_of_classes(belief):
    with pytest.raises(InputError, match="belief must be"):
        make_observation(np.eye(2), {}, belief=np.array(belief))


def test_given_invalid_rows_are_joined_with_those_found_and_the_mask_is_not_changed():
    given = np.array([True, False, False, False])
    scores = np.ones((4, 2))
    scores[1, 0] = np.nan
    hidden = np.ones((4, 3))
    hidden[2, 1] = np.nan
    observation = make_observation(scores, {"hidden": hidden}, invalid=given)
    assert observation.invalid.tolist() == [True, True, True, False]
    assert given.tolist() == [True, False, False, False]
    assert observation.belief.tolist() == [0, -1, 0, 0]
    np.testing.assert_array_equal(observation.scores, scores)
    np.testing.assert_array_equal(observation.activations["hidden"], [[0] * 3] * 3 + [[1] * 3])


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 2, 2)])
def test_scores_that_are_no_table_of_classes_are_refused(shape):
    with pytest.raises(InputError) as caught:
        make_observation(np.ones(shape), {})
    assert str(caught.value) == (
        "a model must return scores of shape (n, n_classes) with a column for each of at least two "
        f"classes; got {shape}"
    )


@pytest.mark.parametrize("shape", [(3, 2), (5,)])
def test_an_activation_must_have_one_row_per_sample(shape):
    with pytest.raises(LayerError) as caught:
        make_observation(np.ones((4, 2)), {"good": np.ones((4, 1)), "bad": np.ones(shape)})
    assert str(caught.value) == (
        f"layer 'bad' must give one activation per sample, an array of length 4; got shape {shape}"
    )


# Names of layers


def test_layers_that_exist_pass():
    check_layers(["b", "a", "b"], iter(["a", "b", "c"]), "the net")


def test_layers_that_do_not_exist_are_named_with_those_that_do():
    with pytest.raises(LayerError) as caught:
        check_layers(["a", "x", "y"], ["a", "b"], "the net")
    assert str(caught.value) == "the net has no layer 'x', 'y': it has 'a', 'b'"


def test_a_loader_is_stopped_before_memory_is_full(monkeypatch):
    monkeypatch.setattr("iknow.models.model.free_memory", lambda: 4_000_000)
    monkeypatch.setattr("iknow.models.model.ALWAYS_FITS", 0)
    part = make_observation(np.eye(2)[[0] * 1000], {"wide": np.zeros((1000, 300))})
    taken = []

    def parts():
        for i in range(20):
            taken.append(i)
            yield part

    with pytest.raises(LayerError, match="layer 'wide' has 300 features: for 4,000 samples"):
        join_whole(parts(), None)
    assert len(taken) == 4
    assert len(join_whole([part] * 3, None)) == 3000


def test_a_layer_whose_size_varies_is_told_at_once():
    narrow = make_observation(np.eye(2), {"a": np.zeros((2, 3))})
    wide = make_observation(np.eye(2), {"a": np.zeros((2, 4))})
    with pytest.raises(LayerError, match="4 features for some samples and 3 for others"):
        join_whole(iter([narrow, wide, pytest.fail]), None)


def test_a_model_may_write_all_scores_into_one_array():
    scores = np.empty((1, 2))

    def parts():
        for k in range(3):
            scores[:] = k, 1
            yield make_observation(scores, {})

    for n in (3, None):
        assert join_whole(parts(), n).scores.tolist() == [[0, 1], [1, 1], [2, 1]]


# The contract

SOME = RNG.normal(size=(12, 4)).astype(np.float32)
LABELS = np.arange(12) % 3


class TestTorch(ModelContract):
    def make_model(self):
        torch.manual_seed(0)
        dropped = nn.Dropout()  # only while training
        return TorchModel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), dropped, nn.Linear(8, 3)))

    def make_inputs(self):
        return SOME


class TestSklearn(ModelContract):
    def make_model(self):
        network = MLPClassifier((6,), max_iter=20, random_state=0, solver="lbfgs")
        model = make_pipeline(StandardScaler(), network)
        with pytest.warns(UserWarning, match="lbfgs failed to converge"):
            model.fit(SOME, LABELS)
        return SklearnModel(model)

    def make_inputs(self):
        return SOME.astype(np.float64)


class TestVotes(ModelContract):
    def make_model(self):
        return SklearnModel(SVC().fit(SOME, LABELS))

    def make_inputs(self):
        return SOME.tolist()


class TestPrecomputed(ModelContract):
    def make_model(self):
        return PrecomputedModel()

    def make_inputs(self):
        return np.eye(3)[LABELS], {"a": SOME, "b": SOME[:, None, :2]}


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
        return SOME


def test_a_model_of_ones_own_is_certified_by_what_it_promises():
    made = EpistemicClassifier(Rotating(), rule=Ball(0.5), progress=False)
    radii = made.fit(SOME, np.array(["a", "b", "c"])[LABELS]).assess(SOME).robust_radius
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
    contract.make_model, contract.make_inputs = model, lambda: SOME
    with pytest.raises(AssertionError):
        getattr(contract, f"test_{test}")()


def test_what_only_looks_like_a_model_is_told_to_inherit():
    class Duck:
        def observe(self, batch, layers):
            return None

    with pytest.raises(InputError, match=r"Duck has a method observe.*inherit from iknow\.models"):
        EpistemicClassifier(Duck()).fit(SOME, LABELS)


@pytest.mark.parametrize("module", [iknow.models, iknow.metrics, iknow.testing])
def test_every_public_name_can_be_had(module):
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert sorted(set(module.__all__)) == sorted(module.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        module.nothing  # noqa: B018
