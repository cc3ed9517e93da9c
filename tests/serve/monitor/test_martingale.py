"""Ranks against a loop that sorts nothing and remembers everything; bets against integrals;
capitals against exact fractions.
"""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import kstest

from iknow.errors import InputError
from iknow.serve.monitor.martingale import (
    BLOCK,
    EDGES,
    JUMPS,
    LEAST,
    N_BETS,
    N_BINS,
    SETTLING,
    bet,
    draw_ties,
    find_bins,
    play,
    rank_in_turn,
    spread,
    start,
)


def rank_by_hand(pool, score, tie):
    below, equal = sum(s < score for s in pool), sum(s == score for s in pool)
    return (below + tie * (equal + 1)) / (len(pool) + 1)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(0, 12), st.integers(0, 12), st.integers(1, 4))
def test_ranks_are_those_of_the_definition(seed, n_before, n, n_bins):
    rng = np.random.default_rng(seed)
    before, new = rng.integers(0, n_bins, (n_before, 2)), rng.integers(0, n_bins, (n, 2))
    classes_before, classes = rng.integers(1, 3, n_before), rng.integers(1, 3, n)
    pools = {pool: [] for pool in range(3)}
    counts = np.zeros((3, n_bins), dtype=np.int64)
    for scores, code in zip(before.tolist(), classes_before.tolist(), strict=True):
        for pool, score in zip((0, code), scores, strict=True):
            pools[pool].append(score)
            counts[pool, score] += 1
    where = np.column_stack([np.zeros(n, np.int64), classes])
    ties = draw_ties(rng, (n, 2))
    found = rank_in_turn(counts, where, new, ties)
    for i in range(n):
        for column in range(2):
            pool = pools[int(where[i, column])]
            expected = rank_by_hand(pool, int(new[i, column]), ties[i, column])
            assert found[i, column] == pytest.approx(expected, rel=1e-15)
            pool.append(int(new[i, column]))
    for pool, scores in pools.items():
        assert counts[pool].tolist() == np.bincount(scores, minlength=n_bins).tolist()


