"""Lower bounds on all distances by one matrix product in float32.

Squared distances expand to |x|² - 2 x·q + |q|², a matrix product, but in float32 the expansion
cancels: near the query every digit can be wrong. So we use it only as a proven lower bound that
tells where exact arithmetic is worthwhile.

Let x̂ and q̂ be rows and query after a shift by the rows' mean and a scaling by a power of two,
both rounded to float32 (unit roundoff u = 2^-24), N = |x̂| + |q̂|, and

    τ(x, q) = (s² |x - q|² - |q̂|²) / 2              ranks the rows for a query
    t(x, q) = fl( h·1 + Σ_j (-x̂_j) q̂_j ),  h = fl(|x̂|²/2)      its value by one product

Rounding the inputs moves |x̂ - q̂| by at most u N and hence |x̂ - q̂|²/2 by at most u N² (1 + u).
Rounding h costs u |x̂|²/2. The product of d + 1 terms, added in any order and with or without fused
steps, costs at most γ (|x̂||q̂| + |x̂|²/2 (1 + u)) with γ = (d+1)u / (1 - (d+1)u), and
|x̂||q̂| + |x̂|²/2 <= N²/2. Underflow adds less than (d + 2) 2^-120 (1 + |q̂|) as |x̂_j| <= 1. Hence

    |t - τ| <= c N² + underflow,    c = γ/2 + 2u   (rounded up generously below)

and c N² = c|x̂|² + 2c|x̂||q̂| + c|q̂|² is itself a product of a row's numbers with a query's: two
more columns make the matrix product deliver t - c N² <= τ directly, apart from the term of q alone.
"""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints

UNIT_ROUNDOFF = 2.0**-24
UNDERFLOW = 2.0**-120
TILE_ROWS = 1024
BYTES_AT_ONCE = 1 << 20


