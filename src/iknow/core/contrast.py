"""Contrast: evidence reduced to one question: is the belief supported, and nothing else?

The distances to the believed class, d_g, and to the nearest other class, d_other, answer it as well
as the distances to every class. They take 16 bytes per sample, whatever the number of classes, so
tuning keeps them instead of the evidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.evidence import NO_EXEMPLAR, Evidence, distances_for_and_against
from iknow.core.quorum import ONE, Quorum, Weighed


@dataclass(frozen=True, eq=False)
class Contrast:
    """What one layer says for and against the beliefs about n queries."""

    own: Floats  # distances to the believed class, of shape (n,)
    other: Floats  # distances to the nearest other class, of shape (n,)
    neighbor_distances: Floats  # as in `Evidence`, of shape (n, n_neighbors)
    quorum: Quorum = ONE  # how many samples a distance reaches, see `iknow.core.quorum`

    def __len__(self) -> int:
        return len(self.own)

    def __getitem__(self, queries: slice | Ints | Bools) -> Contrast:
        columns = self.own, self.other, self.neighbor_distances
        own, other, neighbors = (column[queries] for column in columns)
        return Contrast(own, other, neighbors, self.quorum)

    @property
    def n_neighbors(self) -> int:
        return int(self.neighbor_distances.shape[1])

    def nearest_distance(self) -> Floats:
        return np.minimum(self.own, self.other)

    def neighbor_distance(self, k: int) -> Floats:
        return self.as_evidence().neighbor_distance(k)

    def as_evidence(self) -> Weighed:
        """The same as evidence about two classes: the believed one, code 0, and all others."""
        distances = np.column_stack([self.own, self.other])
        columns = distances, self.neighbor_distances, np.full(distances.shape, NO_EXEMPLAR)
        belief = np.zeros(len(self), dtype=np.int64)
        return Weighed(*columns, belief=belief, quorum=self.quorum)


ValidationEvidence: TypeAlias = Mapping[str, Evidence] | Mapping[str, Contrast]
"""About validation samples, by layer."""


def find_contrast(evidence: Evidence | Contrast, belief: Ints) -> Contrast:
    """The contrast between a belief, class codes of shape (n,), and all other classes."""
    if isinstance(evidence, Contrast):
        return evidence
    quorum = evidence.quorum if isinstance(evidence, Weighed) else ONE
    columns = *distances_for_and_against(evidence, belief), evidence.neighbor_distances
    return Contrast(*columns, quorum)


def stack_contrasts(parts: Sequence[Contrast]) -> Contrast:
    """Join the contrasts of successive batches of queries."""
    rows = ((part.own, part.other, part.neighbor_distances) for part in parts)
    own, other, neighbors = map(np.concatenate, zip(*rows, strict=True))
    return Contrast(own, other, neighbors, parts[0].quorum)


def quorum_of(evidence: ValidationEvidence) -> Quorum:
    """The quorum that the evidence about validation samples was weighed by."""
    first = next(iter(evidence.values()))
    return first.quorum if isinstance(first, Contrast | Weighed) else ONE