@pytest.mark.parametrize("levels", ["continuous", "ties", "all equal"])
@pytest.mark.parametrize("n_before", [0, 20])
def test_ranks_are_uniform_and_uncorrelated(levels, n_before):
    rng = np.random.default_rng(1)
    draw = {
        "continuous": lambda n: rng.random(n) ** 3,
        "ties": lambda n: rng.choice([0.0, 0.25, 0.5, 1.0], n, p=[0.1, 0.2, 0.3, 0.4]),
        "all equal": lambda n: np.full(n, 0.5),
    }[levels]
    ranks = []
    for _ in range(400):
        counts = np.bincount(find_bins(draw(n_before), "levels"), minlength=N_BINS)[None]
        bins = find_bins(draw(25), "levels")[:, None]
        ranks.append(rank_in_turn(counts, np.zeros_like(bins), bins, draw_ties(rng, bins.shape)))
    ranks = np.concatenate(ranks, axis=1)
    assert kstest(ranks.ravel(), "uniform").pvalue > 1e-4
    assert kstest(ranks[-1], "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(ranks[:-1].ravel(), ranks[1:].ravel())[0, 1]) < 4 / 100


def test_a_fixed_reference_would_not_do():
    """Why the stream joins the pool: ranks against 20 samples alone are not uniform given them."""
    rng = np.random.default_rng(0)
    reference, stream = np.sort(rng.random(20)), rng.random(20_000)
    fixed = (np.searchsorted(reference, stream) + rng.random(20_000)) / 21
    assert kstest(fixed, "uniform").pvalue < 1e-9


def test_bins_are_fixed_and_finer_near_zero():
    assert (np.diff(EDGES) > 0).all()
    assert find_bins([0, 5e-324, 1], "x").tolist() == [0, 1, N_BINS - 1]
    assert find_bins(1 - 2**-53, "x") == N_BINS - 2
    assert find_bins(0.0101, "x") > find_bins(0.01, "x") - 1
    assert find_bins(0.002, "x") != find_bins(0.003, "x")
    edges = EDGES[EDGES >= 2**-14]
    assert (edges * 2**17 == np.rint(edges * 2**17)).all()  # exact on every machine


@pytest.mark.parametrize("wrong", [[np.nan], [-0.1], [1.1], [np.inf], ["x"], [None], [[1], [2, 3]]])
def test_scores_beyond_zero_and_one_are_refused(wrong):
    with pytest.raises(InputError, match="levels must be numbers from 0 to 1"):
        find_bins(wrong, "levels")


@pytest.mark.parametrize("which", range(N_BETS))
def test_every_bet_is_fair(which):
    integral, _ = quad(lambda p: bet(np.array(p))[which], 0, 1, limit=200)
    assert integral == pytest.approx(1, abs=1e-6)


def test_no_bet_loses_everything():
    p = np.array([LEAST, 0.25, 0.5, 0.75, 1 - LEAST])
    assert (bet(p) > 0).all()
    assert np.isfinite(bet(p)).all()


def capital_in_fractions(factors):
    """The definition, in rational numbers: bet, and after each block spread a share anew."""
    prior = [Fraction(each) for each in spread(factors.shape[1])]
    stakes = [[each / len(JUMPS) for each in prior] for _ in JUMPS]
    found = []
    for t, row in enumerate(factors.tolist(), 1):
        stakes = [[s * Fraction(f) for s, f in zip(m, row, strict=True)] for m in stakes]
        found.append(sum(map(sum, stakes)))
        if t % BLOCK == 0:
            jumps = [*map(Fraction, JUMPS[:-1]), Fraction(BLOCK, t + SETTLING)]
            stakes = [
                [(1 - j) * s + j * sum(m) * share for s, share in zip(m, prior, strict=True)]
                for m, j in zip(stakes, jumps, strict=True)
            ]
    return found


@settings(max_examples=6)
@given(st.integers(0, 2**32), st.sampled_from([1, 15, 16, 17, 35]))
def test_capital_is_that_of_exact_arithmetic(seed, n):
    p = np.random.default_rng(seed).random(n) ** 2
    factors = bet(np.clip(p, LEAST, 1 - LEAST))
    stakes, exponents = start(())
    _, _, found = play(stakes, exponents, factors, 0)
    expected = [float(each) for each in capital_in_fractions(factors)]
    assert 2.0**found == pytest.approx(expected, rel=1e-9)


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 70), max_size=8))
def test_cuts_change_no_bit(seed, cuts):
    factors = bet(np.random.default_rng(seed).random((70, 3)))
    whole = play(*start((3,)), factors, 0)
    stakes, exponents = start((3,))
    found = []
    edges = [0, *sorted(cuts), 70]
    for first, last in pairwise(edges):
        if first < last:
            stakes, exponents, part = play(stakes, exponents, factors[first:last], first)
            found.append(part)
    assert np.array_equal(stakes, whole[0])
    assert np.array_equal(exponents, whole[1])
    assert np.array_equal(np.concatenate(found), whole[2])


@pytest.mark.parametrize("p", [LEAST, 1 - LEAST, 0.5])
def test_capital_neither_overflows_nor_vanishes(p):
    factors = np.broadcast_to(bet(np.array(p)), (20_000, N_BETS))
    stakes, exponents, found = play(*start(()), factors, 0)
    assert np.isfinite(found).all()
    assert np.isfinite(stakes).all()
    assert (stakes.sum(axis=-1) > 0).all()
    assert found[-1] > 1e5 if p < 0.1 else found[-1] > -2000
    _, _, after = play(stakes, exponents, np.broadcast_to(bet(np.array(0.7)), (99, N_BETS)), 20_000)
    assert np.isfinite(after).all()


def test_a_long_quiet_time_costs_little():
    """A change after 50,000 ordinary samples still shows: one strategy wastes a power of t only."""
    rng = np.random.default_rng(0)
    stakes, exponents, _ = play(*start(()), bet(rng.random(50_000)), 0)
    _, _, found = play(stakes, exponents, bet(rng.random(300) ** 4), 50_000)
    assert found[-1] > np.log2(1e6)
