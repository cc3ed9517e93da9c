"""Bets against integrals, capitals against exact fractions."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from iknow.serve.monitor.betting import BLOCK, JUMPS, N_BETS, SETTLING, bet, play, spread, start
from iknow.serve.monitor.ranking import LEAST


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
