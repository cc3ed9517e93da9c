"""Search among rows that are mostly zeros, such as counts of words.

A product of sparse rows costs as much as they have numbers in common, not as many as they have
columns. So we find all squared distances from it, in float64,

    s(x, q) = |x|² + |q|² - 2 x·q,

which is off by at most e = 4 (d + 8) u (|x|² + |q|²), u = 2^-53, for any order of the sums: 2 d u
for the three sums together, 2 (d + 3) u for what measuring the distance itself may be off, and the
rest for single steps. Let t be the m-th smallest s + e in a class. None of its m nearest rows has
an s - e above t. We measure the rows at or below it, in float64 as all searches do: with ties, by
the lowest row. So the result is exact, to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from iknow.core.arrays import Bools, Floats, Floats32
from iknow.core.evidence import Evidence
from iknow.search.kernels.numpy import lowest_few, measure_pairs, positions
from iknow.search.stored import StoredRows
from iknow.search.threads import for_each, n_cores

FEWEST_FEATURES = 256  # with fewer, products of dense rows are faster
LEAST_ZEROS = 0.95  # the share of zeros from which on products of sparse rows are faster
ROWS_LOOKED_AT = 256
ROWS_AT_ONCE = 512  # to make sparse
BYTES_PER_TASK = 32 << 20  # for a distance to each row, of all queries of a task
UNIT_ROUNDOFF = 2.0**-53


def is_mostly_zero(points: Floats32) -> bool:
    """Whether products of sparse rows are worthwhile, judged by some of the rows."""
    if points.shape[1] < FEWEST_FEATURES or len(points) == 0:
        return False
    some = points[:: -(-len(points) // ROWS_LOOKED_AT)]
    return bool(np.count_nonzero(some) <= (1 - LEAST_ZEROS) * some.size)


class SparseSearch:
    """Stored rows that are mostly zeros, searched by sparse products."""

    def __init__(self, stored: StoredRows) -> None:
        self.points, self.labels, self.rows = stored.points, stored.labels, stored.rows
        self.class_starts, self.n_classes = stored.class_starts, stored.n_classes
        starts = range(0, stored.n_rows, ROWS_AT_ONCE)
        parts = [self.points[start : start + ROWS_AT_ONCE] for start in starts]
        rows: Any = vstack([csr_array(part) for part in parts], format="csr").astype(np.float64)
        self.squares = np.concatenate([_squares(part) for part in parts])
        self.columns: Any = rows.T.tocsr()  # scipy would convert it for each product
        self.error = 8 * (stored.n_features + 8) * UNIT_ROUNDOFF  # twice the bound above

    def fill(self, queries: Floats32, evidence: Evidence) -> None:
        """Write the evidence about queries of shape (n_queries, n_features) into `evidence`."""
        affordable = BYTES_PER_TASK // (8 * len(self.points))
        size = max(1, min(affordable, -(-len(queries) // n_cores())))
        # The slices of `evidence` are views: each task fills in its own queries.
        for_each(
            lambda part: self._fill(queries[part], evidence[part]),
            [slice(start, start + size) for start in range(0, len(queries), size)],
        )

    def _fill(self, queries: Floats32, evidence: Evidence) -> None:
        m, k = evidence.per_class, evidence.n_neighbors
        query, row = positions(self._find_candidates(queries, m, k))
        distances = np.full((len(queries), len(self.points)), np.inf)
        distances[query, row] = measure_pairs(self.points, queries, query, row)
        for code in range(self.n_classes):
            first, last = self.class_starts[code], self.class_starts[code + 1]
            found = min(m, last - first)
            if not found:
                continue
            nearest, place = lowest_few(distances[:, first:last], found)
            numbers = self.rows[first + place]
            evidence.class_distances[:, code] = nearest[:, 0]
            evidence.exemplars[:, code] = numbers[:, 0]
            evidence.further_distances[:, code, : found - 1] = nearest[:, 1:]
            evidence.further_exemplars[:, code, : found - 1] = numbers[:, 1:]
        if k:
            evidence.neighbor_distances[:] = np.sort(np.partition(distances, k - 1)[:, :k])

    def _find_candidates(self, queries: Floats32, m: int, k: int) -> Bools:
        """Rows that may be among the m nearest of their class, or the k nearest of all.

        A mask of shape (n_queries, n_rows).
        """
        given: Any = csr_array(queries).astype(np.float64)
        sizes: Floats = _squares(queries)[:, None] + self.squares
        about = sizes - 2 * (given @ self.columns).toarray()
        sizes *= self.error
        highest = about + sizes
        lowest = np.subtract(about, sizes, out=about)
        within = np.zeros(lowest.shape, dtype=np.bool_)
        for code in range(self.n_classes):
            rows = slice(self.class_starts[code], self.class_starts[code + 1])
            if (found := min(m, rows.stop - rows.start)) > 0:
                limit = np.partition(highest[:, rows], found - 1)[:, found - 1]
                np.less_equal(lowest[:, rows], limit[:, None], out=within[:, rows])
        if k:
            within |= lowest <= np.partition(highest, k - 1)[:, k - 1 : k]
        return within


def _squares(rows: Floats32) -> Floats:
    """The squared ℓ2 lengths of rows, in float64."""
    squares: Floats = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    return squares
