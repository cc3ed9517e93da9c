"""Stability: how much of the training set an adversary must change before an IK is lost.

Each rule says, for a layer, how many samples must be removed (`removals`), and how many may be
added, removed or relabeled at will without harm (`changes`). The model is not trained again. With a
quorum of one against, a single wrong label within reach turns IK into IMK, and no change at all is
harmless; a larger quorum buys a certificate against poisoned data.

The counts come from the distances that the evidence holds, without a second search. If all of them
are within the limit there may be more, and the count is a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from iknow.core.arrays import Bools, Ints
from iknow.core.evidence import Evidence
from iknow.core.rule import Rule, Stability, promise_of


def find_stability(
    evidence: Sequence[Evidence], rules: Sequence[Rule], belief: Ints, known: Bools
) -> Stability:
    """The stability of each IK: it is lost with the first layer that no longer supports it alone.

    evidence, rules: one per layer. belief: class codes of shape (n,). known: mask of shape
    (n,) of the samples that are IK.
    """
    layers = list(zip(evidence, rules, strict=True))
    removals = [promise_of(rule, "removals")(about, belief) for about, rule in layers]
    whole: Stability = reduce(lost_with_either, removals)
    # A changed sample changes in every layer at once, so the weakest layer decides.
    changes = np.min([promise_of(rule, "changes")(about, belief) for about, rule in layers], axis=0)
    kept = np.where(known, whole.at_least, 0), whole.exact | ~known, np.where(known, changes, 0)
    return Stability(*kept)


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
