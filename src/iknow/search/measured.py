"""Indexes that measure every distance, or nearly: ℓp norms, differing features, and sparse rows.

Only the Euclidean norm of dense rows turns into dense matrix products. In other ℓp norms we measure
all distances in float64, tile by tile, and keep the best; rows that are mostly zeros have products
of their own. Counts of differing features are integers, so there is nothing to round and ties are
exact.

Rows ascend within a class, so on ties the first ones have the lowest numbers.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack
from scipy.spatial.distance import cdist

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.core.decision import Scope
from iknow.core.evidence import Evidence, empty_evidence
from iknow.core.text import as_real
from iknow.locking import cached_property
from iknow.pages import slices_that_fit
from iknow.search.index import RowIndex
from iknow.search.kernels.numba import is_compiled
from iknow.search.kernels.numpy import lowest_few, measure_pairs
from iknow.search.threads import for_each, n_cores, share

QUERIES_PER_TILE = 256
ROWS_PER_TILE = 4096
BYTES_PER_TILE = 32 << 20
LARGEST_PLAIN_POWER = 6.0  # up to this p, powers of differences of float32 numbers fit into float64


class TileIndex(RowIndex):
    """Activations of one layer with their class codes, in a distance that a subclass measures."""

    @abstractmethod
    def _measure(self, queries: Floats32, tile: slice) -> Floats:
        """Distances in float64 from queries to the rows of a tile, of shape (n, rows)."""

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        """Everything about `points`, (n, n_features), that `scope` may need."""
        evidence = empty_evidence(len(points), self.n_classes, scope.any, scope.per_class)
        # The slices of `evidence` are views: each task fills in its own queries.
        for_each(
            lambda part: self._fill(evidence[part], points[part]),
            _slices(len(points), min(QUERIES_PER_TILE, -(-len(points) // n_cores()))),
        )
        return evidence

    def _fill(self, evidence: Evidence, queries: Floats32) -> None:
        """Write the evidence about the queries into `evidence`, tile by tile."""
        k, affordable = evidence.n_neighbors, BYTES_PER_TILE // (8 * max(1, self.n_features))
        for tile in _slices(self.n_rows, min(ROWS_PER_TILE, affordable)):
            distances = self._measure(queries, tile)
            if k:
                known = np.concatenate([evidence.neighbor_distances, distances], axis=1)
                known.partition(k - 1, axis=1)
                evidence.neighbor_distances[:] = known[:, :k]
            codes, starts = np.unique(self.labels[tile], return_index=True)
            ends = np.append(starts[1:], distances.shape[1])
            for code, start, end in zip(codes, starts, ends, strict=True):
                numbers = self.rows[tile][start:end]
                _rank_in(evidence, int(code), distances[:, start:end], numbers)
        evidence.neighbor_distances.sort(axis=1)


class MinkowskiIndex(TileIndex):
    """Activations of one layer with their class codes, searched in the ℓp norm.

    Args:
        activations: Of shape (n_rows, n_features).
        labels: Class codes of shape (n_rows,).
        n_classes: Number of classes.
        rows: Numbers that identify the rows, of shape (n_rows,). Default: their positions.
        p: The order of the norm, in [1, inf].

    Examples:
        >>> MinkowskiIndex(rows, labels, 2, p=1.0).gather([[4.0]]).exemplars
        array([[1, 2]])
    """

    def __init__(
        self,
        activations: Any,
        labels: Any,
        n_classes: int,
        rows: Ints | None = None,
        p: float = 1.0,
    ) -> None:
        super().__init__(activations, labels, n_classes, rows)
        self.p = as_real(p, "p", "be a number from 1 to inf", lambda number: number >= 1)

    def _measure(self, queries: Floats32, tile: slice) -> Floats:
        return measure(queries.astype(np.float64), self.points[tile].astype(np.float64), self.p)


def measure(queries: Floats, points: Floats, p: float) -> Floats:
    """ℓp distances in float64 between queries (n, d) and points (m, d), of shape (n, m)."""
    if p == 1:
        return cdist(queries, points, "cityblock")
    if math.isinf(p):
        return cdist(queries, points, "chebyshev")
    if p <= LARGEST_PLAIN_POWER:
        return cdist(queries, points, "minkowski", p=p)
    return np.stack([_scaled_norms(points - query, p) for query in queries])


def _scaled_norms(differences: Floats, p: float) -> Floats:
    """ℓp norms of rows, each scaled by its largest entry so that no power leaves the range."""
    sizes = np.abs(differences)
    largest = sizes.max(axis=1, initial=0.0)
    scaled = sizes / np.where(largest > 0, largest, 1.0)[:, None]
    norms: Floats = largest * np.power(scaled, p).sum(axis=1) ** (1 / p)
    return norms


class HammingIndex(TileIndex):
    """Activations of one layer with their class codes, searched by the number of differences.

    It takes `activations`, `labels`, `n_classes` and `rows` as any `RowIndex` does. With the extra
    `fast` search is compiled; without it numpy compares one feature at a time, and finds the same.

    Examples:
        >>> index = HammingIndex([[1, 5, 3], [2, 6, 9]], [0, 1], n_classes=2)
        >>> index.gather([[1, 5, 9]]).class_distances
        array([[1., 2.]])
    """

    COPY_BYTES = 16  # per feature, to prepare a row for compiled search

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        """Everything about `points`, (n, n_features), that `scope` may need."""
        if self._counts is None:
            return super().search(points, scope)
        evidence = empty_evidence(len(points), self.n_classes, scope.any, scope.per_class)
        self._counts.fill(points, evidence)
        return evidence

    def _measure(self, queries: Floats32, tile: slice) -> Floats:
        counts = np.zeros((len(queries), tile.stop - tile.start))
        for values, column in zip(queries.T, self.points[tile].T, strict=True):
            counts += values[:, None] != column
        return counts

    @cached_property
    def _counts(self) -> CompiledCounts | None:
        """The compiled search; None if it is not compiled, or its copies would not fit."""
        whole = len(slices_that_fit(self.n_rows, self.COPY_BYTES * self.n_features)) == 1
        return CompiledCounts(self) if whole and is_compiled() else None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only what cannot be derived."""
        kept = ("points", "labels", "rows", "n_rows", "n_features", "n_classes")
        return {name: vars(self)[name] for name in kept}


