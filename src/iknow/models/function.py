"""FunctionModel: a plain function that returns scores, and one that returns activations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from iknow.core.text import shown
from iknow.errors import InputError
from iknow.models.model import Model, Observation, check_layers, make_observation

EMBEDDING = "embedding"


class FunctionModel(Model):
    """A function of a batch that returns scores, and `embed`, which returns activations.

    Args:
        predict: Takes n samples and returns scores of shape (n, n_classes).
        embed: Takes the same and returns activations of shape (n, ...), or a dict of them by layer.
            Without it the only layer is the input.
    """

    def __init__(
        self, predict: Callable[[Any], Any], embed: Callable[[Any], Any] | None = None
    ) -> None:
        if embed is not None and not callable(embed):
            raise InputError(f"embed must be a function of a batch; got {shown(embed)}")
        self.predict, self.embed = predict, embed

    def default_layers(self, batch: Any) -> tuple[str, ...]:
        found = self._embed(batch)
        return tuple(found) if found else ("input",)

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        found = {"input": batch, **self._embed(batch)}
        check_layers(layers, found, "the function")
        return make_observation(self.predict(batch), {layer: found[layer] for layer in layers})

    def _embed(self, batch: Any) -> Mapping[str, Any]:
        if self.embed is None:
            return {}
        found = self.embed(batch)
        return found if isinstance(found, Mapping) else {EMBEDDING: found}
