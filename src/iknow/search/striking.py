"""Striking: evidence without some of the rows that it rests on.

The lists of a class name their rows, so those that are gone can be struck out by number, whatever
their ties. Neighbor distances name nothing. But they are a multiset, the smallest of the base, and
so are the distances to the rows that are gone: we strike one entry for each equal one. Distances
are the same to the last bit in every index, so equal means equal.

Let M be the distances to all rows of the base, R those to the rows that are gone, A some of the
smallest in M, and v the largest in A. Below v, A holds all of M, so what is left there is all of
M - R. At v, A may hold only some of those tied in M, and we strike as many as R has, or all: what
is left of them is in M - R. So if at least k of A are left, the first k are the smallest of M - R.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.core.evidence import NO_EXEMPLAR, Evidence, from_ranked, stack_evidence
from iknow.locking import cached_property
from iknow.search.stored import StoredRows

Make = Callable[..., StoredRows]
FEW = 8
"""How many further rows to ask for, first, in place of those that are gone."""
NUMBERS_AT_ONCE = 1 << 23
"""Of the longer lists, so that they take little memory."""


class RemainingRows:
    """The rows of an index but for some.

    base: the index. gone: positions of rows in it, ascending. make: makes a small index of rows by
    the same distance.
    """

    def __init__(self, base: StoredRows, gone: Ints, make: Make) -> None:
        self.base, self.gone, self._make = base, gone, make

    def gather(self, points: Floats32, k: int, per_class: int) -> Evidence:
        """Evidence of the rows of the base that are not gone; inf past the last."""
        found = self.base.gather(points, min(k, self.base.n_rows), per_class)
        if not len(self.gone):
            return found
        found, lost = self._strike(points, found)
        short, extra = np.flatnonzero(lost), FEW
        columns = {name: column.copy() for name, column in vars(found).items()}
        while len(short):
            again, lost = self._gather_more(points[short], k, per_class, extra)
            for name, column in columns.items():
                column[short] = getattr(again, name)
            # A list with as many spare entries as it lost is whole. So are all at the latest when
            # there is a spare one for each row that is gone.
            short, extra = short[lost > min(extra, len(self.gone))], 4 * extra
        return Evidence(**columns)

    def _gather_more(
        self, points: Floats32, k: int, per_class: int, extra: int
    ) -> tuple[Evidence, Ints]:
        """Evidence from lists that are longer by `extra`, and the most that one lost, (n,)."""
        spare, base = min(extra, len(self.gone)), self.base
        sizes = min(k + spare, base.n_rows), per_class + spare
        step = max(1, NUMBERS_AT_ONCE // (sizes[0] + sizes[1] * base.n_classes))
        parts = []
        for start in range(0, len(points), step):
            part = points[start : start + step]
            parts.append(self._strike(part, base.gather(part, *sizes)))
        found = stack_evidence([each for each, _ in parts])
        n_neighbors = min(k, base.n_rows)
        cut = from_ranked(
            found.ranked_distances()[:, :, :per_class],
            found.neighbor_distances[:, :n_neighbors],
            found.ranked_exemplars()[:, :, :per_class],
        )
        return cut, np.concatenate([lost for _, lost in parts])

    def _strike(self, points: Floats32, found: Evidence) -> tuple[Evidence, Ints]:
        distances: Floats = np.empty((len(points), 0))
        if found.n_neighbors:
            asked = min(found.n_neighbors, len(self.gone))
            distances = self._index.gather(points, asked).neighbor_distances
        return strike(found, self._numbers, distances)

    @cached_property
    def _numbers(self) -> Ints:
        return np.sort(self.base.rows[self.gone])

    @cached_property
    def _index(self) -> StoredRows:
        """The rows that are gone."""
        gone = self.base.points[self.gone], self.base.labels[self.gone]
        return self._make(*gone, self.base.n_classes)


def strike(evidence: Evidence, gone: Ints, distances: Floats) -> tuple[Evidence, Ints]:
    """The evidence without the rows that are gone, padded, and the most that a list lost, (n,).

    gone: their numbers, ascending. distances: to these rows, (n, m), ascending; m is their number,
    or that of the neighbor distances if that is less.
    """
    ranked, exemplars = evidence.ranked_distances(), evidence.ranked_exemplars()
    lost = are_among(exemplars, gone)
    order = np.argsort(lost, axis=2, kind="stable")
    ranked = np.take_along_axis(np.where(lost, np.inf, ranked), order, axis=2)
    exemplars = np.take_along_axis(np.where(lost, NO_EXEMPLAR, exemplars), order, axis=2)
    struck = _find_equals(evidence.neighbor_distances, distances)
    neighbors = np.sort(np.where(struck, np.inf, evidence.neighbor_distances), axis=1)
    most = np.maximum(lost.sum(axis=2).max(axis=1, initial=0), struck.sum(axis=1))
    return from_ranked(ranked, neighbors, exemplars), most


def are_among(numbers: Ints, known: Ints) -> Bools:
    """Which numbers, of any shape, are among known ones, which ascend."""
    if not len(known):
        return np.zeros(numbers.shape, dtype=np.bool_)
    places = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return np.asarray(known[places] == numbers)


def _find_equals(whole: Floats, part: Floats) -> Bools:
    """Mark one entry of `whole`, (n, a), for each equal one of `part`, (n, b), while there are."""
    struck = np.zeros(whole.shape, dtype=np.bool_)
    if not whole.shape[1]:
        return struck
    queries = np.arange(len(whole))
    for column in part.T:
        equal = (whole == column[:, None]) & ~struck
        first = equal.argmax(axis=1)
        struck[queries, first] |= equal[queries, first]
    return struck