class CompiledCounts:
    """Rows prepared for counting features that differ, in one of two ways, to the same counts.

    Comparing all features of all rows takes n · d steps per query, but vector units take several at
    once. Looking up, for each feature, the rows that share the query's value takes a step for each
    of them: n · d · f, where f is the probability that two rows share a value. Leaves of a random
    forest hold a few rows each, and f is nearly 0; those of boosted trees hold many.
    """

    BYTES_OF_COUNTS = 8 << 20  # of one batch of queries
    MOST_QUERIES = 256  # in a batch
    LOOK_UP_BELOW = 0.12  # the f from which comparing all is faster, as measured on AVX2

    def __init__(self, index: RowIndex) -> None:
        self.class_starts, self.rows = index.class_starts, np.array(index.rows)
        self.n_rows, self.n_features = index.n_rows, index.n_features
        self.columns: Floats32 = np.array(index.points.T, order="C")
        self.lists = self._make_lists()

    def fill(self, queries: Floats32, evidence: Evidence) -> None:
        """Write the evidence about queries of shape (n_queries, n_features) into `evidence`."""
        from iknow.search.kernels.numba.mismatches import rank_counts

        affordable = self.BYTES_OF_COUNTS // (4 * max(1, self.n_rows))
        size = max(1, min(self.MOST_QUERIES, affordable, -(-len(queries) // n_cores())))

        def work(part: slice) -> None:
            own = evidence[part]  # views
            # A copy: numba compiles separately for arrays that are read-only.
            counts = self._count(queries[part].copy())
            shape = len(own), own.n_classes, own.per_class
            distances, places = np.full(shape, np.inf), np.full(shape, -1, dtype=np.int64)
            rank_counts(counts, self.class_starts, distances, places, own.neighbor_distances)
            put_lists(own, distances, np.where(places >= 0, self.rows[places], -1))

        share(work, list(_slices(len(queries), size)))

    def _count(self, queries: Floats32) -> NDArray[np.int32]:
        from iknow.search.kernels.numba.mismatches import count_mismatches, look_up_mismatches

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
        if shared > self.LOOK_UP_BELOW * self.n_features:
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


class SparseRows:
    """Rows that are mostly zeros, such as counts of words, searched by sparse products.

    A product of sparse rows costs as much as they have numbers in common, not as many as they have
    columns. So we find all squared distances from it, in float64,

        s(x, q) = |x|² + |q|² - 2 x·q,

    which is off by at most e = 4 (d + 8) u (|x|² + |q|²), u = 2^-53, for any order of the sums:
    2 d u for the three sums together, 2 (d + 3) u for what measuring the distance itself may be
    off, and the rest for single steps. Let t be the m-th smallest s + e in a class. None of its m
    nearest rows has an s - e above t. We measure the rows at or below it, in float64 as all
    searches do: with ties, by the lowest row. So the result is exact, to the last bit.
    """

    FEWEST_FEATURES = 256  # with fewer, products of dense rows are faster
    LEAST_ZEROS = 0.95  # the share of zeros from which on products of sparse rows are faster
    ROWS_LOOKED_AT = 256
    ROWS_AT_ONCE = 512  # to make sparse
    BYTES_PER_TASK = 32 << 20  # for a distance to each row, of all queries of a task

    def __init__(self, index: RowIndex) -> None:
        self.points, self.rows, self.class_starts = index.points, index.rows, index.class_starts
        parts = [self.points[part] for part in _slices(index.n_rows, self.ROWS_AT_ONCE)]
        rows: Any = vstack([csr_array(part) for part in parts], format="csr").astype(np.float64)
        self.squares = np.concatenate([_squares(part) for part in parts])
        self.columns: Any = rows.T.tocsr()  # scipy would convert it for each product
        self.error = 8 * (index.n_features + 8) * 2.0**-53  # twice the bound above

    @classmethod
    def pay_for(cls, points: Floats32) -> bool:
        """Whether products of sparse rows are worthwhile, judged by some of the rows."""
        if points.shape[1] < cls.FEWEST_FEATURES or len(points) == 0:
            return False
        some = points[:: -(-len(points) // cls.ROWS_LOOKED_AT)]
        return bool(np.count_nonzero(some) <= (1 - cls.LEAST_ZEROS) * some.size)

    def fill(self, queries: Floats32, evidence: Evidence) -> None:
        """Write the evidence about queries of shape (n_queries, n_features) into `evidence`."""
        affordable = self.BYTES_PER_TASK // (8 * len(self.points))
        size = max(1, min(affordable, -(-len(queries) // n_cores())))
        # The slices of `evidence` are views: each task fills in its own queries.
        for_each(
            lambda part: self._fill(queries[part], evidence[part]), _slices(len(queries), size)
        )

    def _fill(self, queries: Floats32, evidence: Evidence) -> None:
        k = evidence.n_neighbors
        query, row = np.nonzero(self._find_candidates(queries, evidence.per_class, k))
        distances = np.full((len(queries), len(self.points)), np.inf)
        distances[query, row] = measure_pairs(self.points, queries, query, row)
        for code, (first, last) in enumerate(pairwise(self.class_starts.tolist())):
            if first < last:
                _rank_in(evidence, code, distances[:, first:last], self.rows[first:last])
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
        for first, last in pairwise(self.class_starts.tolist()):
            if (found := min(m, last - first)) > 0:
                limit = np.partition(highest[:, first:last], found - 1)[:, found - 1]
                within[:, first:last] = lowest[:, first:last] <= limit[:, None]
        if k:
            within |= lowest <= np.partition(highest, k - 1)[:, k - 1 : k]
        return within


def put_lists(evidence: Evidence, distances: Floats, numbers: Ints) -> None:
    """Write the nearest of each class, both (n, n_classes, per_class), into `evidence`."""
    evidence.class_distances[:], evidence.exemplars[:] = distances[:, :, 0], numbers[:, :, 0]
    evidence.further_distances[:] = distances[:, :, 1:]
    evidence.further_exemplars[:] = numbers[:, :, 1:]


def _rank_in(evidence: Evidence, code: int, distances: Floats, numbers: Ints) -> None:
    """Rank rows of one class among the nearest so far, which come first on ties.

    distances: of shape (n_queries, n_rows). numbers: of the rows, ascending, of shape (n_rows,).
    """
    m = evidence.per_class
    if m == 1:  # most often, and faster
        place = distances.argmin(axis=1)
        nearest = distances[np.arange(len(place)), place]
        better = nearest < evidence.class_distances[:, code]
        evidence.class_distances[better, code] = nearest[better]
        evidence.exemplars[better, code] = numbers[place[better]]
        return
    known = evidence.class_distances[:, code, None], evidence.further_distances[:, code]
    rows = evidence.exemplars[:, code, None], evidence.further_exemplars[:, code]
    lowest, column = lowest_few(np.concatenate([*known, distances], axis=1), m)
    before = np.take_along_axis(np.concatenate(rows, axis=1), np.minimum(column, m - 1), axis=1)
    ranked = np.where(column < m, before, numbers[np.maximum(column - m, 0)])
    ranked[np.isinf(lowest)] = -1
    evidence.class_distances[:, code], evidence.exemplars[:, code] = lowest[:, 0], ranked[:, 0]
    evidence.further_distances[:, code] = lowest[:, 1:]
    evidence.further_exemplars[:, code] = ranked[:, 1:]


def _squares(rows: Floats32) -> Floats:
    """The squared ℓ2 lengths of rows, in float64."""
    squares: Floats = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    return squares


def _slices(n: int, size: int) -> Iterator[slice]:
    size = max(1, size)
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))
