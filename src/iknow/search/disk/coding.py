"""Rows as small integers, with proven bounds on their distances.

A block is a few hundred close rows of one class. With its center c, rounded to float32, and a unit
s, a 127th of the largest |x_j - c_j|, a row x is coded as the integers z_j = rint((x_j - c_j) / s),
one byte each. What coding loses is measured: the error e of a block is the largest |x - (c + s z)|,
its radius R the largest |x - c|. Both are computed in float64 and rounded up by far more than that
arithmetic loses.

For a query q let v = (q - c) / s, rounded to float32 (unit roundoff u = 2^-24), and

    S = fl( Σ_j (v_j - z_j)² )

The differences of these numbers are rounded, squared and added: no term is negative, so in whatever
order they are added, S is off by at most the relative error γ = (d + 3) u / (1 - (d + 3) u).
Rounding v moves |v - z| by at most u |v|. With σ = 2 u |v| + 2^-20, which covers underflow too, and
g = (d + 8) 2^-23 > γ, by the triangle inequality

    s (√(S / (1 + g)) - σ) - e  <=  |q - x|  <=  s (√(S (1 + g)) + σ) + e

A distance measured in float64 is off by a relative error far below 2^-40, and so is the arithmetic
of these bounds; the factors 1 ± 2^-30 below cover both. Where |v| > 2^55, float32 might overflow:
there all rows of the block are within R of the distance to the center, and that is bound enough.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from iknow.core.arrays import Floats, Floats32

LARGEST_CODE = 127
ROUND_UP = 1 + 2.0**-30
LEAST_SLACK = 2.0**-20  # in units
FAR = 2.0**55  # in units: beyond, float32 might overflow


class Coded(NamedTuple):
    """Coded blocks of equal size.

    codes: int8, of shape (n_blocks, size, n_features). centers: of shape (n_blocks, n_features).
    units, errors, radii: s, e and R, of shape (n_blocks,).
    """

    codes: np.ndarray
    centers: Floats32
    units: Floats
    errors: Floats
    radii: Floats


def encode(blocks: Floats32) -> Coded:
    """Code blocks of rows, of shape (n_blocks, size, n_features)."""
    centers = blocks.mean(axis=1, dtype=np.float64).astype(np.float32)
    away = np.subtract(blocks, centers[:, None], dtype=np.float64)
    largest = np.abs(away).max(axis=(1, 2))
    units = np.where(largest > 0, largest / LARGEST_CODE, 1.0)
    radii = _longest(away)
    away /= units[:, None, None]
    codes = np.rint(away)
    away -= codes
    # What float64 loses above is less than 2^-40 of the largest number of the block.
    errors = (units * _longest(away) + 2.0**-40 * largest * np.sqrt(blocks.shape[2])) * ROUND_UP
    return Coded(codes.astype(np.int8), centers, units, errors, radii * ROUND_UP)


def looseness(n_features: int) -> float:
    """The factor 1 + g of the bounds above."""
    return 1 + (n_features + 8) * 2.0**-23


def _longest(rows: Floats) -> Floats:
    """The largest norm of a row of each block."""
    longest: Floats = np.sqrt(np.einsum("bij,bij->bi", rows, rows).max(axis=1))
    return longest
