"""PrecomputedModel: what it takes, what it refuses, what it marks."""

import numpy as np
import pytest

from iknow.errors import InputError, LayerError
from iknow.models import PrecomputedModel
from iknow.models.model import Model, Observation
from tests.choosing import paper_layers

SCORES = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
HIDDEN = np.arange(12.0).reshape(3, 4)
LOGITS = np.array([[-1.0, 1.0], [2.0, -2.0], [0.0, 1.0]])


def observe(inputs, layers):
    model = PrecomputedModel()
    return model.observe(model.prepare(inputs), layers)


def test_it_is_a_model_without_labels():
    model = PrecomputedModel()
    assert isinstance(model, Model)
    assert model.classes is None


def test_a_pair_of_scores_and_layers_is_taken():
    observation = observe((SCORES, {"hidden": HIDDEN, "logits": LOGITS}), ("hidden", "logits"))
    np.testing.assert_array_equal(observation.scores, SCORES)
    assert observation.belief.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(observation.activations["hidden"], HIDDEN)
    np.testing.assert_array_equal(observation.activations["logits"], LOGITS)
    assert observation.activations["hidden"].dtype == np.float32
    assert observation.scores.dtype == np.float64
    assert not observation.invalid.any()


def test_lists_are_taken_like_arrays():
    observation = observe((SCORES.tolist(), {"hidden": HIDDEN.tolist()}), ("hidden",))
    np.testing.assert_array_equal(observation.activations["hidden"], HIDDEN)


def test_an_observation_is_taken_as_it_is():
    given = PrecomputedModel().prepare((SCORES, {"hidden": HIDDEN}))
    assert isinstance(given, Observation)
    assert PrecomputedModel().prepare(given) is given


@pytest.mark.parametrize(
    ("inputs", "kind"),
    [
        (SCORES, "ndarray"),
        ([SCORES, {"hidden": HIDDEN}], "list"),
        ((SCORES, HIDDEN), "tuple"),
        ((SCORES,), "tuple"),
        ((SCORES, {}, {}), "tuple"),
        ({"hidden": HIDDEN}, "dict"),
        (None, "NoneType"),
    ],
    ids=["scores alone", "a list", "no mapping", "one", "three", "layers alone", "nothing"],
)
def test_anything_else_is_refused_with_what_to_do(inputs, kind):
    with pytest.raises(InputError) as caught:
        PrecomputedModel().prepare(inputs)
    assert str(caught.value) == (
        "without a model the inputs must be its outputs, (scores, {layer: activations}); "
        f"got {kind}: pass such a pair, or pass the model"
    )


def test_only_layers_that_were_given_can_be_read():
    with pytest.raises(LayerError) as caught:
        observe((SCORES, {"hidden": HIDDEN, "logits": LOGITS}), ("hidden", "relu"))
    assert str(caught.value) == (
        "the precomputed data has no layer 'relu': it has 'hidden', 'logits'"
    )


def test_only_layers_that_were_asked_for_are_returned_in_that_order():
    inputs = (SCORES, {"hidden": HIDDEN, "logits": LOGITS, "spare": HIDDEN})
    assert list(observe(inputs, ("logits", "hidden")).activations) == ["logits", "hidden"]
    assert observe(inputs, ()).activations == {}


def test_by_default_all_given_layers_are_read():
    model = PrecomputedModel()
    batch = model.prepare((SCORES, {"logits": LOGITS, "hidden": HIDDEN}))
    assert paper_layers(model, batch) == ("logits", "hidden")


def test_no_layers_at_all_are_refused_where_some_must_be_chosen():
    model = PrecomputedModel()
    batch = model.prepare((SCORES, {}))
    assert model.observe(batch, ()).belief.tolist() == [1, 0, 1]
    with pytest.raises(LayerError, match="pass the activations of at least one"):
        paper_layers(model, batch)


@pytest.mark.parametrize("shape", [(3,), (3, 4), (3, 2, 2), (3, 1, 2, 2)])
def test_activations_of_any_shape_are_flattened_per_sample(shape):
    values = np.arange(np.prod(shape), dtype=float).reshape(shape)
    found = observe((SCORES, {"map": values}), ("map",)).activations["map"]
    np.testing.assert_array_equal(found, values.reshape(3, -1))


def test_no_samples_are_an_empty_observation():
    observation = observe((SCORES[:0], {"map": np.empty((0, 2, 3))}), ("map",))
    assert len(observation) == 0
    assert observation.activations["map"].shape == (0, 6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_with_an_activation_that_is_not_finite_is_invalid_and_keeps_its_belief(bad):
    hidden = HIDDEN.copy()
    hidden[2, 1] = bad
    observation = observe((SCORES, {"hidden": hidden, "logits": LOGITS}), ("hidden", "logits"))
    assert observation.invalid.tolist() == [False, False, True]
    assert observation.belief.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(observation.scores, SCORES)
    np.testing.assert_array_equal(observation.activations["hidden"], [*HIDDEN[:2], [0] * 4])
    np.testing.assert_array_equal(observation.activations["logits"], [*LOGITS[:2], [0, 0]])
    assert np.array_equal(hidden[2, 1], bad, equal_nan=True)


def test_only_layers_that_were_chosen_must_be_finite():
    inputs = (SCORES, {"hidden": np.full_like(HIDDEN, np.nan), "logits": LOGITS})
    assert not observe(inputs, ("logits",)).invalid.any()
    assert not observe(inputs, ()).invalid.any()
    assert observe(inputs, ("logits", "hidden")).invalid.all()


@pytest.mark.parametrize(
    ("row", "belief"),
    [
        ([np.nan, 1.0], -1),
        ([np.nan, np.inf], -1),
        ([np.inf, np.inf], -1),
        ([-np.inf, -np.inf], -1),
        ([np.inf, 3.0], 0),
        ([-np.inf, -3.0], 1),  # the logarithms of probabilities
    ],
)
def test_without_a_highest_score_there_is_no_belief_and_the_scores_stay(row, belief):
    scores = np.array([*SCORES, row])
    observation = observe((scores, {"hidden": np.ones((4, 1))}), ("hidden",))
    assert observation.belief.tolist() == [1, 0, 1, belief]
    assert observation.invalid.tolist() == [False, False, False, belief == -1]
    np.testing.assert_array_equal(observation.scores, scores)


@pytest.mark.parametrize("value", [1e39, -1e300])
def test_an_activation_beyond_float32_is_invalid(value):
    hidden = HIDDEN.copy()
    hidden[0, 3] = value
    observation = observe((SCORES, {"hidden": hidden}), ("hidden",))
    assert observation.invalid.tolist() == [True, False, False]
    assert not observation.activations["hidden"][0].any()


def test_scores_beyond_float32_are_fine():
    observation = observe((SCORES * 1e200, {}), ())
    assert not observation.invalid.any()
    np.testing.assert_array_equal(observation.scores, SCORES * 1e200)
