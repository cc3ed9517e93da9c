"""RelativeBall, ours and not the paper's.

    near        d_g <= ε and r_10 <= seen: else nothing counts
    reach       ratio · d_g for another class, if near; the belief itself counts if near
    pure        ε in [d_g, inf) and ratio in [0, d_¬g / d_g), or ratio 0
    removals    the samples of g with d_g^(j) <= ε and ratio · d_g^(j) < d_¬g, while r_10 <= seen
    changes     t with d_g^(for + t) <= ε and ratio · d_g^(for + t) < d_¬g^(against - t), and
                r_(10 + t) <= seen

Supports depend on the belief. Two questions have an answer each: what is it, by the distances to
the classes; and was anything like it seen, by r_10, the distance to the tenth nearest sample of any
class, which a few strange samples in training do not shorten. With radius inf and ratio 0 only the
second is asked: no other class contradicts, wherever it is.

The last line: t changes can push d_g^(for) out to d_g^(for + t) at most, by removing the nearest of
g, and r_10 to r_(10 + t), and pull d_c^(against) in to d_c^(against - t) at most, by adding t to c
at the query itself. Relabeling does both, so for ratio >= 1 the bound is attained.

Coverage grows with the radii and falls with the ratio, so maximizing it cannot choose them. Levels
(`iknow.core.level`) turn all of them together, along one path.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Reason
from iknow.core.evidence import Evidence, believed, distances_for_and_against
from iknow.core.level import NEIGHBORS, least_ratio
from iknow.core.quorum import ONE, Contrast, Quorum, ValidationEvidence, find_contrast, weigh
from iknow.core.rule import (
    NO_REACH,
    Areas,
    Drawing,
    Horizon,
    Limits,
    Rule,
    Stability,
    check_radius,
    parameter,
)
from iknow.core.slack import count_nearest, lost_with_either, radius_settings
from iknow.core.text import as_real
from iknow.errors import SelectionError
from iknow.rules.ball import count_own

RATIOS = 256  # to try when matching a coverage
LEAST = float(np.nextafter(0, 1))


def check_ratio(ratio: object) -> float:
    return as_real(ratio, "a ratio", "be a finite number >= 0", lambda r: 0 <= r < math.inf)


@dataclass(frozen=True, repr=False)
class RelativeBall(Rule):
    """Other classes up to `ratio` times as far as the belief, if that lies within the radius.

    It looks closely where data is dense and widely where it is sparse, and still finds nothing
    where it would have to extrapolate. A fixed radius or a fixed k cannot do both.

    Args:
        radius: How far the nearest sample of the believed class may be, a number >= 0.
        ratio: How many times as far another class still contradicts, a finite number >= 0. With 0
            none does.
        seen: How far the tenth nearest training sample of any class may be.
        quorum: How many samples a class needs to count, or two numbers (for, against).

    Examples:
        >>> from iknow import RelativeBall
        >>> RelativeBall(0.5, 1.2, quorum=(1, 3))
        RelativeBall(radius=0.5, ratio=1.2, seen=inf, quorum=(1, 3))
    """

    radius: float
    ratio: float
    seen: float = math.inf
    quorum: Quorum = field(default=ONE, kw_only=True)

    checks: ClassVar[dict[str, Any]] = {**Rule.checks, "ratio": check_ratio, "seen": check_radius}
    axes = ("radius", "ratio")
    by_level = True
    quorums = ((1, 3), (3, 3), (5, 5))  # two wrong labels nearby contradict nothing
    empty_beyond = parameter("radius")
    lead = parameter("ratio")
    settings = radius_settings

    @property
    def n_neighbors(self) -> int:
        """As many as `changes` could ever be harmless besides those that `seen` asks about."""
        return 0 if self.seen == math.inf else NEIGHBORS + self.quorum[1] - 1

    def reach(self, evidence: Evidence) -> Floats:
        weighed = weigh(evidence, ONE)
        own = believed(weighed.distances[:, :, 0], weighed.belief)
        near = (own <= self.radius) & np.isfinite(own)  # a belief without samples is not near
        if self.seen < math.inf:
            near &= weighed.neighbor_distance(NEIGHBORS) <= self.seen
        reach = np.full(len(own), NO_REACH)
        if self.ratio > 0:
            with np.errstate(over="ignore"):
                reach[near] = self.ratio * own[near]
        if self.ratio >= 1:
            return reach
        # The belief itself counts all the same.
        reaches = np.repeat(reach[:, None], evidence.n_classes, axis=1)
        reaches[near, weighed.belief[near]] = own[near]
        return reaches

    @property
    def horizon(self) -> Horizon:
        return Horizon(ratio=self.ratio)

    @classmethod
    def box(cls, contrast: Contrast, k: int | None) -> list[tuple[Floats, Floats]]:
        n = len(contrast)
        # With the ratio 0 it is pure even if another class lies at distance 0.
        least = np.maximum(least_ratio(contrast.own, contrast.other), LEAST)
        return [(contrast.own, np.full(n, np.inf)), (np.zeros(n), least)]

    def removals(self, evidence: Evidence, belief: Ints) -> Stability:
        of_belief = self._own_removals(evidence, belief)
        if self.seen == math.inf:
            return of_belief
        near = count_nearest(evidence, evidence.neighbor_distances <= self.seen)
        spare = np.maximum(near.at_least - NEIGHBORS + 1, 1)
        return lost_with_either(of_belief, Stability(spare, near.exact))

    def _own_removals(self, evidence: Evidence, belief: Ints) -> Stability:
        """How many samples of the believed class must go, whatever `seen` asks for."""
        if self.quorum == ONE and evidence.per_class == 1:
            _, other = distances_for_and_against(evidence, belief)
            distances = evidence.neighbor_distances
            # Those nearer than another class are of the believed one.
            own = np.where(distances < other[:, None], distances, np.inf)
            nearer = count_nearest(evidence, self._supports(own, other))
            # With a ratio below 1 those further than another class may count as well.
            return Stability(nearer.at_least, nearer.exact & (self.ratio >= 1))
        _, other = distances_for_and_against(weigh(evidence, self.quorum, belief), belief)
        own = believed(evidence.distances, belief)
        return count_own(evidence, self._supports(own, other), self)

    def changes(self, evidence: Evidence, belief: Ints) -> Ints:
        ranked = evidence.distances.copy()
        own = believed(ranked, belief)
        ranked[np.arange(len(belief)), belief] = np.inf
        others = ranked.min(axis=1)
        needed, against = self.quorum
        most = np.zeros(len(belief), dtype=np.int64)
        kept = np.ones(len(belief), dtype=bool)
        for t in range(1, min(evidence.per_class - needed, against - 1) + 1):
            kept &= self._supports(own[:, [needed + t - 1]], others[:, against - t - 1])[:, 0]
            if self.seen < math.inf:
                at = NEIGHBORS + t
                kept &= evidence.n_neighbors >= at and evidence.neighbor_distance(at) <= self.seen
            most[kept] = t
        return most

    def _supports(self, own: Floats, other: Floats) -> Bools:
        """Whether a believed class at distances (n, m) is near, and another, (n,), out of reach."""
        with np.errstate(over="ignore", invalid="ignore"):  # where own is inf, nothing is near
            clear: Bools = (self.ratio * own < other[:, None]) | np.isinf(other)[:, None]
        if self.ratio == 0:
            clear = np.ones_like(clear)
        return (own <= self.radius) & np.isfinite(own) & clear

    @classmethod
    def why_not_for_coverage(cls) -> str:
        return (
            f"maximizing coverage cannot choose a {cls.__name__}, as coverage always grows with "
            "the radius and falls with the ratio: leave the method out, and levels choose it"
        )

    @classmethod
    def match(
        cls, evidence: ValidationEvidence, belief: Ints, y_true: Ints, coverage: float
    ) -> dict[str, RelativeBall]:
        # One ratio for all layers, and radii at one common rank of the distances to the belief. For
        # each of many ratios we take the rank whose number of IK samples is nearest to the target;
        # of the nearest ratios the one with the fewest errors, and of equals the largest.
        contrasts = [find_contrast(layer, belief) for layer in evidence.values()]
        radii = np.column_stack([each.own for each in contrasts])
        ratios = np.min([least_ratio(each.own, each.other) for each in contrasts], axis=0)
        able = np.sort(ratios[ratios > 1])
        if len(able) == 0:
            raise SelectionError(
                f"no {cls.__name__} makes any validation sample IK: none is nearest to its "
                "believed class in every layer"
            )
        ordered = np.sort(radii, axis=0)
        # From this rank on a sample is within the radii in every layer.
        ranks = np.max(list(map(np.searchsorted, ordered.T, radii.T)), axis=0)
        limits = able[np.linspace(0, len(able) - 1, RATIOS).astype(int)]
        tries: list[tuple[float, int, float, int]] = []
        for ratio in np.unique(np.append(1.0, limits[limits < able[-1]])).tolist():
            clear = ratios > ratio
            known, wrong = (  # at each rank
                np.cumsum(np.bincount(ranks[these], minlength=len(ranks)))
                for these in (clear, clear & (belief != y_true))
            )
            misses = np.where(known > 0, np.abs(known - coverage * len(ranks)), np.inf)
            rank = int(np.lexsort((wrong, misses))[0])
            tries.append((float(misses[rank]), int(wrong[rank]), -ratio, rank))
        *_, ratio, rank = min(tries)
        return {
            layer: cls(float(radius), -ratio, quorum=contrasts[0].quorum)
            for layer, radius in zip(evidence, ordered[rank], strict=True)
        }

    def drawing(self) -> Drawing | None:
        # It compares the two distances: its line is a ray through the origin, up to ε.
        radius, ratio = self.radius, self.ratio

        def areas(x_limits: Limits, y_limits: Limits) -> Areas:
            (left, right), bottom = x_limits, min(y_limits[0], ratio * x_limits[0])
            top = max(y_limits[1], ratio * radius)
            ray = [(left, ratio * left), (radius, ratio * radius)]
            far = [(radius, bottom), (right, bottom), (right, top), (radius, top)]
            above, below = [(radius, top), (left, top)], [(radius, bottom), (left, bottom)]
            near = {Reason.KNOWN: ray + above, Reason.OVERLAP: ray + below}
            return near | {Reason.EXTRAPOLATION: far}

        marks = (radius, ratio * radius) if ratio > 1 else (radius,)
        return Drawing(marks, areas, across=False) if np.isfinite(radius) else None
