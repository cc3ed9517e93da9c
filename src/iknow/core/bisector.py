"""Bisectors: how far a point may move before another class is nearer than all samples of its own.

Let z be a query and z_i, z_j stored points, with distances d_i and d_j. All that is nearer to z_j
than to z_i lies beyond the hyperplane that bisects them, and z is

    (d_j² - d_i²) / (2 |z_j - z_i|)

away from that hyperplane. To have z_j nearer than every point of class g one must cross all of its
bisectors with them, so the largest of these lengths is needed; and for any other class to be
nearer, the smallest of that over all its points j. By the triangle inequality each of them is at
least (d_j - d_i) / 2, the bound that needs distances alone, and equal to it only where z, z_i and
z_j lie on a line. That holds in the Euclidean norm, which alone has flat bisectors.

Any points of class g give a bound, so the nearest few stand for all. Any j with (d_j - d_g) / 2
above the smallest length so far need not be looked at, which leaves few.

Rounding. Squared distances come from matrix products about the mean of the points: with m features
they are off by at most κ (|a| + |b|)², κ = (m + 16) 2⁻⁵², and are taken at their worst. What is
measured later, by the search, may call z_j nearer when it is further by a factor of 1 + 3κ. On the
way to the hyperplane z is never more than 2 d_j away from z_i, so that this brings the crossing
nearer by at most 12 κ d_j² / |z_j - z_i|.
"""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints

OWN_POINTS = 16
"""How many of the nearest points of a class stand for all; on digits 8 give the same as all."""

FIRST_OTHERS = 32
"""So many of the nearest points of other classes are looked at first, to rule out the rest."""

OTHERS_AT_ONCE = 1024

DISTANCES_AT_ONCE = 1 << 22
"""Distances between queries and points that are held in memory at a time."""


def find_crossings(points: Floats32, labels: Ints, queries: Floats32, belief: Ints) -> Floats:
    """How far each query may move with no other class nearer than its own, of shape (n_queries,).

    points: of shape (n_rows, n_features), queries: (n_queries, n_features), in the ℓ2 norm. labels,
    belief: class codes of shape (n_rows,) and (n_queries,). Never more than the true length; not
    positive where another class is as near already, -inf for a class without points.
    """
    field = _Field(points, labels)
    crossings = np.empty(len(queries))
    size = max(1, DISTANCES_AT_ONCE // max(1, len(points)))
    for start in range(0, len(queries), size):
        part = slice(start, start + size)
        crossings[part] = field.cross(queries[part], belief[part])
    return crossings


class _Field:
    """The points, about their mean, in float64 where they are looked at."""

    def __init__(self, points: Floats32, labels: Ints) -> None:
        self.points = points
        self.mean: Floats = points.mean(axis=0, dtype=np.float64)
        self.rounding = (points.shape[1] + 16) * 2.0**-52
        self.step = max(1, DISTANCES_AT_ONCE // max(1, points.shape[1]))
        self.sizes = np.empty(len(points))  # |p|² of each row
        for part in self._parts():
            self.sizes[part] = _squares(self._about_mean(points[part]))
        self.rows_of = {int(code): np.flatnonzero(labels == code) for code in np.unique(labels)}

    def cross(self, queries: Floats32, belief: Ints) -> Floats:
        centered = self._about_mean(queries)
        sizes = _squares(centered)
        squared = np.empty((len(queries), len(self.points)))
        for part in self._parts():
            squared[:, part] = centered @ self._about_mean(self.points[part]).T
        squared *= -2
        squared += sizes[:, None]
        squared += self.sizes
        lengths = np.sqrt(self.sizes)
        return np.array(
            [
                self._cross_one(row, self.rounding * (np.sqrt(size) + lengths) ** 2, int(code))
                for row, size, code in zip(squared, sizes, belief, strict=True)
            ]
        )

    def _cross_one(self, squared: Floats, error: Floats, code: int) -> float:
        """squared, error: of the distances from one query to all rows, of shape (n_rows,)."""
        own = self.rows_of.get(code)
        if own is None:
            return -np.inf
        if len(own) > OWN_POINTS:
            own = own[np.argpartition(squared[own], OWN_POINTS)[:OWN_POINTS]]
        highest = squared[own] + error[own]
        lowest = np.maximum(squared - error, 0)
        # The bound from distances alone: what it rules out, the bisectors rule out too.
        leads = (np.sqrt(lowest) * (1 - 4 * self.rounding) - np.sqrt(highest.min())) / 2
        leads[self.rows_of[code]] = np.inf
        best, seen = np.inf, np.zeros(len(leads), dtype=bool)
        others = np.argpartition(leads, FIRST_OTHERS)[:FIRST_OTHERS] if (
            len(leads) > FIRST_OTHERS
        ) else np.arange(len(leads))  # fmt: skip
        while len(others := others[leads[others] < best]):
            others = others[:OTHERS_AT_ONCE]
            bisectors = self._bisect(own, highest, others, lowest[others], error[others])
            best = min(best, float(np.maximum(bisectors, leads[others]).min()))
            seen[others] = True
            others = np.flatnonzero((leads < best) & ~seen)
        return best

    def _bisect(
        self, own: Ints, highest: Floats, others: Ints, lowest: Floats, error: Floats
    ) -> Floats:
        """For each of the other rows, how far its furthest bisector with an own row is at least."""
        a, b = self._about_mean(self.points[others]), self._about_mean(self.points[own])
        sizes, own_sizes = self.sizes[others][:, None], self.sizes[own]
        apart = sizes + own_sizes - 2 * (a @ b.T)
        apart += self.rounding * (np.sqrt(sizes) + np.sqrt(own_sizes)) ** 2
        ahead = lowest[:, None] - highest
        ahead -= 24 * self.rounding * (lowest + 2 * error)[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            lengths = ahead / (2 * np.sqrt(np.maximum(apart, 0)))
        # Points that coincide, both at the mean, are never one nearer than the other.
        found: Floats = np.nan_to_num(lengths, nan=0.0, posinf=0.0).max(axis=1)
        return found

    def _about_mean(self, points: Floats32) -> Floats:
        centered: Floats = points.astype(np.float64) - self.mean
        return centered

    def _parts(self) -> list[slice]:
        return [slice(s, s + self.step) for s in range(0, len(self.points), self.step)]


def _squares(points: Floats) -> Floats:
    squares: Floats = np.einsum("ij,ij->i", points, points)
    return squares
