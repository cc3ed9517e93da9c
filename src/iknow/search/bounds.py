"""Lower bounds on distances from matrix products in low precision, derived once.

Squared distances expand to |x|² - 2 x·q + |q|², a matrix product, but in low precision the
expansion cancels: near the query every digit can be wrong. So we use it only as a proven lower
bound that tells where exact arithmetic is worthwhile. Let x and q be a row and a query in float32,
and

    X = s (x - c),  Q = s (q - c)      c about the rows' mean in float64, s a power of two
    τ(x, q) = |X|²/2 - X·Q             = (s² |x - q|² - |Q|²) / 2, which ranks the rows for a query

What follows holds for any c and s. Three errors add up: those of rounding the factors, of adding
up, and of the limits that bounds are compared with. There are two forms, as the first error is
known beforehand (float32) or measured for each row (fp16 and others).

**In float32** (`LowerBounds`; |X_j| <= 1, unit roundoff u = 2^-24). Let x̂ and q̂ be X and Q rounded,
N = |x̂| + |q̂|, and

    t(x, q) = fl( h·1 + Σ_j (-x̂_j) q̂_j ),  h = fl(|x̂|²/2)      τ by one product, |q̂| in place of |Q|

Rounding the factors moves |x̂ - q̂| by at most u N and hence |x̂ - q̂|²/2 by at most u N² (1 + u).
Rounding h costs u |x̂|²/2. The product of d + 1 terms, added in any order and with or without fused
steps, costs at most γ (|x̂||q̂| + |x̂|²/2 (1 + u)) with γ = (d+1)u / (1 - (d+1)u), and
|x̂||q̂| + |x̂|²/2 <= N²/2. Underflow adds less than (d + 2) 2^-120 (1 + |q̂|) as |x̂_j| <= 1. Hence

    |t - τ| <= c N² + underflow,    c = γ/2 + 2u   (rounded up generously below)

and c N² = c|x̂|² + 2c|x̂||q̂| + c|q̂|² is itself a product of a row's numbers with a query's: two
more columns make the matrix product deliver t - c N² <= τ directly, apart from the term of q alone.

**In any precision** (`kernels.torch`; |X_j| <= 2^15). A query far outside the rows is scaled down
by its own power of two σ, which scales τ by the same factor. x̃ and q̃ are X and σQ rounded, by any
rule: we measure the loss in float64 and keep it, |X - x̃| <= e_x and |σQ - q̃| <= e_q. As
X·σQ = x̃·q̃ + (X - x̃)·σQ + x̃·(σQ - q̃),

    |X·σQ - x̃·q̃| <= e_x σ|Q| + |x̃| e_q.                                                     (1)

All factors are 0 or between 2^-60 and 2^15 in size and never denormal, so that no product of two
overflows, underflows or is flushed; those of fp16 and bf16 are exact in float32. The search
computes, for a block b of rows,

    m = fl( min over x in b of (h σ - Σ_j x̃_j q̃_j)  -  E_b n  -  N_b g )

with four kinds of numbers prepared below. A tensor core adds the products of a step and the sum so
far at the scale of the largest of them and truncates the digits below, at or below 2^-23 of it;
each of k + 1 terms of a step loses at most that, and the normalized result once more. All largest
terms are at most S = h σ + Σ_j |x̃_j q̃_j| + E_b n + N_b g, and with k >= 4 the loss is less than
1.5 units of 2^-23 per term. Plain float32, in any order and fused or not, loses 2^-24 per
operation. Both are covered by γ S with γ = (d + 40) u / (1 - (d + 40) u) and u = 2^-22, a third
more than needed; eight of the forty are the terms besides the products and the roundings of the
products, E_b n and N_b g. The other 32 let a search put a number of five bits in place of the last
bits of a result, twice: each time it changes by less than 2^-18 = 16 u of itself. By Cauchy and
Schwarz Σ_j |x̃_j q̃_j| <= |x̃||q̃|. Rounding is monotone, so we may take the minimum before the last
two subtractions, and for every row x of the block

    m <= h σ (1 + γ) - x̃·q̃ + γ |x̃||q̃| - (1 - γ) (E_b n + N_b g).                            (2)

Choosing

    h   <= |X|²/2 / (1 + γ)          E_b >= e_x / (1 - γ)        n >= σ|Q|
                                     N_b >= |x̃| / (1 - γ)        g >= e_q + γ |q̃|

for all rows of the block makes the right side of (2) at most σ|X|²/2 - x̃·q̃ - e_x σ|Q| - |x̃| e_q,
and by (1) that is at most σ τ(x, q). So m <= σ τ for each row of the block. Sorting the rows of a
class by |X| makes the rows of a block similar, so that the maxima E_b and N_b fit each of them.

**Limits.** A row at a distance of at most D in float64 has σ τ <= σ (s² D² - |Q|²) / 2, so a block
with a bound above that has no such row. We round the limit up; in the second form we also add the
possible loss by float64 and underflow.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.pages import slices

UNIT_ROUNDOFF = 2.0**-24
UNDERFLOW = 2.0**-120
TILE_ROWS, VALUES_AT_ONCE = 1024, 1 << 22


class LowerBounds:
    """Rows prepared for bounding their distances to queries, in blocks of `block_size` rows.

    rows: of shape (n_rows, n_features). starts: the first row of each block, of shape (n_blocks,);
    short blocks are padded with rows that are never near.
    """

    def __init__(self, rows: Floats32, starts: Ints, block_size: int) -> None:
        n, size = len(starts), block_size
        self.n_blocks, self.block_size = n, size
        self._center = rows.mean(axis=0, dtype=np.float64)
        self._scale = power_of_two_scale(rows, self._center)
        self._error, self._underflow = error_of_product(rows.shape[1])
        matrix: Floats32 = np.zeros((n * size, rows.shape[1] + 3), dtype=np.float32)
        matrix[:, -3] = np.inf  # padding is never near
        matrix[:, -1] = 1.0
        shifts = np.repeat(np.arange(n) * size - starts, np.diff(starts, append=len(rows)))
        target = np.arange(len(rows)) + shifts
        for part in slices(len(rows), VALUES_AT_ONCE // rows.shape[1]):
            shifted, squared = self._shift(rows[part])
            matrix[target[part], :-3] = -shifted
            matrix[target[part], -3] = squared * (0.5 - self._error)
            matrix[target[part], -2] = -2 * self._error * np.sqrt(squared)
        self._matrix = matrix  # [-x̂, |x̂|²/2 - c|x̂|², -2c|x̂|, 1]

    def bound(self, queries: Floats32) -> tuple[Floats32, Callable[[Floats], Floats32]]:
        """A lower bound on τ over each block, (n_blocks, n_queries), and what gives limits.

        The second turns distances of shape (..., n_queries) into their τ, rounded up. The bound of
        a query so far away that float32 overflows is -inf. Its limit is inf, if its norm overflows.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            shifted, squared = self._shift(queries)
            norm = np.sqrt(squared)
            placed: Floats32 = np.empty((shifted.shape[1] + 3, len(queries)), dtype=np.float32)
            placed[:-3] = shifted.T
            placed[-3] = 1.0
            placed[-2] = norm
            # The terms of the query alone, each rounded toward the safe side.
            placed[-1] = -(self._error * squared + self._underflow * (1 + norm)) * (1 + 1e-6)
            size, minima = self.block_size, np.empty((self.n_blocks, len(queries)), np.float32)
            per_tile = max(1, TILE_ROWS // size)  # the product in tiles that stay in the cache
            tile = np.empty((per_tile * size, len(queries)), dtype=np.float32)
            for part in slices(self.n_blocks, per_tile):
                rows = self._matrix[part.start * size : part.stop * size]
                bounds = np.matmul(rows, placed, out=tile[: len(rows)])
                np.minimum.reduce(bounds.reshape(-1, size, len(queries)), 1, out=minima[part])
        minima[:, ~np.isfinite(placed).all(axis=0)] = -np.inf

        def to_limits(distances: Floats) -> Floats32:
            with np.errstate(invalid="ignore", over="ignore"):
                limits = 0.5 * self._scale**2 * np.square(distances) - squared / 2
                limits = np.where(np.isfinite(squared), limits, np.inf)
                rounded_up: Floats32 = np.nextafter(limits.astype(np.float32), np.float32(np.inf))
            return rounded_up

        return minima, to_limits

    def _shift(self, points: Floats32) -> tuple[Floats32, Floats]:
        """x̂ or q̂ of points, in the same shape, and |x̂|² or |q̂|², of shape (n,)."""
        shifted = ((points - self._center) * self._scale).astype(np.float32)
        return shifted, np.einsum("ij,ij->i", shifted, shifted, dtype=np.float64)


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