class LowerBounds:
    """Rows prepared for bounding their distances to queries, in blocks of `block_size` rows.

    rows: of shape (n_rows, n_features). block_starts, block_ends: ranges of at most `block_size`
    rows; short blocks are padded with rows that are never near.
    """

    def __init__(
        self, rows: Floats32, block_starts: np.ndarray, block_ends: np.ndarray, block_size: int
    ) -> None:
        self.block_size = block_size
        self.n_blocks = len(block_starts)
        self._center = rows.mean(axis=0, dtype=np.float64)
        self._scale = power_of_two_scale(rows, self._center)
        self._error, self._underflow = error_of_product(rows.shape[1])
        self._matrix = self._prepare(rows, block_starts, block_ends)

    def place(self, queries: Floats32) -> tuple[Floats32, Floats]:
        """Queries as columns of the product, (n_features + 3, n_queries), and |q̂|² / 2.

        Where they are not finite, the query is so far away that float32 overflows.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            shifted = ((queries - self._center) * self._scale).astype(np.float32)
            squared = np.einsum("ij,ij->i", shifted, shifted, dtype=np.float64)
            norm = np.sqrt(squared)
            product = np.empty((shifted.shape[1] + 3, len(queries)), dtype=np.float32)
            product[:-3] = shifted.T
            product[-3] = 1.0
            product[-2] = norm
            # The terms of the query alone, each rounded toward the safe side.
            product[-1] = -(self._error * squared + self._underflow * (1 + norm)) * (1 + 1e-6)
        return product, squared / 2

    def block_minima(self, placed: Floats32) -> Floats32:
        """A lower bound on τ over each block, of shape (n_blocks, n_queries).

        It is -inf for a query so far away that float32 overflows.
        """
        n_queries = placed.shape[1]
        with np.errstate(over="ignore", invalid="ignore"):
            minima = np.empty((self.n_blocks, n_queries), dtype=np.float32)
            tile_blocks = max(1, TILE_ROWS // self.block_size)
            tile = np.empty((tile_blocks * self.block_size, n_queries), dtype=np.float32)
            for first in range(0, self.n_blocks, tile_blocks):
                last = min(first + tile_blocks, self.n_blocks)
                rows = slice(first * self.block_size, last * self.block_size)
                bounds = tile[: rows.stop - rows.start]
                np.matmul(self._matrix[rows], placed, out=bounds)
                blocks = bounds.reshape(last - first, self.block_size, n_queries)
                np.minimum.reduce(blocks, axis=1, out=minima[first:last])
            minima[:, ~np.isfinite(placed).all(axis=0)] = -np.inf
        return minima

    def row_bounds(self, placed: Floats32, query: Ints, block: Ints) -> Floats32:
        """Lower bounds on τ over the rows of blocks, of shape (n_pairs, block_size).

        placed: by `place`. query, block: of shape (n_pairs,). Padding has inf or, where float32
        overflows, NaN, as all rows may have there.
        """
        blocks = self._matrix.reshape(self.n_blocks, self.block_size, -1)
        rows = np.ascontiguousarray(placed.T)
        bounds = np.empty((len(query), self.block_size), dtype=np.float32)
        step = max(1, BYTES_AT_ONCE // (4 * self.block_size * rows.shape[1]))
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(query), step):
                part = slice(start, start + step)
                np.einsum("pij,pj->pi", blocks[block[part]], rows[query[part]], out=bounds[part])
        return bounds

    def guess(self, bounds: Floats32, half_norms: Floats) -> Floats32:
        """About as far as the true values of given bounds may lie: a limit to try, no promise."""
        with np.errstate(over="ignore", invalid="ignore"):
            slack = 2.0**-20 * np.abs(bounds) + 16 * self._error * half_norms
            return (bounds + slack).astype(np.float32)

    def to_bound(self, distances: Floats, half_norms: Floats) -> Floats32:
        """τ of given distances, rounded up, comparable with the minima of `block_minima`.

        It is inf, which rules nothing out, if the query's norm overflows.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            limits = 0.5 * self._scale**2 * np.square(distances) - half_norms
            limits = np.where(np.isfinite(half_norms), limits, np.inf)
            rounded_up: Floats32 = np.nextafter(limits.astype(np.float32), np.float32(np.inf))
        return rounded_up

    def _prepare(
        self, rows: Floats32, block_starts: np.ndarray, block_ends: np.ndarray
    ) -> Floats32:
        """The matrix [-x̂, |x̂|²/2 - c|x̂|², -2c|x̂|, 1], padded to full blocks."""
        size = self.block_size
        matrix = np.zeros((self.n_blocks * size, rows.shape[1] + 3), dtype=np.float32)
        matrix[:, -3] = np.inf  # padding is never near
        matrix[:, -1] = 1.0
        step = max(1, (1 << 22) // max(1, size * rows.shape[1]))
        for first in range(0, self.n_blocks, step):
            starts, ends = block_starts[first : first + step], block_ends[first : first + step]
            source = starts[:, None] + np.arange(size)
            block, place = np.nonzero(source < ends[:, None])
            target = (first + block) * size + place
            shifted = ((rows[source[block, place]] - self._center) * self._scale).astype(np.float32)
            squared = np.einsum("ij,ij->i", shifted, shifted, dtype=np.float64)
            matrix[target, :-3] = -shifted
            matrix[target, -3] = squared * (0.5 - self._error)
            matrix[target, -2] = -2 * self._error * np.sqrt(squared)
        return matrix


def error_of_product(n_features: int) -> tuple[float, float]:
    """The constants c and underflow of the bound above, for products of at most d + 3 terms.

    The rest of the eight, the factor and the four units of roundoff cover the extra columns and the
    float64 steps around them.
    """
    terms = (n_features + 8) * UNIT_ROUNDOFF
    error = 1.05 * terms / (1 - terms) / 2 + 4 * UNIT_ROUNDOFF if terms < 0.1 else np.inf
    return error, (n_features + 8) * UNDERFLOW


def power_of_two_scale(rows: Floats32, center: Floats) -> float:
    """The power of two that brings the largest |x - center| to at most 1; multiplying is exact."""
    if rows.size == 0:
        return 1.0
    largest = max(np.max(rows.max(axis=0) - center), np.max(center - rows.min(axis=0)))
    return float(2.0 ** -np.ceil(np.log2(largest))) if largest else 1.0
