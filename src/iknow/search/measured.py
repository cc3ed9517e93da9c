"""Indexes that measure every distance, or nearly: ℓp norms, differing features, and sparse rows.

Only the Euclidean norm of dense rows turns into dense matrix products. Elsewhere we make tables of
distances in float64, queries by rows, and keep the best. Rows that are mostly zeros have products
of their own, and we measure only what these do not rule out. Counts of differing features are
integers, so there is nothing to round and ties are exact.

Rows ascend within a class, so on ties the first ones have the lowest numbers.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack
from scipy.spatial.distance import cdist

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.core.decision import Scope
from iknow.core.evidence import Evidence, empty_evidence, merge_evidence, stack_evidence
from iknow.core.text import as_real
from iknow.locking import cached_property
from iknow.pages import slices, slices_that_fit
from iknow.search.engine import positions
from iknow.search.index import RowIndex
from iknow.search.kernels.numba import is_compiled
from iknow.search.kernels.numpy import lowest_few, measure_pairs
from iknow.search.threads import n_cores, share

QUERIES_PER_TILE = 256
ROWS_PER_TILE = 4096
BYTES_PER_TILE = 32 << 20
LARGEST_PLAIN_POWER = 6.0  # up to this p, powers of differences of float32 numbers fit into float64


class TileIndex(RowIndex):
    """Activations of one layer with their class codes, in a distance that a subclass measures."""

    p: float

    @property
    def _tile(self) -> tuple[int, int]:
        """The most queries and rows to measure at once."""
        return QUERIES_PER_TILE, min(ROWS_PER_TILE, BYTES_PER_TILE // (8 * self.n_features))

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        """Everything about `points`, (n, n_features), that `scope` may need."""
        parts = slices(len(points), min(self._tile[0], -(-len(points) // n_cores())))
        find = partial(self._find, k=scope.any, m=scope.per_class)
        return stack_evidence(share(find, [points[part] for part in parts]))

    def _find(self, queries: Floats32, k: int, m: int) -> Evidence:
        """The evidence about some queries, tile by tile."""
        found = []
        for tile in slices(self.n_rows, self._tile[1]):
            distances = measure(queries, self.points[tile], self.p)
            starts = self.class_starts.clip(tile.start, tile.stop) - tile.start
            found.append(rank_table(distances, starts, self.rows[tile], k, m))
            found = found if len(found) == 1 else [merge_evidence(found)]
        return found[0]


class MinkowskiIndex(TileIndex):
    """Activations of one layer with their class codes, searched in the ℓp norm.

    Args:
        *arrays: Activations, labels, n_classes and rows, as for any `RowIndex`.
        **named: Those of them that are given by name.
        p: The order of the norm, in [1, inf].

    Examples:
        >>> MinkowskiIndex(rows, labels, 2, p=1.0).gather([[4.0]]).exemplars
        array([[1, 2]])
    """

    def __init__(self, *arrays: Any, p: float = 1.0, **named: Any) -> None:
        super().__init__(*arrays, **named)
        self.p = as_real(p, "p", "be a number from 1 to inf", lambda number: number >= 1)


def measure(queries: Floats32, points: Floats32, p: float) -> Floats:
    """ℓp distances in float64 between queries (n, d) and points (m, d), of shape (n, m).

    With p = 0, in how many features they differ.
    """
    if p == 0:
        shares: Floats = cdist(queries, points, "hamming")
        shares *= queries.shape[1]
        return np.rint(shares, out=shares)
    if p <= LARGEST_PLAIN_POWER or math.isinf(p):
        return cdist(queries, points, "minkowski", p=p)
    distances = np.empty((len(queries), len(points)))
    for query, found in zip(queries, distances, strict=True):
        # Each difference is scaled by its largest entry, so that no power leaves the range.
        sizes = np.abs(np.subtract(points, query, dtype=np.float64))
        largest = sizes.max(axis=1, initial=0.0)
        scaled = sizes / np.where(largest > 0, largest, 1.0)[:, None]
        np.multiply(largest, np.power(scaled, p).sum(axis=1) ** (1 / p), out=found)
    return distances


class HammingIndex(TileIndex):
    """Activations of one layer with their class codes, searched by the number of differences.

    It takes `activations`, `labels`, `n_classes` and `rows` as any `RowIndex` does. With the extra
    `fast` counting is faster, in one of two ways, to the same counts. Comparing all features of all
    rows takes n · d steps per query, but vector units take several at once. Looking up, for each
    feature, the rows that share the query's value takes a step for each of them: n · d · f, where f
    is the probability that two rows share a value. Leaves of a random forest hold a few rows each,
    and f is nearly 0; those of boosted trees hold many.

    Examples:
        >>> index = HammingIndex([[1, 5, 3], [2, 6, 9]], [0, 1], n_classes=2)
        >>> index.gather([[1, 5, 9]]).class_distances
        array([[1., 2.]])
    """

    p = 0.0
    COPY_BYTES = 16  # per feature, to prepare a row for compiled search
    BYTES_OF_COUNTS = 8 << 20  # of one task
    LOOK_UP_BELOW = 0.12  # the f from which comparing all is faster, as measured on AVX2

    @property
    def _tile(self) -> tuple[int, int]:
        if self._prepared is None:
            return super()._tile
        return min(QUERIES_PER_TILE, self.BYTES_OF_COUNTS // (4 * self.n_rows)), self.n_rows

    def _find(self, queries: Floats32, k: int, m: int) -> Evidence:
        if self._prepared is None:
            return super()._find(queries, k, m)
        from iknow.search.kernels.numba import mismatches as compiled

        compare = len(self._prepared) == 1
        count: Any = compiled.count_mismatches if compare else compiled.look_up_mismatches
        counts = np.empty((len(queries), self.n_rows), dtype=np.int32)
        # A copy: numba compiles separately for arrays that are read-only.
        count(queries.copy(), *self._prepared, counts)
        found = empty_evidence(len(queries), self.n_classes, k, m)
        lists = found.distances, found.rows, found.neighbor_distances
        compiled.rank_counts(counts, self.class_starts, *lists)
        np.copyto(found.rows, self.rows[found.rows], where=found.rows >= 0)  # places until now
        return found

    @cached_property
    def _prepared(self) -> tuple[Any, ...] | None:
        """The columns of the rows, or the lists of `look_up_mismatches` where that is faster.

        None if nothing is compiled, or if this would not fit.
        """
        n, d = self.n_rows, self.n_features
        if not is_compiled() or len(slices_that_fit(n, self.COPY_BYTES * d)) > 1:
            return None
        columns: Floats32 = np.array(self.points.T, order="C")
        found = [np.unique(column, return_counts=True) for column in columns]
        shared = sum(float(np.square(sizes / n).sum()) for _, sizes in found)
        if shared > self.LOOK_UP_BELOW * d:
            return (columns,)
        members = np.empty((d, n), dtype=np.int32)
        share(lambda j: np.copyto(members[j], columns[j].argsort(kind="stable")), range(d))
        values = np.concatenate([values for values, _ in found])
        firsts = np.cumsum([0, *(len(values) for values, _ in found)])
        starts = np.cumsum(np.concatenate([[0], *(sizes for _, sizes in found)]))
        return values, firsts.astype(np.int64), starts.astype(np.int64), members.reshape(-1)


def rank_table(distances: Floats, starts: Ints, rows: Ints, k: int, m: int) -> Evidence:
    """The evidence of a table of distances, queries by rows.

    starts: the first row of each class and, last, the number of rows. rows: their numbers.
    """
    found = empty_evidence(len(distances), len(starts) - 1, k, m)
    for code, (first, last) in enumerate(pairwise(starts.tolist())):
        if (n := min(m, last - first)) > 0:
            nearest, column = lowest_few(distances[:, first:last], n)
            found.distances[:, code, :n] = nearest
            numbers = rows[first + column]
            np.copyto(found.rows[:, code, :n], numbers, where=np.isfinite(nearest))
    if (n := min(k, len(rows))) > 0:
        found.neighbor_distances[:, :n] = np.sort(np.partition(distances, n - 1)[:, :n])
    return found


class SparseRows:
    """Rows that are mostly zeros, such as counts of words, bounded by sparse products.

    A product of sparse rows costs as much as they have numbers in common, not as many as they have
    columns. So we find all squared distances from it, in float64,

        s(x, q) = |x|² + |q|² - 2 x·q,

    which is off by at most e = 4 (d + 8) u (|x|² + |q|²), u = 2^-53, for any order of the sums:
    2 d u for the three sums together, 2 (d + 3) u for what measuring the distance itself may be
    off, and the rest for single steps. Let t be the m-th smallest s + e in a class. None of its m
    nearest rows has an s - e above t, and likewise for the k nearest of all. We measure the rows
    at or below it.
    """

    FEWEST_FEATURES = 256  # with fewer, products of dense rows are faster
    LEAST_ZEROS = 0.95  # the share of zeros from which on products of sparse rows are faster
    ROWS_LOOKED_AT = 256
    ROWS_AT_ONCE = 512  # to make sparse

    def __init__(self, stored: RowIndex) -> None:
        self.points, self.rows, self.starts = stored.points, stored.rows, stored.class_starts
        parts = [self.points[part] for part in slices(stored.n_rows, self.ROWS_AT_ONCE)]
        rows: Any = vstack([csr_array(part) for part in parts], format="csr").astype(np.float64)
        self._squares = np.concatenate([_square(part) for part in parts])
        self._columns: Any = rows.T.tocsr()  # scipy would convert it for each product
        self._error = 8 * (stored.n_features + 8) * 2.0**-53  # twice the bound above

    @classmethod
    def pay_for(cls, points: Floats32) -> bool:
        """Whether products of sparse rows are worthwhile, judged by some of the rows."""
        if points.shape[1] < cls.FEWEST_FEATURES or len(points) == 0:
            return False
        some = points[:: -(-len(points) // cls.ROWS_LOOKED_AT)]
        return bool(np.count_nonzero(some) <= (1 - cls.LEAST_ZEROS) * some.size)

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        """All evidence about points of shape (n, n_features)."""
        find = partial(self._find, k=scope.any, m=scope.per_class)
        size = min(BYTES_PER_TILE // (8 * len(self.rows)), -(-len(points) // n_cores()))
        return stack_evidence(share(find, [points[part] for part in slices(len(points), size)]))

    def _find(self, queries: Floats32, k: int, m: int) -> Evidence:
        """The evidence about some queries."""
        products: Any = csr_array(queries).astype(np.float64) @ self._columns
        errors = _square(queries)[:, None] + self._squares
        lowest = errors - 2 * products.toarray()
        errors *= self._error
        highest = lowest + errors
        lowest -= errors
        near = np.zeros(lowest.shape, dtype=np.bool_)
        groups = [(m, *ends) for ends in pairwise(self.starts.tolist())]
        for most, first, last in [*groups, (k, 0, len(self.rows))]:
            if (n := min(most, last - first)) > 0:
                group = highest[:, first:last]
                limits = (
                    np.partition(group, n - 1)[:, n - 1 : n] if n > 1 else group.min(1)[:, None]
                )
                near[:, first:last] |= lowest[:, first:last] <= limits
        query, row = positions(np, near)
        distances = np.full(near.shape, np.inf)
        distances[query, row] = measure_pairs(self.points, queries, query, row)
        return rank_table(distances, self.starts, self.rows, k, m)


def _square(rows: Floats32) -> Floats:
    """The squared ℓ2 lengths of rows, in float64."""
    squares: Floats = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    return squares
