"""Nearest, the paper's k-NN.

    reach       r_k
    pure        where no other class is as near as the k-th neighbor
    removals    N - k + 1 of the N samples nearer than any other class

It has no radius to choose; the user gives k, or matches a coverage.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.evidence import Evidence, distances_for_and_against
from iknow.core.quorum import ONE, Quorum, ValidationEvidence, find_contrast, quorum_of
from iknow.core.rule import Horizon, ParameterSettings, Rule, Stability
from iknow.core.slack import parameter_settings
from iknow.errors import InputError
from iknow.rules.ball import count_within


@dataclass(frozen=True, repr=False)
class Nearest(Rule):
    """The k nearest training samples, however far (the paper's k-NN).

    Args:
        k: How many, at least 1. Samples tied with the k-th all count.
        quorum: How many samples a class needs to count, or two numbers (for, against).

    Examples:
        >>> from iknow import Nearest
        >>> Nearest(5)
        Nearest(k=5)
    """

    k: int
    quorum: Quorum = field(default=ONE, kw_only=True)

    neighbors_to_match = 200

    def reach(self, evidence: Evidence) -> Floats:
        return evidence.neighbor_distance(self.k)

    @property
    def horizon(self) -> Horizon:
        return Horizon(k=self.k)

    def removals(self, evidence: Evidence, belief: Ints) -> Stability:
        if self.quorum != ONE:
            return super().removals(evidence, belief)
        return count_votes(evidence, self.k, belief)

    def settings(self, evidence: Evidence) -> ParameterSettings:
        return parameter_settings(self, "k", evidence, np.arange(1, evidence.n_neighbors + 1))

    @classmethod
    def why_not_for_coverage(cls) -> str:
        return (
            f"{cls.__name__} has no radius, and k=1 always covers the most: fix it with "
            "neighborhoods=..., or match a coverage with tune(..., coverage=0.7)"
        )

    @classmethod
    def match(
        cls, evidence: ValidationEvidence, belief: Ints, y_true: Ints, coverage: float
    ) -> dict[str, Nearest]:
        k = match_k(evidence, belief, coverage)
        return dict.fromkeys(evidence, cls(k, quorum=quorum_of(evidence)))


def count_votes(evidence: Evidence, k: int, belief: Ints) -> Stability:
    """How many samples must go before the k nearest no longer have one class."""
    run = count_within(evidence, np.inf, belief)
    _, other = distances_for_and_against(evidence, belief)
    # Without another class the k nearest have one class to the last of them.
    return Stability(np.maximum(run.at_least - k + 1, 1), run.exact & np.isfinite(other))


def match_k(evidence: ValidationEvidence, belief: Ints, coverage: float) -> int:
    """Return the k for which `Nearest(k)` in every layer comes closest to a coverage.

    Of equals it is the smallest, and none beyond the neighbor distances that the `evidence` holds.
    `belief` has shape (n,), and `coverage` is the fraction of IK.

    Examples:
        >>> match_k(evidence, belief, 0.8)
        6
    """
    largest = min(layer.n_neighbors for layer in evidence.values())
    if largest < 1:
        raise InputError("matching k needs evidence with neighbor distances: gather it with k > 0")
    first, last = known_ks(evidence, belief)
    coverages = np.array([((first <= k) & (k <= last)).mean() for k in range(1, largest + 1)])
    return int(np.abs(coverages - coverage).argmin()) + 1


def known_ks(evidence: ValidationEvidence, belief: Ints) -> tuple[Ints, Ints]:
    """The smallest and largest k for which `Nearest(k)` makes each sample IK, both of shape (n,).

    In a layer that is every k from where the k-th neighbor is as far as the belief's distance, the
    first one unless there is a quorum, up to the number of neighbors nearer than any other class.
    """
    contrasts = [find_contrast(layer, belief) for layer in evidence.values()]
    nearer = [(each.neighbor_distances < each.own[:, None]).sum(axis=1) for each in contrasts]
    alone = [(each.neighbor_distances < each.other[:, None]).sum(axis=1) for each in contrasts]
    return np.max(nearer, axis=0) + 1, np.asarray(np.min(alone, axis=0), dtype=np.int64)
