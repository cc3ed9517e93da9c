"""Proposing: rows that may be the nearest of a class, and what measuring them proves.

Nothing is expected of a `Proposer`: it may return rows twice, too few, -1, or numbers that no row
has. What remains is measured in float64, as every index measures, so each distance is that of a row
of the class, and the j-th smallest is an upper bound of the distance to the j-th nearest. A row
must count once: two of it would make up a quorum that is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.core.evidence import NO_EXEMPLAR, Evidence, empty_evidence, from_ranked
from iknow.errors import InputError
from iknow.search.cpu.block_batch import measure_pairs
from iknow.search.stored import StoredRows
from iknow.search.threads import share

QUERIES_AT_ONCE = 1024


class Proposer(Protocol):
    """Proposes rows of one class."""

    def propose(self, queries: Floats32, n: int) -> Any:
        """Positions of about `n` near rows for `queries`, (n_queries, n_features): a whole-number
        array of shape (n_queries, any); -1 where there is none.
        """


MakeProposer = Callable[[Floats32], Proposer]
"""Makes a proposer of the rows of one class, of shape (n_rows, n_features)."""


class Proposals:
    """The proposers of all classes of stored rows."""

    def __init__(self, stored: StoredRows, make: MakeProposer) -> None:
        self._stored = stored
        starts = stored.class_starts.tolist()
        self._classes = [slice(*ends) for ends in pairwise(starts)]
        found: dict[int, Proposer] = {}

        def build(code: int) -> None:
            found[code] = make(stored.points[self._classes[code]])

        share(build, [code for code, rows in enumerate(self._classes) if rows.stop > rows.start])
        self._proposers = found

    def rank_own(self, queries: Floats32, belief: Ints, n: int) -> Floats:
        """Upper bounds of the distances to the n nearest of the believed class, (n_queries, n).

        inf where too few rows are proposed, or nothing is believed.
        """
        ranked = np.full((len(queries), n), np.inf)

        def work(task: tuple[int, Ints]) -> None:
            code, asked = task
            ranked[asked], _ = self._rank(code, queries[asked], n)

        tasks = [
            (code, part)
            for code in self._proposers
            for part in _cut(np.flatnonzero(belief == code))
        ]
        share(work, tasks)
        return ranked

    def gather(self, queries: Floats32, k: int, per_class: int) -> Evidence:
        """Evidence as far as it is proposed; its distances are upper bounds."""
        stored, n = self._stored, max(per_class, k)
        nothing = empty_evidence(len(queries), stored.n_classes, k, per_class)
        distances, exemplars = nothing.ranked_distances(), nothing.ranked_exemplars()
        neighbors = nothing.neighbor_distances

        def work(part: Ints) -> None:
            near = [neighbors[part]]
            for code in self._proposers:
                found, rows = self._rank(code, queries[part], n)
                distances[part, code] = found[:, :per_class]
                exemplars[part, code] = rows[:, :per_class]
                near.append(found[:, :k])
            neighbors[part] = np.sort(np.concatenate(near, axis=1), axis=1)[:, :k]

        share(work, _cut(np.arange(len(queries))))
        return from_ranked(distances, neighbors, exemplars)

    def _rank(self, code: int, queries: Floats32, n: int) -> tuple[Floats, Ints]:
        """The n nearest proposed rows of a class: distances and row numbers, inf and -1."""
        rows, stored = self._classes[code], self._stored
        size = rows.stop - rows.start
        proposed = _check(self._proposers[code].propose(queries, min(n, size)), len(queries))
        proposed = np.sort(proposed, axis=1)
        sound = (proposed >= 0) & (proposed < size)
        sound[:, 1:] &= proposed[:, 1:] != proposed[:, :-1]
        query, place = np.nonzero(sound)
        measured = np.full(proposed.shape, np.inf)
        chosen = proposed[query, place] + rows.start
        measured[query, place] = measure_pairs(stored.points, queries, query, chosen)
        # Stable, and rows ascend: of equals the lowest comes first.
        order = np.argsort(measured, axis=1, kind="stable")[:, :n]
        ranked = np.full((len(queries), n), np.inf)
        numbers = np.full(ranked.shape, NO_EXEMPLAR, dtype=np.int64)
        width = order.shape[1]
        ranked[:, :width] = np.take_along_axis(measured, order, axis=1)
        places = rows.start + np.clip(np.take_along_axis(proposed, order, axis=1), 0, size - 1)
        numbers[:, :width] = stored.rows[places]
        numbers[np.isinf(ranked)] = NO_EXEMPLAR
        return ranked, numbers


def _check(proposed: Any, n_queries: int) -> Ints:
    """Proposals as an array of shape (n_queries, any)."""
    rows = np.asarray(proposed)
    if rows.ndim != 2 or len(rows) != n_queries or rows.dtype.kind not in "iu":
        raise InputError(
            f"a proposer must return whole numbers of shape ({n_queries}, any); got {rows.dtype} "
            f"of shape {rows.shape}"
        )
    return rows.astype(np.int64, copy=False)


def _cut(queries: Ints) -> Sequence[Ints]:
    """Parts of queries to work on at once."""
    return [
        queries[start : start + QUERIES_AT_ONCE]
        for start in range(0, len(queries), QUERIES_AT_ONCE)
    ]
