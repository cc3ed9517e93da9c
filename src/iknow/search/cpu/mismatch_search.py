"""MismatchSearch: compiled search by the number of features that differ.

Two ways find the same counts. Comparing all features of all rows takes n · d steps per query, but
vector units take several at once. Looking up, for each feature, the rows that share the query's
value takes a step for each of them: n · d · f, where f is the probability that two rows share a
value. Leaves of a random forest hold a few rows each, and f is nearly 0; those of boosted trees
hold many.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats32, Ints
from iknow.core.evidence import NO_EXEMPLAR, Evidence
from iknow.search.cpu.numba.mismatches import count_mismatches, look_up_mismatches, rank_counts
from iknow.search.stored import StoredRows
from iknow.search.threads import n_cores, share

BYTES_OF_COUNTS = 8 << 20  # of one batch of queries
MOST_QUERIES = 256  # in a batch
LOOK_UP_BELOW = 0.12  # the f from which comparing all is faster, as measured on AVX2


class MismatchSearch:
    """Stored rows prepared for counting."""

    def __init__(self, stored: StoredRows) -> None:
        self.class_starts, self.rows = stored.class_starts, np.array(stored.rows)
        self.n_rows, self.n_features = stored.n_rows, stored.n_features
        self.columns: Floats32 = np.array(stored.points.T, order="C")
        self.lists = self._make_lists()

    def fill(self, queries: Floats32, evidence: Evidence) -> None:
        """Write the evidence about queries of shape (n_queries, n_features) into `evidence`."""
        affordable = BYTES_OF_COUNTS // (4 * max(1, self.n_rows))
        size = max(1, min(MOST_QUERIES, affordable, -(-len(queries) // n_cores())))

        def work(start: int) -> None:
            own = evidence[start : start + size]  # views
            # A copy: numba compiles separately for arrays that are read-only.
            counts = self._count(queries[start : start + size].copy())
            shape = len(own), own.n_classes, own.per_class
            distances, places = np.full(shape, np.inf), np.full(shape, NO_EXEMPLAR, dtype=np.int64)
            rank_counts(counts, self.class_starts, distances, places, own.neighbor_distances)
            numbers = np.where(places >= 0, self.rows[places], NO_EXEMPLAR)
            own.class_distances[:], own.exemplars[:] = distances[:, :, 0], numbers[:, :, 0]
            own.further_distances[:], own.further_exemplars[:] = (
                distances[:, :, 1:],
                numbers[:, :, 1:],
            )

        share(work, range(0, len(queries), size))

    def _count(self, queries: Floats32) -> NDArray[np.int32]:
        counts = np.empty((len(queries), self.n_rows), dtype=np.int32)
        if self.lists is None:
            count_mismatches(queries, self.columns, counts)
        else:
            look_up_mismatches(queries, *self.lists, counts)
        return counts

    def _make_lists(self) -> tuple[Floats32, Ints, Ints, NDArray[np.int32]] | None:
        """The lists of `look_up_mismatches`, or None where comparing all is faster."""
        found: list[tuple[Floats32, Ints]] = [
            np.unique(column, return_counts=True) for column in self.columns
        ]
        shared = sum(float(np.square(sizes / self.n_rows).sum()) for _, sizes in found)
        if shared > LOOK_UP_BELOW * self.n_features:
            return None
        members = np.empty((self.n_features, self.n_rows), dtype=np.int32)
        share(
            lambda j: np.copyto(members[j], self.columns[j].argsort(kind="stable")),
            range(self.n_features),
        )
        values = np.concatenate([values for values, _ in found])
        firsts = np.cumsum([0, *(len(values) for values, _ in found)])
        starts = np.cumsum(np.concatenate([[0], *(sizes for _, sizes in found)]))
        return values, firsts.astype(np.int64), starts.astype(np.int64), members.reshape(-1)
