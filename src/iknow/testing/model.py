"""The contract of a model, as tests to inherit.

    class TestMyModel(ModelContract):
        def make_model(self):
            return MyModel(...)

        def make_inputs(self):
            return np.random.default_rng(0).normal(size=(12, 4))

If inputs are an array of floats, what the model promises by `sensitivity` is attacked: inputs are
moved again and again, to where the activations move most.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from iknow.core.robustness import Sensitivity
from iknow.errors import IknowError, LayerError
from iknow.metrics.lipschitz import SMALLEST
from iknow.models.inputs import measure, norms
from iknow.models.model import Layer, Model, Observation, promised_sensitivity

STEPS = 40


class ModelContract:
    """What every model must do. Inherit, and say how to make one, and inputs that it takes."""

    tolerance = 1e-5  # of a layer's size: how far an activation may be off in another batch

    def make_model(self) -> Model:
        """A trained model."""
        raise NotImplementedError

    def make_inputs(self) -> Any:
        """At least 8 inputs, all finite."""
        raise NotImplementedError

    def test_what_is_observed_has_the_right_shapes_and_types(self) -> None:
        model, inputs, layers = self._make()
        assert isinstance(model.is_elsewhere, bool)
        seen = model.observe(inputs, layers)
        n, n_classes = len(inputs), seen.scores.shape[1]
        assert n_classes >= 2
        assert list(seen.activations) == list(layers)
        for values, shape, kind in [
            (seen.scores, (n, n_classes), np.float64),
            (seen.belief, (n,), np.int64),
            (seen.invalid, (n,), np.bool_),
            *((values, (n, values.shape[-1]), np.float32) for values in seen.activations.values()),
        ]:
            assert (values.shape, values.dtype) == (shape, np.dtype(kind))
        assert ((seen.belief >= 0) & (seen.belief < n_classes)).all()
        assert not seen.invalid.any()
        assert model.classes is None or np.asarray(model.classes).shape == (n_classes,)

    def test_the_same_inputs_are_answered_alike_twice(self) -> None:
        model, inputs, layers = self._make()
        self._compare(model.observe(inputs, layers), model.observe(inputs, layers), 0.0)

    def test_an_answer_does_not_depend_on_the_rest_of_the_batch(self) -> None:
        model, inputs, layers = self._make()
        whole = model.observe(inputs, layers)
        for rows in (slice(0, 1), slice(3, 4), slice(2, 7), slice(None, None, 2)):
            self._compare(model.observe(inputs[rows], layers), whole[rows], self.tolerance)

    def test_layers_are_observed_alike_alone_and_together(self) -> None:
        model, inputs, layers = self._make()
        whole = model.observe(inputs, layers)
        np.testing.assert_array_equal(model.observe(inputs, ()).belief, whole.belief)
        for layer in layers:
            alone = model.observe(inputs, (layer,))
            assert list(alone.activations) == [layer]
            np.testing.assert_array_equal(alone.activations[layer], whole.activations[layer])
        with pytest.raises(LayerError):
            model.observe(inputs, ("no layer has this name",))

    def test_an_input_that_is_not_finite_disturbs_no_other(self) -> None:
        model, inputs, layers = self._make()
        if not _is_of_floats(inputs):
            return
        damaged = inputs.copy()
        damaged[1] = np.nan
        seen, whole = model.observe(damaged, layers), model.observe(inputs, layers)
        assert seen.invalid.tolist() == [i == 1 for i in range(len(inputs))]
        rest = ~seen.invalid
        self._compare(seen[rest], whole[rest], self.tolerance)

    def test_no_movement_breaks_what_is_promised(self) -> None:
        model, inputs, layers = self._make()
        for layer in layers if _is_of_floats(inputs) else ():
            try:
                bound = promised_sensitivity(model, layer, measure(inputs))
            except IknowError:
                continue  # nothing is known, and nothing promised
            assert bound.lipschitz >= 0
            for size in (1e-4, 1e-2, 1.0, 30.0):
                self._attack(model, layer, bound, inputs, size)

    def _attack(
        self, model: Model, layer: str, bound: Sensitivity, inputs: Any, size: float
    ) -> None:
        """Move each input by steps of a size, and go on from where it came closest to breaking."""
        rng = np.random.default_rng(0)
        before = model.observe(inputs, (layer,)).activations[layer]
        best, height = inputs.copy(), np.full(len(inputs), -np.inf)
        for step in range(STEPS):
            scale = size * 0.8 ** (step // 4)
            other = (best + scale * rng.standard_normal(inputs.shape)).astype(inputs.dtype)
            after = model.observe(other, (layer,)).activations[layer]
            apart = norms(other.astype(np.float64) - inputs.astype(np.float64))
            gone = norms(after.astype(np.float64) - before.astype(np.float64))
            off = bound.off(norms(inputs), norms(before)) + bound.off(norms(other), norms(after))
            off += 2 * SMALLEST * math.sqrt(after.shape[1])
            excess = gone / np.maximum(bound.lipschitz * apart + off, SMALLEST)
            better = excess > height
            best[better], height[better] = other[better], excess[better]
        assert (height <= 1 + 1e-6).all(), (
            f"layer {layer!r} moves {height.max():.6g} times as far as its sensitivity allows"
        )

    def _make(self) -> tuple[Model, Any, tuple[str, ...]]:
        model = self.make_model()
        assert isinstance(model, Model)
        inputs = model.prepare(self.make_inputs())
        assert len(inputs) >= 8
        described = model.layers(inputs)
        assert all(isinstance(layer, Layer) for layer in described)
        layers = tuple(layer.name for layer in described)
        assert 0 < len(layers) == len(set(layers))
        return model, inputs, layers

    def _compare(self, found: Observation, wanted: Observation, tolerance: float) -> None:
        np.testing.assert_array_equal(found.belief, wanted.belief)
        np.testing.assert_array_equal(found.invalid, wanted.invalid)
        for layer, values in wanted.activations.items():
            size = float(norms(values).max(initial=0.0))
            assert norms(found.activations[layer] - values).max() <= tolerance * size


def _is_of_floats(inputs: Any) -> bool:
    return isinstance(inputs, np.ndarray) and inputs.dtype.kind == "f"
