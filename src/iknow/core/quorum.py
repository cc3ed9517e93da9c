"""Quorum: how many training samples of a class must lie within reach for the class to count.

With one, a single wrong label next to a query has a veto. A quorum (for, against) asks for more: a
class counts if its `for`-th nearest sample is within reach if it is the believed one, and its
`against`-th nearest if it is another. So we put

    d_g^(for)         in place of d_g, for the belief g
    d_c^(against)     in place of d_c, for every other class c

and all that follows from distances to classes stands: supports, boxes, margins, slack, merging.

Contrast: evidence reduced to one question: is the belief supported, and nothing else? The distances
to the believed class, d_g, and to the nearest other class, d_other, answer it as well as those to
every class. They take 16 bytes per sample, whatever the number of classes, so tuning keeps them
instead of the evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.evidence import NO_EXEMPLAR, Evidence, Ranked, believed, distances_for_and_against
from iknow.core.text import as_whole, shown
from iknow.errors import InputError

Quorum = tuple[int, int]
"""How many samples the belief needs, and how many another class needs to contradict it."""

ONE: Quorum = (1, 1)


def check_quorum(quorum: Any) -> Quorum:
    """A quorum from one number, for both sides, or a pair (for, against)."""
    kind = "be a whole number >= 1, or two: (for, against)"
    several = isinstance(quorum, tuple | list) or (isinstance(quorum, np.ndarray) and quorum.ndim)
    numbers = [as_whole(each, "a quorum", kind) for each in (quorum if several else [quorum] * 2)]
    if len(numbers) != 2 or min(numbers) < 1:
        raise InputError(f"a quorum must {kind}; got {shown(quorum)}")
    return numbers[0], numbers[1]


@dataclass(frozen=True, eq=False)
class Weighed(Evidence):
    """Evidence as a quorum counts it: one distance per class, the one that decides."""

    belief: Ints = field(kw_only=True)  # class codes of shape (n_queries,)
    quorum: Quorum = field(default=ONE, kw_only=True)

    def believed_distance(self) -> Floats:
        """Return the distance to the believed class, of shape (n_queries,); inf without belief."""
        return believed(self.class_distances, self.belief)

    def others_by_distance(self) -> Ints:
        """The codes of all classes, the nearest first and the believed one last."""
        answered = np.flatnonzero(self.belief != NO_BELIEF)
        others = self.class_distances.copy()
        others[answered, self.belief[answered]] = np.nan  # sorted to the end, behind inf
        return np.argsort(others, axis=1, kind="stable")


def weigh(evidence: Evidence, quorum: Quorum, belief: Ints | None = None) -> Weighed:
    """The evidence with the distances and exemplars that decide under a quorum; evidence that is
    already weighed stays as it is.

    belief: class codes of shape (n_queries,). Default: the nearest class of each query, which a
    quorum with different sides does not allow.
    """
    if isinstance(evidence, Weighed):
        if quorum in (evidence.quorum, ONE):
            return evidence
        raise InputError(f"the evidence is weighed by {evidence.quorum}; {quorum} was asked for")
    needed, against = quorum
    if max(quorum) > (held := evidence.distances.shape[2]):
        raise InputError(
            f"the evidence holds the {held} nearest of each class, too few for a quorum of "
            f"{max(quorum)}: gather it with per_class={max(quorum)} or more"
        )
    distances, exemplars = evidence.distances[:, :, against - 1], evidence.rows[:, :, against - 1]
    if belief is None:
        if needed != against:
            raise InputError(f"the quorum {quorum} depends on the belief: give the beliefs too")
        belief = distances.argmin(axis=1)
    if needed != against:
        distances, exemplars = distances.copy(), exemplars.copy()
        rows = np.flatnonzero(belief != NO_BELIEF)
        codes = belief[rows]
        distances[rows, codes] = evidence.distances[rows, codes, needed - 1]
        exemplars[rows, codes] = evidence.rows[rows, codes, needed - 1]
    return Weighed(distances, evidence.neighbor_distances, exemplars, belief=belief, quorum=quorum)


@dataclass(frozen=True, eq=False)
class Contrast(Ranked):
    """What one layer says for and against the beliefs about n queries."""

    own: Floats  # distances to the believed class, of shape (n,)
    other: Floats  # distances to the nearest other class, of shape (n,)
    neighbor_distances: Floats  # as in `Evidence`, of shape (n, n_neighbors)
    quorum: Quorum = ONE  # to which nearest samples the distances are

    def nearest_distance(self) -> Floats:
        return np.minimum(self.own, self.other)

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
    own, other = distances_for_and_against(evidence, belief)
    return Contrast(own, other, evidence.neighbor_distances, evidence.quorum)


def quorum_of(evidence: ValidationEvidence) -> Quorum:
    """The quorum that the evidence about validation samples was weighed by."""
    return next(each.quorum for each in evidence.values())
