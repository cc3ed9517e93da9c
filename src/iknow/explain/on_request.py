"""On request: what takes time is found for those who ask for it.

Assertions need only to know which classes lie within reach, which an index may find out without
measuring. Explanations, and other neighborhoods, need the distances themselves, and certificates
need to know how far a change of the input can carry a point.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from iknow.core.arrays import Ints
from iknow.core.evidence import Evidence
from iknow.core.movement import Movement
from iknow.locking import Lock

Found = TypeVar("Found", Evidence, Movement)


class OnRequest(Mapping[str, Found], Generic[Found]):
    """What there is to say about samples in each layer, by name, found when it is first looked at.

    find: finds it in a layer, of the samples at some positions. It is let go, with all it holds on
    to, when every layer is there. positions: which samples this is about, of shape (n,). Copies and
    pickles are plain dicts of all there is to find.
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
        with self._lock.held():  # a second thread waits, rather than find it all again
            if layer not in self._found and self._find is not None:
                self._found[layer] = self._find(layer, self._positions)
            if len(self._found) == len(self._layers):
                self._find = None
            return self._found[layer]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def __contains__(self, layer: object) -> bool:  # a Mapping's own would look, and so find
        return layer in self._layers

    def __repr__(self) -> str:
        return f"OnRequest of {', '.join(self._layers)}; found: {len(self._found)}"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy cannot take the model along. Making one does not ask for a certificate: that there
        # will be none is no warning to give here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return dict, (dict(self.items()),)

    def about(self, samples: slice | Ints) -> OnRequest[Found]:
        """The same about some of the samples, and found for these alone, if there is none yet."""
        with self._lock.held():
            find, found = self._find, dict(self._found)
        part = OnRequest(self._layers, find, self._positions[samples])
        part._found = {layer: whole[samples] for layer, whole in found.items()}
        return part


def about(by_layer: Mapping[str, Found], samples: slice | Ints) -> Mapping[str, Found]:
    """What is said about some of the samples, without finding it of any others."""
    if isinstance(by_layer, OnRequest):
        return by_layer.about(samples)
    return {layer: whole[samples] for layer, whole in by_layer.items()}
