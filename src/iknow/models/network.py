"""Network: how a network of any framework is asked.

Samples that are not finite are set aside, the network runs, its scores become a column for each
class, and each layer one vector per sample. How a network runs, and what its layers are called, is
for the adapter of its framework to say.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Ints
from iknow.models.inputs import Fields
from iknow.models.model import Model, Observation, make_observation
from iknow.models.pooling import Pool, Pooling
from iknow.models.refused import observe_apart
from iknow.models.scores import ScoresOption, as_columns, check_scores

INPUT, OUTPUT = "input", "output"
ENTRANCE = ".input"  # after the name of a layer: what enters it
MASK = "attention_mask"


@dataclass(frozen=True, eq=False)
class Read:
    """The activations of a layer, of shape (n, ...), and what pooling must know about them.

    features_last, mask: as in `Pooling`; the mask is the layer's own, if it has one.
    """

    values: Any
    features_last: bool = True
    mask: Any = None


@dataclass(frozen=True, eq=False)
class Pass:
    """What a network gave for n samples.

    Attributes:
        scores: An array of shape (n, n_classes), (n, 1) or (n,).
        layers: What was read, by layer; "output" may be left out if it is the scores.
        mask: Of shape (n, tokens), 0 for tokens that are padding; None if there are none.
        belief: As in `make_observation`.
    """

    scores: Any
    layers: Mapping[str, Read]
    mask: Any = None
    belief: Ints | None = None


class Network(Model):
    """A network that runs a batch at a time.

    Args:
        pool: How to turn the activations of a layer into one vector per sample
            (`iknow.models.pooling`).
        scores: Where the scores are in what the network returns (`iknow.models.scores`).
    """

    def __init__(
        self, pool: Pool | Mapping[str, Pool] | None = None, scores: ScoresOption = None
    ) -> None:
        check_scores(scores)
        self.pooling, self.scores = Pooling(pool), scores

    @property
    @abstractmethod
    def _name(self) -> str:
        """The network in errors."""

    @abstractmethod
    def _locate(self, layers: Sequence[str]) -> Any:
        """Where to find these layers, as `_run` takes it; `LayerError` if one is unknown."""

    @abstractmethod
    def _take(self, batch: Any) -> tuple[Any, Bools | None]:
        """A batch as `_run` takes it, and which samples are not finite; None if all are."""

    @abstractmethod
    def _run(self, batch: Any, layers: Sequence[str], places: Any) -> Pass:
        """What the network gives for a batch that it may write to; places: as `_locate` gave."""

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        places = self._locate(layers)
        taken, strange = self._take(batch)
        if strange is None:
            return self._ask(taken, layers, places)
        return observe_apart(
            lambda part, wanted: self._ask(part.copy(), wanted, places),
            taken,
            layers,
            strange.astype(np.int64),
            substitute=lambda: without_values(taken),
        )

    def _ask(self, batch: Any, layers: Sequence[str], places: Any) -> Observation:
        found = self._run(batch, layers, places)
        scores = as_columns(found.scores, self.scores, self._name)
        pooled = {}
        for layer in layers:
            read = found.layers[layer] if layer in found.layers else Read(scores)
            mask = found.mask if read.mask is None else read.mask
            pooled[layer] = self.pooling(
                layer, read.values, features_last=read.features_last, mask=mask
            )
        return make_observation(scores, pooled, belief=found.belief)


def without_values(batch: Any) -> Any:
    """A copy of arrays or tensors with 0 for all floats; whole numbers and text stay."""
    if isinstance(batch, Fields):
        return Fields({name: without_values(values) for name, values in batch.arrays.items()})
    if hasattr(batch, "new_zeros"):
        return batch.new_zeros(batch.shape) if batch.is_floating_point() else batch.clone()
    return np.zeros_like(batch) if batch.dtype.kind == "f" else batch.copy()
