"""On request: what takes time is found for those who ask for it.

Assertions need only to know which classes lie within reach, which an index may find out without
measuring. Explanations, and other neighborhoods, need the distances themselves, and certificates
need constants of the model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from iknow.core.evidence import Evidence
from iknow.locking import Lock, cached_property


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


class ConstantsOnRequest(Mapping[str, float]):
    """A number for each layer, by name, all of them found when one is first looked at.

    Copies and pickles are plain dicts.
    """

    def __init__(self, find: Callable[[], Mapping[str, float]]) -> None:
        self._find = find

    @cached_property
    def _found(self) -> Mapping[str, float]:
        return self._find()

    def __getitem__(self, layer: str) -> float:
        return self._found[layer]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy cannot take the model along. Whoever makes one has not asked for a certificate:
        # that there will be none is no warning to give here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return dict, (dict(self.items()),)
