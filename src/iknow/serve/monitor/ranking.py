"""Ranks: each new score among all scores before it, as a p-value that is uniform without drift.

A pool holds the reference scores and, as they arrive, the scores of the stream. With N scores in
the pool, the rank of a new score s is

    p = (number of scores below s  +  θ · (1 + number of scores equal to s)) / (N + 1)

with θ drawn uniformly from (0, 1). If reference and stream are exchangeable (in any order equally
likely, as independent draws from one distribution are), the ranks p1, p2, ... are independent and
uniform on (0, 1): exactly, for any N, an empty pool included, and with any number of ties (Vovk,
Gammerman and Shafer, Algorithmic Learning in a Random World, 2005, chapter 8).

To rank against a fixed reference set instead would be wrong in the long run. The shares of n
reference samples differ from the true probabilities by about 1/√n, so these ranks are not uniform
given the reference set, and an endless stream is sure to find that out.

Where one stream feeds several pools (all samples, the samples of one class), a score is ranked
within its own pool. Given which samples belong to it, they are exchangeable too.

A score between 0 and 1 becomes one of a fixed number of bins, lower for stranger: an alarm
remembers all scores it has seen. In bins that takes the same memory after a thousand samples and
after a billion. The edges are fixed numbers: had the reference samples chosen them, these would no
longer be exchangeable with the samples to come, and the promise would be gone.

Drift shows first in the lowest levels, so bins are finer there: 64 of equal width from 1/8 up, and
below eight to each halving, down to 2^-14, about one in 16,000. Level 0, never IK, and level 1 have
bins of their own, as many samples may share them. All edges are exact binary fractions, the same on
every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.text import shown
from iknow.errors import InputError

LOWEST_OCTAVE = -14
OCTAVES = [np.ldexp(1 + np.arange(8) / 8, exponent) for exponent in range(LOWEST_OCTAVE, -3)]
EDGES: Floats = np.concatenate([[np.nextafter(0.0, 1.0)], *OCTAVES, np.arange(8, 65) / 64])
"""The lower ends of all bins but the first, which holds 0 alone, ascending."""

N_BINS = len(EDGES) + 1


def find_bins(scores: Any, what: str) -> Ints:
    """The bin of each score, from 0 for a score of 0 to `N_BINS - 1` for 1, in their shape.

    Examples:
        >>> find_bins([0.0, 0.5, 1.0], "levels").tolist()
        [0, 114, 146]
    """
    try:
        found = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.array(np.nan)
    if not ((found >= 0) & (found <= 1)).all():  # NaN is neither
        raise InputError(f"{what} must be numbers from 0 to 1; got {shown(scores)}")
    return np.searchsorted(EDGES, found, side="right")


LEAST = 2.0**-53
"""θ and p stay this far from 0 and 1, where a bet could win infinitely much."""


def draw_ties(generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """θ for each score, uniform on (0, 1); row after row, so batches may be cut anywhere."""
    return np.maximum(generator.random(shape), LEAST)


def rank(counts: Ints, bins: Ints, ties: Floats) -> Floats:
    """The rank p of one new score in each of several pools.

    counts: how many scores of the pool are in each bin, of shape (..., n_bins). bins: of the new
    scores, of shape (...). ties: θ, of shape (...).
    """
    places = np.arange(counts.shape[-1])
    below = np.where(places < bins[..., None], counts, 0).sum(axis=-1)
    equal = np.take_along_axis(counts, bins[..., None], axis=-1)[..., 0]
    return _share(below, equal, counts.sum(axis=-1), ties)


def rank_in_turn(counts: Ints, pools: Ints, bins: Ints, ties: Floats) -> Floats:
    """The ranks of n samples that arrive one after another, and join the pools.

    Args:
        counts: By pool, how many scores are in each bin, of shape (n_pools, n_bins). Changed in
            place.
        pools: Which pool a score belongs to, of shape (n, m): each sample has m scores, in columns
            whose pools do not overlap.
        bins: Of shape (n, m).
        ties: θ, of shape (n, m).

    Returns:
        p, of shape (n, m).
    """
    used, rows = np.unique(pools, return_inverse=True)  # of very many pools
    rows = rows.reshape(pools.shape)
    running = counts[used].cumsum(axis=1)
    equal, held = counts[pools, bins], running[rows, -1]
    below = running[rows, bins] - equal
    # Those that arrived earlier in this batch: pairs (new, earlier), a column at a time.
    earlier = np.tri(len(bins), k=-1, dtype=bool)
    for column in range(bins.shape[1]):
        pool, score = pools[:, column], bins[:, column]
        together = earlier & (pool[:, None] == pool)  # all earlier ones, or those of the class
        below[:, column] += (together & (score < score[:, None])).sum(axis=1)
        equal[:, column] += (together & (score == score[:, None])).sum(axis=1)
        held[:, column] += together.sum(axis=1)
    np.add.at(counts, (pools, bins), 1)
    return _share(below, equal, held, ties)


def _share(below: Ints, equal: Ints, held: Ints, ties: Floats) -> Floats:
    found: Floats = np.clip((below + ties * (equal + 1)) / (held + 1), LEAST, 1 - LEAST)
    return found
