"""On request: what takes time is found for those who ask for it.

Assertions need only to know which classes lie within reach, which an index may find out without
measuring. Explanations, and other neighborhoods, need the distances themselves, and certificates
need to know how far a change of the input can carry a point.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from iknow.core.arrays import Ints
from iknow.core.evidence import Evidence
from iknow.core.movement import Movement
from iknow.locking import Lock


class EvidenceOnRequest(Mapping[str, Evidence]):
    """The evidence of each layer, by name, gathered when it is first looked at and then kept.

    gather: finds the evidence of a layer about a slice of the samples. It is let go, with all it
    holds on to, when every layer is there. Copies and pickles are plain dicts of all the evidence.
    """

    def __init__(self, layers: Iterable[str], gather: Callable[[str, slice], Evidence]) -> None:
        self._layers = tuple(layers)
        self._gather: Callable[[str, slice], Evidence] | None = gather
        self._gathered: dict[str, Evidence] = {}
        self._lock = Lock()

    def __getitem__(self, layer: str) -> Evidence:
        if layer not in self._layers:
            raise KeyError(layer)
        with self._lock.held():  # whoever comes second waits, rather than measure it all again
            if layer not in self._gathered and self._gather is not None:
                self._gathered[layer] = self._gather(layer, slice(None))
            if len(self._gathered) == len(self._layers):
                self._gather = None
            return self._gathered[layer]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def __contains__(self, layer: object) -> bool:  # a Mapping's own would look, and so gather
        return layer in self._layers

    def __repr__(self) -> str:
        return f"EvidenceOnRequest of {', '.join(self._layers)}; gathered: {len(self._gathered)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self.items()),)

    def about(self, layer: str, samples: slice) -> Evidence:
        """The evidence of a layer about some samples: of these alone, if there is none yet."""
        gathered, gather = self._gathered.get(layer), self._gather
        if gathered is not None or gather is None:
            return self[layer][samples]
        return gather(layer, samples)


def evidence_about(evidence: Mapping[str, Evidence], samples: slice) -> dict[str, Evidence]:
    """The evidence of each layer about some samples, without gathering any about others."""
    if isinstance(evidence, EvidenceOnRequest):
        return {layer: evidence.about(layer, samples) for layer in evidence}
    return {layer: whole[samples] for layer, whole in evidence.items()}


class MovementsOnRequest(Mapping[str, Movement]):
    """How far each layer's points can move, by name, found when it is first looked at and kept.

    find: finds it in a layer, of the samples at some positions. It is let go, with all it holds on
    to, when every layer is there. positions: which samples this is about, of shape (n,). Copies and
    pickles are plain dicts.
    """

    def __init__(
        self, layers: Iterable[str], find: Callable[[str, Ints], Movement], positions: Ints
    ) -> None:
        self._layers = tuple(layers)
        self._find: Callable[[str, Ints], Movement] | None = find
        self._positions = positions
        self._found: dict[str, Movement] = {}
        self._lock = Lock()

    def __getitem__(self, layer: str) -> Movement:
        if layer not in self._layers:
            raise KeyError(layer)
        with self._lock.held():  # whoever comes second waits, rather than find it all again
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

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy cannot take the model along. Whoever makes one has not asked for a certificate:
        # that there will be none is no warning to give here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return dict, (dict(self.items()),)

    def about(self, samples: slice) -> MovementsOnRequest:
        """The same about some of the samples, and found for these alone, if there is none yet."""
        with self._lock.held():
            find, found = self._find, dict(self._found)
        part = MovementsOnRequest(
            self._layers, find or (lambda layer, _: found[layer]), self._positions[samples]
        )
        part._found = {layer: movement[samples] for layer, movement in found.items()}
        return part


def movements_about(movements: Mapping[str, Movement], samples: slice) -> Mapping[str, Movement]:
    """How far the points of some samples can move, without finding it of any others."""
    if isinstance(movements, MovementsOnRequest):
        return movements.about(samples)
    return {layer: movement[samples] for layer, movement in movements.items()}
