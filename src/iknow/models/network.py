"""Network: how a network of any framework is asked.

Samples that are not finite are set aside, the network runs, its scores become a column for each
class, and each layer one vector per sample. How a network runs, and what its layers are called, is
for the adapter of its framework to say.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from iknow.core.arrays import Bools, Ints
from iknow.errors import LayerError
from iknow.models.inputs import Fields
from iknow.models.model import Model, Observation, check_layers, make_observation
from iknow.models.pooling import WHOLE, Pooling, PoolOption
from iknow.models.refused import observe_apart
from iknow.models.scores import ScoresOption, as_columns, check_scores

INPUT, OUTPUT = "input", "output"
ENTRANCE = ".input"  # after the name of a layer: what enters it
MASK = "attention_mask"


class Read(NamedTuple):
    """The activations of a layer, of shape (n, ...), and what pooling must know about them.

    features_last, mask: as in `Pooling`; the mask is the layer's own, if it has one.
    """

    values: Any
    features_last: bool = True
    mask: Any = None


class Pass(NamedTuple):
    """What a network gave for n samples: scores of shape (n, n_classes), (n, 1) or (n,); what was
    read, by layer, without "input" and "output" unless they name other layers; a belief, as in
    `make_observation`, if it is not the highest score.
    """

    scores: Any
    layers: Mapping[str, Read]
    belief: Ints | None = None


class Network(Model):
    """A network that runs a batch at a time.

    pool: how to turn the activations of a layer into one vector per sample; scores: where they are
    in what the network returns.
    """

    _name: str  # in errors
    _hint = ""  # in errors, after the name, why it has few layers
    _entrance = ENTRANCE  # nothing if what enters a layer is no layer

    def __init__(self, pool: PoolOption = None, scores: ScoresOption = None) -> None:
        check_scores(scores)
        self.pooling, self.scores = Pooling(pool), scores
        self._settled: dict[tuple[str, ...], Any] = {}  # by layers, how they are read

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only what cannot be derived."""
        return {**self.__dict__, "_settled": {}}

    def _places(self) -> Mapping[str, Any]:
        """Where `_run` finds each layer inside the network, by name."""
        return {}

    @abstractmethod
    def _take(self, batch: Any) -> tuple[Any, Bools | None]:
        """A batch as `_run` takes it, and which samples are not finite; None if all are."""

    @abstractmethod
    def _run(self, batch: Any, layers: Sequence[str], places: Any) -> Pass:
        """What the network gives for a batch that it may write to; places: as `_locate` gave."""

    @staticmethod
    def _as_array(values: Any, what: str) -> Any:
        """What goes in or out of the network, as pooling takes it; what: its name in errors."""
        return values

    def _locate(self, layers: Sequence[str]) -> Mapping[str, Any]:
        """The places of these layers; `LayerError` if one of them, or one to pool, is unknown."""
        places = self._places()
        plain = [layer for layer in layers if layer.removesuffix(self._entrance) not in places]
        if set(plain).difference(WHOLE) or self.pooling.is_by_layer:
            # To list all names takes longer than a small network.
            known = list(dict.fromkeys([INPUT, *places, OUTPUT]))
            check_layers(plain, known, self._name + self._hint)
            entrances = (name + self._entrance for name in places)
            self.pooling.check_names(dict.fromkeys([*known, *entrances]), self._name)
        return places

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        taken, strange = self._take(batch)
        if strange is None:
            return self._ask(taken, layers)
        return observe_apart(
            lambda part, wanted: self._ask(part.copy(), wanted),
            taken,
            layers,
            strange.astype(np.int64),
            substitute=lambda: without_values(taken),
        )

    def _ask(self, batch: Any, layers: Sequence[str]) -> Observation:
        places, given = self._locate(layers), {}
        arrays = batch.arrays if isinstance(batch, Fields) else {INPUT: batch}
        if INPUT in layers and INPUT not in places:  # before it runs: it may overwrite
            if len(arrays) > 1:
                raise LayerError(
                    f"inputs in several arrays ({', '.join(arrays)}) have no single layer 'input': "
                    "choose another layer"
                )
            given[INPUT] = Read(self._as_array(next(iter(arrays.values())), "the input"))
        hidden = find_mask(arrays[MASK]) if MASK in arrays else None
        found = self._run(batch, layers, places)
        scores = found.scores
        if not isinstance(scores, np.ndarray):
            scores = self._as_array(scores, f"the output of {self._name}")
        scores = np.asarray(scores)
        if scores.ndim != 2 or scores.shape[1] == 1:
            scores = as_columns(scores, self.scores, self._name)
        reads, pooled = {OUTPUT: Read(scores), **given, **found.layers}, {}
        for layer in layers:
            values, features_last, mask = reads[layer]
            mask = hidden if mask is None else mask
            if mask is not None or self.pooling.is_given:
                values = self.pooling(layer, values, features_last=features_last, mask=mask)
            pooled[layer] = values
        return make_observation(scores, pooled, belief=found.belief)


def find_mask(mask: Any) -> Any:
    """The attention mask as an array of shape (n, tokens), 0 where the inputs are padding; None if
    it has another shape.
    """
    if isinstance(mask, np.ndarray):
        return mask
    return mask.cpu().numpy() if mask.ndim == 2 else None


def without_values(batch: Any) -> Any:
    """A copy of arrays or tensors with 0 for all floats; whole numbers and text stay."""
    if isinstance(batch, Fields):
        return Fields({name: without_values(values) for name, values in batch.arrays.items()})
    if hasattr(batch, "new_zeros"):
        return batch.new_zeros(batch.shape) if batch.is_floating_point() else batch.clone()
    return np.zeros_like(batch) if batch.dtype.kind == "f" else batch.copy()
