"""On request: what takes time is found when it is first needed.

Assertions need only the classes within reach, which an index may find without measuring.
Explanations and other neighborhoods need the distances, and certificates how far a change of the
input can move a point.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from iknow.core.arrays import Ints
from iknow.core.evidence import Evidence
from iknow.core.robustness import Movement
from iknow.locking import Lock

Found = TypeVar("Found", Evidence, Movement)


class Later(Mapping[str, Found], Generic[Found]):
    """What is known about samples in each layer, by name, found on first access.

    find: finds it in a layer, for the samples at some positions; released, with all it holds, when
    every layer is found. positions: of the samples, of shape (n,). Copies and pickles are plain
    dicts of all layers.
    """

    def __init__(
        self, layers: Iterable[str], find: Callable[[str, Ints], Found] | None, positions: Ints
    ) -> None:
        self._layers = tuple(layers)
        self._find: Callable[[str, Ints], Found] | None = find
        self._positions = positions
        self._found: dict[str, Found] = {}
        self._lock = Lock()

    def __getitem__(self, layer: str) -> Found:
        if layer not in self._layers:
            raise KeyError(layer)
        with self._lock.held():  # a second thread waits rather than find it again
            if layer not in self._found and self._find is not None:
                self._found[layer] = self._find(layer, self._positions)
            if len(self._found) == len(self._layers):
                self._find = None
            return self._found[layer]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def __contains__(self, layer: object) -> bool:  # Mapping's own would find the value
        return layer in self._layers

    def __repr__(self) -> str:
        return f"Later of {', '.join(self._layers)}; found: {len(self._found)}"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy cannot take the model along. It did not ask for a certificate, so no warnings.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return dict, (dict(self.items()),)

    def about(self, samples: slice | Ints) -> Later[Found]:
        """The same about some of the samples; what is not found yet is found for them alone."""
        with self._lock.held():
            find, found = self._find, dict(self._found)
        part = Later(self._layers, find, self._positions[samples])
        part._found = {layer: whole[samples] for layer, whole in found.items()}
        return part


def about(by_layer: Mapping[str, Found], samples: slice | Ints) -> Mapping[str, Found]:
    """What is known about some of the samples, without finding it for any others."""
    if isinstance(by_layer, Later):
        return by_layer.about(samples)
    return {layer: whole[samples] for layer, whole in by_layer.items()}
