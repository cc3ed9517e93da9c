"""Bisectors: how far a point may move before another class is nearer than all samples of its own.

Let z be a query and z_i, z_j stored points at distances d_i and d_j from it. Every point nearer to
z_j than to z_i lies beyond the hyperplane that bisects them, and z is

    (d_j² - d_i²) / (2 |z_j - z_i|)

away from that hyperplane. To come nearer to z_j than to every point of class g, z must cross all
the bisectors of z_j with those points: the largest of these lengths counts. To come nearer to any
other class, the smallest of these over all points j counts. By the triangle inequality each length
is at least (d_j - d_i) / 2, the bound from distances alone, with equality only if z, z_i and z_j
lie on a line. This holds in the Euclidean norm, the only one with flat bisectors.

Any points of class g give a bound, so the nearest few stand for all. We skip points j with
(d_j - d_g) / 2 above the best crossing so far. If many remain, one more matrix product gives their
bisectors with the nearest point of g alone; these are almost as good, and leave few.

Rounding. Squared distances come from matrix products about the mean of the points: with m features
they are off by at most κ (|a|² + |b|²), κ = (m + 16) 2⁻⁵¹, and we assume the worst. The search,
which measures later, may call z_j nearer when it is further by a factor of 1 + 3κ. On the way to
the hyperplane z is never more than 2 d_j away from z_i, so this brings the crossing nearer by at
most 12 κ d_j² / |z_j - z_i|.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.pages import slices

OWN_POINTS = 16
"""How many of the nearest points of a class stand for all; on digits 8 give the same as all."""

OTHERS_AT_ONCE = 32  # points of other classes to bisect at once, the nearest crossings first
FEW_OTHERS = 256  # bisect up to this many points without first bounding the bisectors of all rows
DISTANCES_AT_ONCE = 1 << 22  # between queries and points, to hold in memory
NUMBERS_KEPT = 1 << 23  # keep all points in float64 if they have at most this many values in total


def find_crossings(points: Floats32, labels: Ints, queries: Floats32, belief: Ints) -> Floats:
    """How far each query may move with no other class nearer than its own, of shape (n_queries,).

    points: of shape (n_rows, n_features), queries: (n_queries, n_features), in the ℓ2 norm. labels,
    belief: class codes of shape (n_rows,) and (n_queries,). Never more than the true length; zero
    or negative if another class is already as near, -inf for a class without points.
    """
    field = _Field(points, labels)
    crossings = np.empty(len(queries))
    for part in slices(len(queries), DISTANCES_AT_ONCE // max(1, len(points))):
        crossings[part] = field.cross(queries[part], belief[part].tolist())
    return crossings


@dataclass(eq=False)
class _Crossing:
    """The state of one query."""

    own: Ints  # the nearest rows of its class, in order
    reach: Floats  # upper bounds of their squared distances
    others: Ints  # rows of other classes whose bisector may be the nearest
    lowest: Floats  # lower bounds of their squared distances
    best: float  # the length of the nearest crossing so far


class _Field:
    """The points, centered on their mean, in float64 while in use."""

    def __init__(self, points: Floats32, labels: Ints) -> None:
        self.points = points
        self.mean: Floats = points.mean(axis=0, dtype=np.float64)
        self.rounding = (points.shape[1] + 16) * 2.0**-51
        self.step = DISTANCES_AT_ONCE // max(1, points.shape[1])
        self.sizes = np.empty(len(points))  # |p|² of each row
        self._whole = self._about_mean(points) if points.size <= NUMBERS_KEPT else None
        for part, centered in self._parts():
            self.sizes[part] = _squares(centered)
        self.rows_of = {int(code): np.flatnonzero(labels == code) for code in np.unique(labels)}

    def cross(self, queries: Floats32, belief: list[int]) -> list[float]:
        centered = self._about_mean(queries)
        squared = self._measure(centered, _squares(centered), 1 - self.rounding)
        started = [self._start(*each) for each in zip(centered, squared, belief, strict=True)]
        many = [q for q, begun in enumerate(started) if len(begun.others) > FEW_OTHERS]
        nearest = [started[q].own[0] for q in many]
        apart = self._measure(
            self._about_mean(self.points[nearest]), self.sizes[nearest], 1 + self.rounding
        )
        bounds = dict(zip(many, apart, strict=True))
        return [self._finish(begun, bounds.get(q)) for q, begun in enumerate(started)]

    def _start(self, query: Floats, lowest: Floats, code: int) -> _Crossing:
        """Cross to the nearest point of another class, which rules out points far behind it.

        lowest: lower bounds of the squared distances to all rows; overwritten.
        """
        own = self.rows_of.get(code)
        none = np.empty(0, dtype=np.int64)
        if own is None:
            return _Crossing(none, np.empty(0), none, np.empty(0), -np.inf)
        few = own
        if len(own) > OWN_POINTS:
            few = own[np.argpartition(lowest[own], OWN_POINTS)[:OWN_POINTS]]
        few = few[np.argsort(lowest[few])]
        size = float(query @ query)
        # From lower bounds to upper bounds.
        reach = np.maximum(lowest[few], 0) + 2 * self.rounding * (size + self.sizes[few])
        np.maximum(lowest, 0, out=lowest)
        lowest[own] = np.inf
        first = int(lowest.argmin())
        if not np.isfinite(lowest[first]):
            return _Crossing(few, reach, none, np.empty(0), np.inf)
        begun = _Crossing(few, reach, np.array([first]), lowest[[first]], np.inf)
        begun.best = float(self._bisect(begun, begun.others, begun.lowest).min())
        limit = (2 * max(begun.best, 0) + np.sqrt(reach[0])) * (1 + 5 * self.rounding)
        begun.others = np.flatnonzero(lowest < limit**2)
        begun.lowest = lowest[begun.others]
        return begun

    def _finish(self, begun: _Crossing, apart: Floats | None) -> float:
        """Cross to the remaining points; returns the length of the nearest crossing.

        apart: if many remain, upper bounds of squared distances from the nearest own row to all.
        """
        others, lowest, best = begun.others, begun.lowest, begun.best
        if not len(others):
            return best
        crossings = self._leads(begun, lowest)
        if apart is not None:
            bounds = self._lengths(lowest, begun.reach[0], apart[others])
            crossings = np.maximum(crossings, bounds)
        while crossings.min() < best:
            nearest = np.argpartition(crossings, min(OTHERS_AT_ONCE, len(crossings)) - 1)
            nearest = nearest[:OTHERS_AT_ONCE]
            bisectors = self._bisect(begun, others[nearest], lowest[nearest])
            best = min(best, float(np.maximum(bisectors, crossings[nearest]).min()))
            crossings[nearest] = np.inf  # done
        return best

    def _leads(self, begun: _Crossing, lowest: Floats) -> Floats:
        """The bound from distances alone; also holds for points too close for a bisector."""
        leads: Floats = np.sqrt(lowest) * (1 - 4 * self.rounding) - np.sqrt(begun.reach.min())
        return leads / 2

    def _bisect(self, begun: _Crossing, others: Ints, lowest: Floats) -> Floats:
        """A lower bound of the distance to each other row's furthest bisector with an own row."""
        a, b = self._about_mean(self.points[others]), self._about_mean(self.points[begun.own])
        sizes = (self.sizes[others][:, None] + self.sizes[begun.own]) * (1 + self.rounding)
        lengths = self._lengths(lowest[:, None], begun.reach, sizes - 2 * (a @ b.T))
        furthest: Floats = np.maximum(lengths.max(axis=1), self._leads(begun, lowest))
        return furthest

    def _lengths(self, lowest: Floats, highest: Floats | float, apart: Floats) -> Floats:
        """Lower bounds of the distances to bisectors, from worst-case squared distances."""
        ahead = lowest * (1 - 25 * self.rounding) - highest
        with np.errstate(divide="ignore", invalid="ignore"):
            lengths = ahead / (2 * np.sqrt(np.maximum(apart, 0)))
        # If two points coincide, both at the mean, neither is ever nearer than the other.
        found: Floats = np.nan_to_num(lengths, nan=0.0, posinf=0.0, neginf=0.0)
        return found

    def _measure(self, centered: Floats, sizes: Floats, factor: float) -> Floats:
        """Bounds of the squared distances from some points to all rows, by sizes times `factor`."""
        squared = np.empty((len(centered), len(self.points)))
        turned = -2 * centered
        for part, points in self._parts():
            np.matmul(turned, points.T, out=squared[:, part])
        squared += (sizes * factor)[:, None]
        squared += self.sizes * factor
        return squared

    def _about_mean(self, points: Floats32) -> Floats:
        return points.astype(np.float64) - self.mean

    def _parts(self) -> Iterator[tuple[slice, Floats]]:
        """All rows, centered on their mean, in parts that fit the memory set aside for them."""
        if self._whole is not None:
            yield slice(None), self._whole
            return
        for part in slices(len(self.points), self.step):
            yield part, self._about_mean(self.points[part])


def _squares(points: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", points, points))
