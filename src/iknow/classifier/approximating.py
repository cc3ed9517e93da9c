"""Approximating: what an approximate search changes, measured while tuning.

Tuning reads each validation sample once, and only afterwards it is known which neighborhoods to
compare. So we keep the activations of the first samples, up to a limit, if any index approximates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.core.assertion import Assertions, make_assertions
from iknow.core.justification import justify
from iknow.models.model import Observation
from iknow.search.layer import LayerIndex
from iknow.selection import Selection
from iknow.selection.approximation import Approximation, compare_assertions

BYTES_KEPT = 256 << 20  # over all layers
QUERIES_AT_ONCE = 4096


class Comparison:
    """The first validation samples, to compare approximate with exact search."""

    def __init__(self, indexes: Mapping[str, LayerIndex]) -> None:
        self._indexes = indexes
        said = dict.fromkeys(index.approximation for index in indexes.values())
        self._name = ", ".join(each for each in said if each is not None)
        self._parts: list[Observation] = []
        self._bytes = 0

    def keep(self, observations: Iterable[Observation]) -> Iterator[Observation]:
        """The same observations, the first of which are kept if an index approximates."""
        for observation in observations:
            if self._name and self._bytes < BYTES_KEPT:
                self._parts.append(observation)
                self._bytes += sum(each.nbytes for each in observation.activations.values())
            yield observation

    def measure(self, selection: Selection, confidence: Floats | None) -> Approximation | None:
        """How much differs with the neighborhoods of a selection; None if all search is exact.

        confidence: the model's, of shape (n,).
        """
        layers = {layer: self._indexes[layer] for layer in selection.neighborhoods}
        if not any(index.approximation for index in layers.values()) or not self._parts:
            return None
        belief: Ints = np.concatenate([part.belief for part in self._parts])
        doubted = None
        if confidence is not None:
            doubted = confidence[: len(belief)] < selection.least_confidence
        answers: list[Assertions] = []
        for exactly in (False, True):
            supports = [
                self._support(layer, index, selection, belief, exactly)
                for layer, index in layers.items()
            ]
            justified = justify(supports)
            answers.append(make_assertions(belief, justified, selection.knowable, doubted))
        return compare_assertions(self._name, *answers)

    def _support(
        self, layer: str, index: LayerIndex, selection: Selection, belief: Ints, exactly: bool
    ) -> Bools:
        queries: Floats32 = np.concatenate([part.activations[layer] for part in self._parts])
        find = index.find_exact_support if exactly else index.find_support
        rule, n = selection.neighborhoods[layer], len(belief)
        parts = [slice(start, start + QUERIES_AT_ONCE) for start in range(0, n, QUERIES_AT_ONCE)]
        return np.concatenate([find(queries[part], rule, belief[part]) for part in parts])
