"""Betting: the capital of a gambler who bets against uniform ranks is evidence of drift.

A bet is a density f on (0, 1). Whoever stakes everything on it multiplies the capital by f(p). If p
is uniform given the past, the expected factor is ∫ f = 1: the capital, starting at 1, is a
martingale, and by Ville's inequality

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

import numpy as np

from iknow.core.arrays import Floats, Ints

BLOCK = 16
"""Steps between two times that capital is spread anew. No product of so few factors overflows."""

JUMPS: Floats = np.array([0.05, 0.005, 0.0])
"""Shares that are spread anew after each block; the last is `BLOCK / (t + SETTLING)` instead."""

SETTLING = 100
TILTS = (-0.8, -0.3, 0.3, 0.8)
NO_BET = 0.5
"""Part of the capital that is spread to the bet that neither wins nor loses."""

N_BETS = 7 + len(TILTS)


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
