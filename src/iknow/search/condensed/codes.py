"""Codes: a few small integers per row that bound its distance to any query from both sides.

Let c be a center, x = p - c, and V a matrix of d directions, nearly orthonormal: VᵀV = I + E,
‖E‖ <= η. We split x into z = Vᵀx and s = x - Vz, and keep z and the length r = |s|. For two points
p and q let a = z_p - z_q and b = s_p - s_q. As <Va, b> = aᵀ(a - VᵀVa) = -aᵀEa,

    |p - q|² = |Va|² + 2 <Va, b> + |b|² = |a|² - aᵀEa + |b|²,    |r_p - r_q| <= |b| <= r_p + r_q.

With φ(p) = (z_p, r_p) and its mirror image φ'(q) = (z_q, -r_q) that is

    (1 - η) |φ(p) - φ(q)|²  <=  |p - q|²  <=  (1 + η) |φ(p) - φ'(q)|²

so one index of φ, asked about φ(q) and about φ'(q), gives both bounds, of the m-th nearest too, as
order statistics keep bounds. The two differ by 4 r_p r_q in their squares: what the directions
leave out counts quadratically, and rows that they leave much of are better kept in full.

Rounding. With n features and u = 2^-53, the computed z is off by (n + 2)u √d |x| at most, and r,
the root of |x|² - |z|², by √κ |x| where κ = 4 (n + d + 8) √d u + 2η. The row's φ is rounded to
integers in units of ω, which moves it by at most `blur` (the largest found, rounded up), and the
query's to float32, by 2^-24 of its length. So with δ = √κ + 2^-22 and R the longest |x_p|, the
distances found are off by at most

    δ (R + |x_q|) + blur

and we widen by 1e-9 for all arithmetic in float64, that of the full index included. A query too far
for float32 has the bounds 0 and inf.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.errors import InputError

Shorts = NDArray[np.int16]

LARGEST = 32000  # of the integers
FURTHEST = 1e17  # in units; beyond it, squares in float32 might overflow
WIDER = 1 + 1e-9
ROWS_AT_ONCE = 4096


class Seen(NamedTuple):
    """Queries as codes see them.

    near, far: φ and φ' in units, of shape (n, d + 1). error: how far off distances may be, of shape
    (n,). safe: which of them float32 can show, of shape (n,).
    """

    near: Floats32
    far: Floats32
    error: Floats
    safe: Bools


@dataclass(frozen=True, eq=False)
class Codes:
    """The codes of m rows.

    center: of shape (n_features,). directions: of shape (n_features, d). values: of shape
    (m, d + 1). unit, blur, longest: ω, blur and R above. labels, rows: class codes and row numbers,
    of shape (m,), sorted by both.
    """

    center: Floats
    directions: Floats
    values: Shorts
    unit: float
    blur: float
    longest: float
    labels: Ints
    rows: Ints
    spread: float = field(init=False)  # η above
    error: float = field(init=False)  # δ above

    def __post_init__(self) -> None:
        n, d = self.directions.shape
        u = 2.0**-53
        product = self.directions.T @ self.directions
        spread = float(np.linalg.norm(product - np.eye(d))) * 1.01 + 2 * (n + 8) * (d + 1) * u
        if not spread < 1e-3:  # refuses NaN
            raise InputError(f"directions must be orthonormal; they are off by {spread:.3g}")
        error = np.sqrt(4 * (n + d + 8) * np.sqrt(d + 1) * u + 2 * spread) + 2.0**-22
        object.__setattr__(self, "spread", spread)
        object.__setattr__(self, "error", float(error))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def n_bytes(self) -> int:
        """How many bytes it takes to store them, with their labels and row numbers."""
        arrays = self.center, self.directions, self.values, self.labels, self.rows
        return sum(array.nbytes for array in arrays)

    def see(self, queries: Floats32) -> Seen:
        """Queries of shape (n, n_features) as the codes see them."""
        parts, lengths = show(queries, self.center, self.directions)
        with np.errstate(over="ignore", invalid="ignore"):
            near = parts / self.unit
            safe = lengths < FURTHEST * self.unit
        near[~safe] = 0.0
        far = near.copy()
        far[:, -1] *= -1
        error = self.error * (self.longest + lengths) + self.blur
        return Seen(near.astype(np.float32), far.astype(np.float32), error, safe)

    def at_least(self, found: Floats, seen: Seen) -> Floats:
        """Lower bounds on distances, given those found for `Seen.near`, of shape (n, ...)."""
        error, safe = _like(seen.error, found), _like(seen.safe, found)
        bounds = (found * self.unit - error) / ((1 + self.spread) * WIDER)
        bounds = np.where(safe, np.maximum(bounds, 0.0), 0.0)
        return np.where(np.isinf(found), np.inf, bounds)

    def at_most(self, found: Floats, seen: Seen) -> Floats:
        """Upper bounds on distances, given those found for `Seen.far`, of shape (n, ...)."""
        error, safe = _like(seen.error, found), _like(seen.safe, found)
        bounds = (found * self.unit + error) * ((1 + self.spread) * WIDER)
        return np.where(safe, bounds, np.inf)


def make_codes(
    points: Floats32, labels: Ints, rows: Ints, center: Floats, directions: Floats
) -> Codes:
    """The codes of points of shape (m, n_features)."""
    d = directions.shape[1]
    shown, longest = np.empty((len(points), d + 1)), 0.0
    for start in range(0, len(points), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        shown[part], lengths = show(points[part], center, directions)
        longest = max(longest, float(lengths.max()))
    unit = float(np.abs(shown).max(initial=0.0)) / LARGEST or 1.0
    values = np.rint(shown / unit)
    off = np.sqrt(np.square(shown / unit - values).sum(axis=1)).max(initial=0.0)
    blur = float(off) * unit * (1 + 1e-6) + np.finfo(np.float64).tiny
    values = values.astype(np.int16)
    return Codes(center, directions, values, unit, blur, longest * WIDER, labels, rows)


def show(points: Floats32, center: Floats, directions: Floats) -> tuple[Floats, Floats]:
    """φ of points, of shape (n, d + 1), and |x|, of shape (n,)."""
    shifted = points - center
    squared = np.einsum("ij,ij->i", shifted, shifted)
    along = shifted @ directions
    left = np.sqrt(np.maximum(squared - np.square(along).sum(axis=1), 0.0))
    return np.column_stack([along, left]), np.sqrt(squared)


def _like(column: Any, found: Floats) -> Any:
    """A column of shape (n,) that broadcasts over found, of shape (n, ...)."""
    return column.reshape(-1, *[1] * (found.ndim - 1))
