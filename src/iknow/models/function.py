"""FunctionModel and PrecomputedModel: models of any framework, as functions or as outputs.

Whatever a model is made of, iknow needs two functions of a batch: one returns its scores, the other
where the samples lie in a layer. They get the inputs as the user gave them, some at a time, as a
copy that they may write to: an array, a tensor, a data frame, a list of texts, or a dict of arrays.
What they would return may also come as arrays, for the inputs of a model that ran elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from iknow.core.text import shown
from iknow.errors import InputError, LayerError
from iknow.models.inputs import (
    NUMERIC_KINDS,
    Fields,
    as_array,
    as_fields,
    as_numbers,
    count_samples,
    is_sparse,
    own_copy,
)
from iknow.models.model import (
    Layer,
    Model,
    Observation,
    as_activations,
    check_layers,
    make_observation,
    mark_invalid,
    observe_if_taken,
    refusing,
)

EMBEDDING = "embedding"


class FunctionModel(Model):
    """A function of a batch that returns scores, and `embed`, which returns activations.

    Args:
        predict: Takes n samples and returns scores of shape (n, n_classes).
        embed: Takes the same and returns activations of shape (n, ...), or a dict of them by layer.
            Without it the only layer is the input.

    Examples:
        >>> model = FunctionModel(trained.predict_proba, embed=lambda rows: rows[:, :2])
        >>> model.observe(X, ["embedding"]).activations["embedding"].shape
        (150, 2)
    """

    def __init__(
        self, predict: Callable[[Any], Any], embed: Callable[[Any], Any] | None = None
    ) -> None:
        for what, each in (("a model", predict), ("embed", predict if embed is None else embed)):
            if not callable(each) or isinstance(each, type):
                raise InputError(f"{what} must be a function of a batch; got {shown(each)}")
        self.predict, self.embed = predict, embed

    def prepare(self, inputs: Any) -> Any:
        """Return `inputs` as they are, but numbers in a list as an array, a dict as `Fields`."""
        if is_sparse(inputs):  # first, as one format of them is a dict
            return inputs.tocsr()
        if isinstance(inputs, Mapping):
            return as_fields(inputs)
        if isinstance(inputs, (list, tuple)):
            try:
                array = np.asarray(inputs)
            except ValueError:  # of different lengths
                return list(inputs)
            if array.dtype == object and array.ndim > 1:
                with suppress(InputError):  # a table of numbers, some of them missing
                    return as_numbers(array, "X")
            is_numeric = array.dtype.kind in NUMERIC_KINDS and array.ndim > 0
            return as_array(inputs, "X") if is_numeric else list(inputs)
        needs = ("__len__", "__getitem__", "clone" if hasattr(inputs, "clone") else "copy")
        if all(hasattr(inputs, name) for name in needs):
            return inputs  # `Fields` too
        return as_array(inputs, "X")  # or an error that says why it is none

    def layers(self, batch: Any) -> tuple[Layer, ...]:
        if self.embed is None:
            return (Layer("input", "input"),)
        return tuple(Layer(name, "hidden") for name in self._find_layers(batch))

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        return observe_if_taken(self._ask, batch, layers)

    def _ask(self, batch: Any, layers: Sequence[str]) -> Observation:
        found: Mapping[str, Any] = {"input": batch}
        if set(layers) - {"input"}:
            found = {**found, **self._find_layers(batch)}
        check_layers(layers, found, _name(self.predict))
        scores = as_numbers(_call(self.predict, batch), "scores")
        if len(scores) != (n := count_samples(batch)):
            raise InputError(
                f"the function {_name(self.predict)} must return scores for each of {n} inputs, of "
                f"shape ({n}, n_classes); got {scores.shape}"
            )
        return make_observation(scores, {layer: found[layer] for layer in layers})

    def _find_layers(self, batch: Any) -> Mapping[str, Any]:
        if self.embed is None:
            return {}
        found = _call(self.embed, batch)
        layers = found if isinstance(found, Mapping) else {EMBEDDING: found}
        if not layers or "input" in layers or not all(isinstance(name, str) for name in layers):
            raise InputError(
                f"{_name(self.embed)} must return activations, or a dict of them by layer, none of "
                f"them called 'input'; got {shown(list(layers))}"
            )
        return layers


class PrecomputedModel(Model):
    """A model that ran elsewhere: its inputs are `(scores, {layer: activations})`.

    Examples:
        >>> outputs = (np.array([[0.9, 0.1]]), {"hidden": np.array([[1.0, 2.0]])})
        >>> PrecomputedModel().prepare(outputs).belief
        array([0])
    """

    def prepare(self, inputs: Any) -> Observation:
        """Turn `inputs`, `(scores, {layer: activations})`, into an `Observation`."""
        if isinstance(inputs, Observation):
            return inputs
        if isinstance(inputs, tuple) and len(inputs) == 2 and isinstance(inputs[1], Mapping):
            said = make_observation(inputs[0], {})
            # Layers that the user does not choose may hold non-finite activations.
            layers = {k: as_activations(v, k, len(said)) for k, v in inputs[1].items()}
            return replace(said, activations=layers)
        raise InputError(
            "without a model the inputs must be its outputs, (scores, {layer: activations}); got "
            f"{type(inputs).__name__}: pass such a pair, or pass the model"
        )

    def layers(self, batch: Observation) -> tuple[Layer, ...]:
        if not batch.activations:
            raise LayerError(
                "the precomputed data has no layers to find support in: pass the activations of at "
                "least one, as (scores, {layer: activations})"
            )
        return tuple(Layer(name, "hidden") for name in batch.activations)

    def observe(self, batch: Observation, layers: Sequence[str]) -> Observation:
        check_layers(layers, batch.activations, "the precomputed data")
        chosen = {layer: batch.activations[layer] for layer in layers}
        return mark_invalid(replace(batch, activations=chosen))


def _call(function: Callable[[Any], Any], batch: Any) -> Any:
    """What a function makes of a copy of a batch; `RefusedError` if it raises an error."""
    given = own_copy(batch)
    with refusing(f"the function {_name(function)}", batch):
        return function(dict(given.arrays) if isinstance(given, Fields) else given)


def _name(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__name__))
