"""Operator norms against the singular values of the matrix written out."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from iknow.metrics.lipschitz_aten import lanczos, nonnegative_norm, operator_norm, safety_factor


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("c_in", "c_out", "stride"), [(3, 8, 1), (8, 2, 2), (1, 1, 1), (4, 4, 3)])
def test_lanczos_gives_a_bound_within_its_factor(c_in, c_out, stride, seed):
    torch.manual_seed(seed)
    module = nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1).double().requires_grad_(False)
    shape = (c_in, 8, 7)
    exact = operator_norm(module, shape, dense=True)
    bound = operator_norm(module, shape, dense=False)
    assert exact <= bound <= exact * 1.01


@pytest.mark.parametrize("values", [[1.0] * 300, [1.0, *[0.999] * 299], np.linspace(0, 1, 300)])
def test_lanczos_on_spectra_that_are_flat_crowded_or_even(values):
    """Crowded tops are what iteration finds hardest; one value alone exhausts it at once."""
    scales = torch.tensor(np.asarray(values))
    bound = operator_norm(lambda batch: batch * scales, (300,), dense=False)
    assert 1 <= bound <= 1.01


def test_too_few_steps_still_give_a_bound_if_a_loose_one():
    scales = torch.linspace(0, 1, 2000, dtype=torch.float64)
    bound = operator_norm(lambda batch: batch * scales, (2000,), dense=False, steps=12)
    assert 1 <= bound <= safety_factor(2000, 12) * (1 + 1e-8)
    assert safety_factor(2000, 12) > 1.5


@pytest.mark.parametrize("power", [0.05, 0.25, 1.0, 4.0])
def test_failures_are_as_rare_as_the_safety_factor_promises(power):
    """Seen with few steps, and a large share of failures allowed."""
    steps, size, failure, runs = 6, 200, 0.2, 200
    squares = torch.linspace(0, 1, size, dtype=torch.float64) ** power
    factor = safety_factor(size, steps, failure)
    norms = [math.sqrt(lanczos(lambda v: v * squares, size, steps, seed)) for seed in range(runs)]
    assert max(norms) <= 1 + 1e-12
    assert np.mean([norm * factor < 1 for norm in norms]) <= failure


def test_an_iterated_norm_alone_is_too_small():
    """One large value among many is missed by an unlucky start: the factor is not idle."""
    steps, size, failure, runs = 2, 2000, 0.5, 400
    squares = torch.linspace(0, 0.9, size, dtype=torch.float64)
    squares[0] = 1
    factor = safety_factor(size, steps, failure)
    norms = [math.sqrt(lanczos(lambda v: v * squares, size, steps, seed)) for seed in range(runs)]
    assert np.median(norms) < 0.97
    assert np.mean([norm * factor < 1 for norm in norms]) <= failure


def test_both_ways_of_writing_out_the_matrix():
    torch.manual_seed(0)
    for n_in, n_out in ((5, 12), (12, 5)):
        module = nn.Linear(n_in, n_out).double()
        exact = np.linalg.norm(module.weight.detach().numpy(), 2)
        module.requires_grad_(False)
        assert operator_norm(module, (n_in,), dense=True) == pytest.approx(exact)


def test_an_operator_on_nothing_has_norm_0():
    assert operator_norm(lambda batch: batch, (0,)) == 0
    assert operator_norm(lambda batch: 0 * batch, (7,), dense=False) == 0


def test_the_norm_of_a_nonnegative_operator_is_bounded_from_above():
    generator = torch.Generator().manual_seed(0)
    for rows, columns in ((5, 9), (9, 5), (7, 7)):
        matrix = torch.rand(rows, columns, dtype=torch.float64, generator=generator) ** 8
        matrix[:, 0] = 0
        exact = float(torch.linalg.matrix_norm(matrix, 2))
        for steps in (1, 3, 30):
            bound = nonnegative_norm(lambda v, m=matrix: v @ m.T, (columns,), steps)
            assert exact <= bound
        assert bound <= 1.01 * exact
