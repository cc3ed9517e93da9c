"""Ranks and bets: a new score among all before it, and the capital of a gambler who bets on that.

Ranks. A pool holds the reference scores and, as they arrive, the scores of the stream. With N
scores in the pool, the rank of a new score s is

    p = (number of scores below s  +  θ · (1 + number of scores equal to s)) / (N + 1)

with θ drawn uniformly from (0, 1). If reference and stream are exchangeable (in any order equally
likely, as independent draws from one distribution are), the ranks p1, p2, ... are independent and
uniform on (0, 1): exactly, for any N, an empty pool included, and with any number of ties (Vovk,
Gammerman and Shafer, Algorithmic Learning in a Random World, 2005, chapter 8).



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

Bets. A bet is a density f on (0, 1). Whoever stakes everything on it multiplies the capital by
f(p). If p is uniform given the past, the expected factor is ∫ f = 1: the capital, starting at 1, is
a martingale, and by Ville's inequality

    P(the capital ever reaches 1/α) <= α

at any time, however often one looks. So does every mixture of bets, also if the shares change
from step to step, as long as they depend on the past alone. A capital of 100 is evidence that would
be seen once in a hundred streams without drift.

The bets: none (f = 1); all samples are stranger, κ p^(κ-1) with κ = 1/2 and 1/4; some of them are,
1 - s + s κ p^(κ-1) with shares s of 8% to 40%; all are more ordinary, the mirror image of κ = 1/2;
and tilts 1 + a (2p - 1) for slight changes in either direction.

Which bet is good, and when, nobody knows beforehand. The capital is spread over the bets, and after
every `BLOCK` steps a share j of it is spread anew (the "fixed share" of Herbster and Warmuth, 1998;
with tilts a "simple jumper" of Vovk and others, 2021), so that a bet which lost before the change
comes back soon after it. A small j wastes little while nothing happens, a large one is quick; so
the capital starts divided between several strategies, each with its j. That of the last falls as
BLOCK / (t + 100) after t steps: it wastes no more than a power of t however long the stream is.

Capital is kept as a fraction times a power of two, so it neither overflows nor vanishes. All but
the last logarithm is arithmetic in a fixed order, the same however a stream is cut into batches.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.text import shown
from iknow.errors import InputError

OCTAVES = [np.ldexp(1 + np.arange(8) / 8, exponent) for exponent in range(-14, -3)]
EDGES: Floats = np.concatenate([[np.nextafter(0.0, 1.0)], *OCTAVES, np.arange(8, 65) / 64])
"""The lower ends of all bins but the first, which holds 0 alone, ascending."""

N_BINS = len(EDGES) + 1
LEAST = 2.0**-53
"""θ and p stay this far from 0 and 1, where a bet could win infinitely much."""

LARGEST = 1e300
"""Evidence as JSON and a reader can take it; its logarithm is exact beyond."""

BLOCK = 16
"""Steps between two times that capital is spread anew. No product of so few factors overflows."""

JUMPS: Floats = np.array([0.05, 0.005, 0.0])
"""Shares that are spread anew after each block; the last is `BLOCK / (t + SETTLING)` instead."""

SETTLING = 100
TILTS = (-0.8, -0.3, 0.3, 0.8)
NO_BET = 0.5
"""Part of the capital that is spread to the bet that neither wins nor loses."""

N_BETS = 7 + len(TILTS)


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


def draw_ties(generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """θ for each score, uniform on (0, 1); row after row, so batches may be cut anywhere."""
    return np.maximum(generator.random(shape), LEAST)


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
    found: Floats = np.clip((below + ties * (equal + 1)) / (held + 1), LEAST, 1 - LEAST)
    return found


@cache
def spread(n_bets: int) -> Floats:
    """How capital is spread over the bets, the first of them none, of shape (n_bets,)."""
    return np.concatenate([[NO_BET], np.full(n_bets - 1, (1 - NO_BET) / (n_bets - 1))])


def bet(p: Floats) -> Floats:
    """By how much each bet multiplies its stake, of shape (..., N_BETS), for ranks of shape (...).

    Powers come from square roots alone, which are rounded correctly everywhere.
    """
    root = np.sqrt(p)
    half, quarter = 0.5 / root, 0.25 / (root * np.sqrt(root))
    factors = [
        np.ones_like(p),
        half,
        quarter,
        0.6 + 0.4 * half,
        0.8 + 0.2 * quarter,
        0.92 + 0.08 * quarter,
        0.5 / np.sqrt(1 - p),
        *(1 + a * (2 * p - 1) for a in TILTS),
    ]
    return np.stack(factors, axis=-1)


def start(shape: tuple[int, ...], n_bets: int = N_BETS) -> tuple[Floats, Ints]:
    """Capital 1 for each of several gamblers: stakes and powers of two.

    Returns:
        Stakes by strategy and bet, of shape (*shape, n_strategies, n_bets), and the exponents of
        the powers of two that belong to them, of shape (*shape, n_strategies).
    """
    stakes = np.broadcast_to(spread(n_bets) / len(JUMPS), (*shape, len(JUMPS), n_bets)).copy()
    return stakes, np.zeros((*shape, len(JUMPS)), dtype=np.int64)


def play(
    stakes: Floats, exponents: Ints, factors: Floats, steps: int
) -> tuple[Floats, Ints, Floats]:
    """Let gamblers bet n times, one step after another.

    Args:
        stakes: As `start` returns them.
        exponents: Likewise.
        factors: What each bet wins, of shape (n, ..., n_bets).
        steps: How many steps these gamblers have made before.

    Returns:
        Stakes and exponents after the last step, and the logarithm to base 2 of each gambler's
        capital after every step, of shape (n, ...).
    """
    n, found, first = len(factors), [], 0
    while first < n:
        last = min(n, first + BLOCK - steps % BLOCK)
        run = np.empty((last - first + 1, *stakes.shape))
        run[0], run[1:] = stakes, factors[first:last, ..., None, :]
        run = np.multiply.accumulate(run, axis=0)[1:]
        found.append(_log_capital(run.sum(axis=-1), exponents))
        stakes, steps, first = run[-1], steps + last - first, last
        if steps % BLOCK == 0:
            stakes, exponents = _spread_anew(stakes, exponents, steps)
    return stakes, exponents, np.concatenate(found)


def _spread_anew(stakes: Floats, exponents: Ints, steps: int) -> tuple[Floats, Ints]:
    """Spread a share of the capital anew over the bets, and keep the rest as it is."""
    jumps = np.append(JUMPS[:-1], BLOCK / (steps + SETTLING))
    total = stakes.sum(axis=-1)
    shift = np.frexp(total)[1]
    fresh = (jumps * total)[..., None] * spread(stakes.shape[-1])
    shared = (1 - jumps)[:, None] * stakes + fresh
    return shared * np.ldexp(1.0, -shift)[..., None], exponents + shift


def _log_capital(capital: Floats, exponents: Ints) -> Floats:
    """The logarithm to base 2 of the sum over strategies, in the last axis."""
    highest = exponents.max(axis=-1)
    # A strategy that fell more than 2^-1000 behind counts as nothing.
    scale = np.ldexp(1.0, np.maximum(exponents - highest[..., None], -1000))
    found: Floats = highest + np.log2((capital * scale).sum(axis=-1))
    return found


def as_evidence(logarithm: float) -> float:
    """Evidence from its logarithm to base 2."""
    return min(float(2.0 ** min(float(logarithm), 1000.0)), LARGEST)
