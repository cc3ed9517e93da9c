"""On request: what takes time is found when it is first needed.

Assertions need only the classes within reach, which an index may find without measuring.
Explanations and other neighborhoods need the distances, and certificates how far a change of the
input can move a point.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from iknow.core.arrays import Ints
from iknow.core.decision import Decision
from iknow.core.evidence import Evidence
from iknow.core.robustness import Movement
from iknow.locking import Lock

Found = TypeVar("Found", Evidence, Movement, Decision)


@dataclass(eq=False, repr=False)
class Later(Mapping[str, Found], Generic[Found]):
    """What is known about samples in each layer, by name, found on first access.

    find: finds it in a layer, for the samples at some positions; released, with all it holds, when
    every layer is found. positions: of the samples, of shape (n,). Copies and pickles are plain
    dicts of all layers.
    """

    layers: Collection[str]
    find: Callable[[str, Ints], Found] | None
    positions: Ints
    found: dict[str, Found] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def __getitem__(self, layer: str) -> Found:
        if layer not in self.layers:
            raise KeyError(layer)
        with self.lock.held():  # a second thread waits rather than find it again
            if layer not in self.found and self.find is not None:
                self.found[layer] = self.find(layer, self.positions)
            if len(self.found) == len(self.layers):
                self.find = None
            return self.found[layer]

    def __iter__(self) -> Iterator[str]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __contains__(self, layer: object) -> bool:  # Mapping's own would find the value
        return layer in self.layers

    def __repr__(self) -> str:
        return f"Later of {', '.join(self.layers)}; found: {len(self.found)}"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy cannot take the model along. It did not ask for a certificate, so no warnings.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return dict, (dict(self.items()),)

    def about(self, samples: slice | Ints) -> Later[Found]:
        """The same about some of the samples; what is not found yet is found for them alone."""
        with self.lock.held():
            find, found = self.find, dict(self.found)
        found = {layer: whole[samples] for layer, whole in found.items()}
        return Later(self.layers, find, self.positions[samples], found)


def about(known: Any, samples: slice | Ints) -> Any:
    """What is known about some of the samples: of a column, or of each layer by name, without
    finding it for any others.
    """
    if isinstance(known, Later):
        return known.about(samples)
    if isinstance(known, Mapping):
        return {layer: whole[samples] for layer, whole in known.items()}
    return None if known is None else known[samples]
