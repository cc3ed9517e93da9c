"""PrecomputedModel: the outputs of any framework, given as arrays.

The inputs of such a model are its outputs: `(scores, {layer: activations})`, or an `Observation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iknow.core.arrays import Labels
from iknow.errors import InputError, LayerError
from iknow.models.model import Observation, check_layers, make_observation


class PrecomputedModel:
    """A model that was run elsewhere."""

    @property
    def classes(self) -> Labels | None:
        return None

    def prepare(self, inputs: Any) -> Observation:
        """The inputs `(scores, {layer: activations})` as an Observation."""
        if isinstance(inputs, Observation):
            return inputs
        if isinstance(inputs, tuple) and len(inputs) == 2 and isinstance(inputs[1], Mapping):
            return make_observation(*inputs)
        raise InputError(
            "without a model the inputs must be its outputs, (scores, {layer: activations}); "
            f"got {type(inputs).__name__}: pass such a pair, or give the model"
        )

    def default_layers(self, batch: Observation) -> tuple[str, ...]:
        if not batch.activations:
            raise LayerError(
                "the precomputed data has no layers to find support in: give the activations of at "
                "least one, as (scores, {layer: activations})"
            )
        return tuple(batch.activations)

    def observe(self, batch: Observation, layers: Sequence[str]) -> Observation:
        check_layers(layers, batch.activations, "the precomputed data")
        return Observation(
            scores=batch.scores,
            belief=batch.belief,
            activations={layer: batch.activations[layer] for layer in layers},
            invalid=batch.invalid,
        )
