"""Projections: a few numbers per row that bound its distances from below.

Let c be the rows' mean, x = p - c, and V a matrix of d directions, nearly orthonormal: VᵀV = I + E,
‖E‖ <= η. With z = Vᵀx and r = |x - Vz|, what the directions leave out, we map p to φ(p) = (z, r).
The linear map x -> (z, x - Vz) stretches by at most √(1 + ‖VEVᵀ‖) <= 1 + η, and norms differ by no
more than their vectors, so

    |φ(p) - φ(q)|  <=  (1 + η) |p - q|.

If the rows spread mostly along V, the two are close, and a search among φ, of few features, rules
out nearly all rows. V are the principal directions of a sample, but any V would be safe.

Rounding. With n features and u = 2^-53, the computed x and z are off by (n + 2)u √d |x| at most.
r² = |x|² - |z|² + zᵀEz, computed as the first two terms, is off by at most κ|x|², where
κ = 4 (n + d + 8) √d u + 2η, so r by √κ |x|. Storing φ in float32 adds 2^-24 |φ|, or 2^-150 to each
number if that is more. Hence |φ̂ - φ| <= δ|x| + tiny, δ = √κ + 2^-23. A row within a distance ρ of a
query has |x_p| <= |x_q| + ρ, so its φ̂ is within

    ρ' = (1 + η + δ) ρ + 2δ |x_q| + 2 tiny

of the query's. As ρ is itself a computed distance, we add 2^-22 ρ, for up to a million features.

There are two φ̂: one by the first few directions, for vector units to compare with all rows, and one
by many, for the rows that are left, whose numbers are rounded to integers, in units of a power of
two. That moves a row by at most √(d + 1) / 2 units: its `blur`.

Where features are few, they are the coordinates themselves: nothing is stretched, and the bounds
of `products` cover their rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Bools, Floats, Floats32
from iknow.pages import slices
from iknow.search.threads import for_each

Shorts = NDArray[np.int16]

SAMPLE = 4096  # rows that choose the directions
TURNS = 4  # steps of subspace iteration
SPARE = 16  # directions more in these steps, so that the last ones are good, too
FEWEST_FEATURES = 20  # to project
FEW_FEATURES = 64  # up to which features are better than directions that show little
NEAR = 15  # directions of few features
ENOUGH_SPREAD = 0.75  # of the rows, for `near` to show
LARGEST = 32000  # of the integers
FURTHEST = 1e17  # beyond it, in units as well, squares in float32 might overflow
VALUES_AT_ONCE = 1 << 21
TINY = 2.0**-140


class Shown(NamedTuple):
    """Points in the coordinates of a projection."""

    near: Floats32  # φ̂ by the first directions, of shape (n, n_near + 1)
    far: Floats32  # by all, in units, of shape (n, n_far + 1)
    slack: Floats  # the part of ρ' that does not depend on ρ, of shape (n,)
    safe: Bools  # which of them float32 can show, of shape (n,); the others mean nothing


def choose_coordinates(rows: Floats32) -> Coordinates:
    """Coordinates of rows of shape (n_rows, n_features), with few features or most of their spread.

    near: directions to compare with all rows. far: with those left after that, if features are not
    few. They cost 4 and 2 bytes each for every row; with what they leave out, they fill vectors.
    """
    n_features = rows.shape[1]
    if n_features <= FEWEST_FEATURES:
        return Coordinates()
    if n_features > FEW_FEATURES:
        near = max(11, min(47, n_features // 14 | 3))
        return Projection(rows, near, min(143, max(2 * near, 2 * n_features // 7) | 7))
    some = rows[:: -(-len(rows) // SAMPLE)]
    sample = some - some.mean(axis=0, dtype=np.float64)
    seen, spread = np.square(sample @ find_directions(sample, NEAR)), np.square(sample)
    shows = seen.sum() > ENOUGH_SPREAD * spread.sum()
    return Projection(rows, NEAR, NEAR) if shows else Coordinates()


class Coordinates:
    """The features themselves."""

    stretch, unit, blur, is_safe = 1.0, 1.0, 0.0, True

    def show(self, points: Floats32) -> Shown:
        """Points of shape (n, n_features) as they are."""
        n = len(points)
        return Shown(points, np.empty((n, 0), np.float32), np.zeros(n), np.ones(n, dtype=np.bool_))

    def show_rows(self, rows: Floats32) -> tuple[Floats32, Shorts]:
        """The rows, and no shadows."""
        return rows, np.empty((len(rows), 0), dtype=np.int16)


class Projection(Coordinates):
    """Principal directions of rows of shape (n_rows, n_features).

    n_near: how many directions `near` uses. n_far: how many `far` does; it is left out if these are
    as many.
    """

    def __init__(self, rows: Floats32, n_near: int, n_far: int) -> None:
        self.n_near, self.n_shadows = n_near, n_far + 1 if n_far > n_near else 0
        self.center: Floats = rows.mean(axis=0, dtype=np.float64)
        self.directions = find_directions(rows[:: -(-len(rows) // SAMPLE)] - self.center, n_far)
        n, d, u = rows.shape[1], n_far, 2.0**-53
        product = self.directions.T @ self.directions
        deviation = float(np.linalg.norm(product - np.eye(d))) * 1.01 + 2 * (n + 8) * d * u
        error = np.sqrt(4 * (n + d + 8) * np.sqrt(d) * u + 2 * deviation) + 2.0**-23
        self.stretch = 1 + deviation + error + 2.0**-22
        self.slack = 2.02 * error
        squared = 0.0
        for part in slices(len(rows), VALUES_AT_ONCE // n):
            shifted = rows[part] - self.center
            squared = np.maximum(squared, np.einsum("ij,ij->i", shifted, shifted).max())
        longest = float(np.sqrt(squared))
        # Written so that NaN is refused.
        self.is_safe = longest < FURTHEST and self.stretch < 1.5
        self.unit = 2.0 ** np.ceil(np.log2(longest / LARGEST)) if self.is_safe and longest else 1.0
        self.blur = 0.5 * np.sqrt(d + 1) + 1

    def show(self, points: Floats32) -> Shown:
        """The shadows of points of shape (n, n_features)."""
        near = np.empty((len(points), self.n_near + 1), dtype=np.float32)
        far = np.empty((len(points), self.n_shadows), dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            shifted = points - self.center
            squared = np.einsum("ij,ij->i", shifted, shifted)
            along = shifted @ self.directions
            for shown, unit in ((near, 1.0), (far, self.unit)):
                if shown.shape[1]:
                    some = along[:, : shown.shape[1] - 1]
                    left = squared - np.einsum("ij,ij->i", some, some)
                    shown[:, :-1], shown[:, -1] = some / unit, np.sqrt(np.maximum(left, 0)) / unit
        lengths = np.sqrt(squared)
        safe = lengths < FURTHEST * min(1.0, self.unit)
        return Shown(near, far, self.slack * lengths + TINY, safe)

    def show_rows(self, rows: Floats32) -> tuple[Floats32, Shorts]:
        """The shadows of the rows, `near` and, as integers, `far`."""
        near = np.empty((len(rows), self.n_near + 1), dtype=np.float32)
        far = np.empty((len(rows), self.n_shadows), dtype=np.int16)

        def work(part: slice) -> None:
            shown = self.show(rows[part])
            near[part], far[part] = shown.near, np.rint(shown.far)

        for_each(work, slices(len(rows), VALUES_AT_ONCE // rows.shape[1]))
        return near, far


def find_directions(sample: Floats, n: int) -> Floats:
    """About the n principal directions of a centered sample, of shape (n_features, n)."""
    n_features = sample.shape[1]
    largest = np.abs(sample).max(initial=0.0)
    scaled = sample / largest if largest > 0 else sample
    width = min(n_features, n + SPARE)
    basis = np.random.default_rng(0).standard_normal((n_features, width))
    for _ in range(TURNS):
        basis = np.linalg.qr(scaled.T @ (scaled @ basis))[0]
    seen = scaled @ basis
    turn = np.linalg.eigh(seen.T @ seen)[1][:, ::-1]  # the widest spread first
    directions: Floats = np.ascontiguousarray((basis @ turn)[:, :n])
    return directions
