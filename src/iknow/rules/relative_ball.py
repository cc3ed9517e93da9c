"""RelativeBall, ours and not the paper's.

    reach       ratio · r_1 if r_1 <= ε, else none
    pure        ε in [d_g, inf) and ratio in [1, d_¬g / d_g)
    removals    the samples r_j <= ε with ratio · r_j < d_¬g: the nearest one left decides

Coverage grows with the radius and falls with the ratio, so maximizing it cannot choose them; asking
for an accuracy can, and so can matching a coverage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.assertion import Reason
from iknow.core.contrast import Contrast, ValidationEvidence, find_contrast
from iknow.core.drawing import Areas, Drawing, Limits
from iknow.core.evidence import Evidence, distances_for_and_against
from iknow.core.neighborhood import NO_REACH, Checks, Neighborhood, Sides, parameter
from iknow.core.scalars import as_real
from iknow.core.slack import dial_radius
from iknow.core.stability import Stability, count_nearest
from iknow.errors import SelectionError

RATIOS = 256  # to try when matching a coverage


def check_ratio(ratio: object) -> float:
    kind = "be a finite number >= 1, as the nearest sample itself counts"
    return as_real(ratio, "a ratio", kind, lambda number: 1 <= number < math.inf)


@dataclass(frozen=True)
class RelativeBall(Neighborhood):
    """All samples up to `ratio` times as far as the nearest one, if that lies within the radius.

    It looks closely where data is dense and widely where it is sparse, and still finds nothing
    where it would have to extrapolate. A fixed radius or a fixed k cannot do both.

    Args:
        radius: How far the nearest sample may be, a number >= 0.
        ratio: A finite number >= 1.

    Examples:
        >>> from iknow import RelativeBall
        >>> RelativeBall(0.5, 1.2)
        RelativeBall(radius=0.5, ratio=1.2)
    """

    radius: float
    ratio: float

    checks: ClassVar[Checks] = {**Neighborhood.checks, "ratio": check_ratio}
    axes = ("radius", "ratio")
    empty_beyond = parameter("radius")
    lead = parameter("ratio")
    dial = dial_radius

    def reach(self, evidence: Evidence) -> Floats:
        nearest = evidence.nearest_distance()
        return np.where(nearest <= self.radius, self.ratio * nearest, NO_REACH)

    @classmethod
    def box(cls, contrast: Contrast, k: int | None) -> Sides:
        own, other = contrast.own, contrast.other
        ratio = np.where(own < other, _least_ratio(own, other), 1.0)  # equals are both in reach
        return [(own, np.full(len(own), np.inf)), (np.ones(len(own)), ratio)]

    def removals(self, evidence: Evidence, belief: Ints) -> Stability:
        _, other = distances_for_and_against(evidence, belief)
        distances = evidence.neighbor_distances
        alone = self.ratio * distances < other[:, None]
        return count_nearest(evidence, (distances <= self.radius) & alone)

    @classmethod
    def why_not_for_coverage(cls) -> str:
        return (
            f"maximizing coverage cannot choose a {cls.__name__}, as coverage always grows with "
            "the radius and falls with the ratio: ask for an accuracy with "
            "tune(..., accuracy=0.99), or match a coverage with tune(..., coverage=0.7)"
        )

    @classmethod
    def match(
        cls, evidence: ValidationEvidence, belief: Ints, y_true: Ints, coverage: float
    ) -> dict[str, RelativeBall]:
        # One ratio for all layers, and radii at one common rank of the distances to the belief. For
        # each of many ratios we take the rank whose number of IK samples is nearest to the target;
        # of the nearest ratios the one with the fewest errors, and of equals the largest.
        boxes = [cls.box(find_contrast(layer, belief), None) for layer in evidence.values()]
        radii = np.column_stack([low for (low, _), _ in boxes])
        ratios = np.min([high for _, (_, high) in boxes], axis=0)
        able = np.sort(ratios[ratios > 1])
        if len(able) == 0:
            raise SelectionError(
                f"no {cls.__name__} makes any validation sample IK: none is nearest to its "
                "believed class in every layer"
            )
        ordered = np.sort(radii, axis=0)
        # From this rank on a sample is within the radii in every layer.
        columns = zip(ordered.T, radii.T, strict=True)
        ranks = np.max([np.searchsorted(places, column) for places, column in columns], axis=0)
        limits = able[np.linspace(0, len(able) - 1, RATIOS).astype(int)]
        tries: list[tuple[float, int, float, int]] = []
        for ratio in np.unique(np.append(1.0, limits[limits < able[-1]])).tolist():
            known = _count_up_to(ranks[ratios > ratio], len(ranks))
            wrong = _count_up_to(ranks[(ratios > ratio) & (belief != y_true)], len(ranks))
            misses = np.where(known > 0, np.abs(known - coverage * len(ranks)), np.inf)
            rank = int(np.lexsort((wrong, misses))[0])
            tries.append((float(misses[rank]), int(wrong[rank]), -ratio, rank))
        *_, ratio, rank = min(tries)
        return {
            layer: cls(float(radius), -ratio)
            for layer, radius in zip(evidence, ordered[rank], strict=True)
        }

    def drawing(self) -> Drawing | None:
        # It compares the two distances: its lines are rays through the origin, up to ε.
        radius, ratio = self.radius, self.ratio

        def areas(x_limits: Limits, y_limits: Limits) -> Areas:
            # Both rays, d_¬g = ratio · d_g and d_g = ratio · d_¬g, begin outside the picture.
            start = min(x_limits[0], y_limits[0]) / ratio
            top, right = (max(limits[1], ratio * radius) for limits in (y_limits, x_limits))
            upper = [(start, ratio * start), (radius, ratio * radius)]
            lower = [(ratio * start, start), (ratio * radius, radius)]
            center = (radius, radius)
            return {
                Reason.KNOWN: [*upper, (radius, top), (start, top)],
                Reason.OVERLAP: [*upper, center, *lower[::-1]],
                Reason.EXTRAPOLATION: [center, (radius, top), (right, top), (right, radius)],
                Reason.CONTRADICTION: [*lower, (right, radius), (right, start)],
            }

        marks = (radius, ratio * radius)
        return Drawing(marks, areas, (Reason.OVERLAP,)) if np.isfinite(radius) else None


def _least_ratio(own: Floats, other: Floats) -> Floats:
    """The least number whose product with `own` reaches `other`, as the rule rounds it."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quotient = other / own
        below = np.nextafter(quotient, 0)
        least = np.where(quotient * own >= other, quotient, np.nextafter(quotient, np.inf))
        least = np.where(below * own >= other, below, least)
    return np.where(np.isinf(other), np.inf, least)  # a class without samples is never reached


def _count_up_to(ranks: Ints, n: int) -> Ints:
    """How many of the ranks are at most 0, 1, ..., n - 1."""
    return np.cumsum(np.bincount(ranks, minlength=n))
