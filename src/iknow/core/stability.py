"""Stability: how many training samples an adversary must remove before an IK is lost.

Each rule says how many that is in a layer: its `removals`. The model is not trained again on what
is left. Changed labels are another matter: a single one within reach turns IK into IMK, whatever
the rule.

The counts come from the neighbor distances, without a second search. If all that the evidence holds
are within the limit there may be more, and the count is a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from iknow.core.arrays import Bools, Ints
from iknow.core.evidence import Evidence
from iknow.core.overriding import said

if TYPE_CHECKING:
    from iknow.core.neighborhood import Neighborhood


@dataclass(frozen=True, eq=False)
class Stability:
    """How many training samples you must remove to lose each IK; 0 where there is no IK.

    Attributes:
        at_least: Lower bounds of shape (n,).
        exact: Mask of shape (n,), True where the bound is the exact number.
    """

    at_least: Ints
    exact: Bools

    def __len__(self) -> int:
        return len(self.at_least)


def find_stability(
    evidence: Sequence[Evidence], neighborhoods: Sequence[Neighborhood], belief: Ints, known: Bools
) -> Stability:
    """The stability of each IK: it is lost with the first layer that no longer supports it alone.

    evidence, neighborhoods: one per layer. belief: class codes of shape (n,). known: mask of shape
    (n,) of the samples that are IK.
    """
    layers = zip(evidence, neighborhoods, strict=True)
    whole: Stability = reduce(
        lost_with_either, (said(rule, "removals")(about, belief) for about, rule in layers)
    )
    return Stability(np.where(known, whole.at_least, 0), whole.exact | ~known)


def count_nearest(evidence: Evidence, counted: Bools) -> Stability:
    """How many neighbors count, by a mask of shape (n, k); with an IK at least one does."""
    counts = (counted & np.isfinite(evidence.neighbor_distances)).sum(axis=1)
    return Stability(np.maximum(counts, 1), counts < evidence.n_neighbors)


def lost_with_either(one: Stability, other: Stability) -> Stability:
    """The stability of what is lost as soon as either is."""
    fewest = np.minimum(one.at_least, other.at_least)
    exact = (one.exact & (one.at_least == fewest)) | (other.exact & (other.at_least == fewest))
    return Stability(fewest, exact)


def lost_with_both(one: Stability, other: Stability) -> Stability:
    """The stability of what is lost only when both are."""
    return Stability(np.maximum(one.at_least, other.at_least), one.exact & other.exact)
