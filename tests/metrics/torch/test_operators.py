"""Operator norms against the singular values of the matrix written out."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from iknow.metrics.torch.module import lipschitz_constants
from iknow.metrics.torch.operators import lanczos, operator_norm, safety_factor

PADDINGS = [
    *[(0, "zeros"), (1, "zeros"), (2, "zeros"), ("same", "zeros"), ("valid", "zeros")],
    *[(1, "reflect"), (2, "replicate"), (2, "circular"), ("same", "reflect")],
]


def matrix_of(function, shape):
    """The operator column by column, in float64, by nothing but applying it."""
    zero = function(torch.zeros(1, *shape, dtype=torch.float64))
    columns = []
    for i in range(math.prod(shape)):
        unit = torch.zeros(math.prod(shape), dtype=torch.float64)
        unit[i] = 1
        columns.append((function(unit.reshape(1, *shape)) - zero).flatten().detach().numpy())
    return np.stack(columns, axis=1)


def exactly(module, shape):
    return np.linalg.norm(matrix_of(module.double().eval(), shape), 2)


def some_convolutions():
    """Convolutions with every padding, stride, dilation and number of groups that go together."""
    for padding, mode in PADDINGS:
        for stride in (1, 2, 3) if padding != "same" else (1,):
            for dilation, groups in ((1, 1), (2, 2)):
                options = {
                    "padding": padding,
                    "padding_mode": mode,
                    "stride": stride,
                    "dilation": dilation,
                    "groups": groups,
                }
                yield pytest.param(options, id=f"{mode}-{padding}-{stride}-{dilation}-{groups}")


@pytest.mark.parametrize("options", list(some_convolutions()))
def test_a_convolutions_constant_is_the_norm_of_its_operator(options):
    torch.manual_seed(0)
    module = nn.Conv2d(2, 4, 3, **options)
    constants = lipschitz_constants(module, (2, 7, 6))
    assert constants["output"] == pytest.approx(exactly(module, (2, 7, 6)), rel=2e-9)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv1d(3, 5, 4, stride=2, padding=3), (3, 11)),
        (nn.Conv1d(3, 5, 4, padding="same", dilation=2), (3, 9)),
        (nn.Conv3d(2, 3, (1, 2, 3), padding=1, stride=(1, 2, 1)), (2, 3, 4, 3)),
        (nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1), (2, 3, 4)),
        (nn.AvgPool1d(3, stride=1, padding=1), (2, 8)),
        (nn.AvgPool2d(3, stride=2, ceil_mode=True, count_include_pad=False, padding=1), (2, 6, 6)),
        (nn.AvgPool2d(2, divisor_override=1), (1, 6, 6)),
        (nn.AvgPool3d(2, stride=1), (2, 3, 3, 4)),
        (nn.AdaptiveAvgPool1d(3), (2, 7)),
        (nn.AdaptiveAvgPool2d((2, None)), (2, 5, 4)),
        (nn.AdaptiveAvgPool3d(2), (1, 3, 3, 3)),
        (nn.ReflectionPad2d(2), (2, 4, 5)),
        (nn.ConstantPad1d(2, 7.0), (2, 4)),
        (nn.PixelShuffle(2), (4, 3, 3)),
        (nn.Linear(6, 9), (6,)),
        (nn.Linear(6, 9), (4, 6)),
    ],
)
def test_constants_of_affine_modules_are_the_norms_of_their_operators(module, shape):
    found = lipschitz_constants(module, shape)["output"]
    assert found == pytest.approx(exactly(module, shape), rel=2e-9)


def test_the_norm_of_the_reshaped_kernel_is_another_number():
    """It can be too small, so it is no bound, and it knows nothing of stride and input size."""
    averaging = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    nn.init.ones_(averaging.weight)
    reshaped = np.linalg.norm(averaging.weight.detach().numpy().reshape(1, 9), 2)
    assert reshaped == pytest.approx(3)
    small = lipschitz_constants(averaging, (1, 4, 4))["output"]
    large = lipschitz_constants(averaging, (1, 16, 16))["output"]
    assert reshaped < 6.8 < small < 6.9 < 8.7 < large < 9
    striding = nn.Conv2d(1, 1, 3, stride=3, bias=False)
    nn.init.ones_(striding.weight)
    assert lipschitz_constants(striding, (1, 9, 9))["output"] == pytest.approx(3)


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


def test_a_large_convolution_is_bounded_and_hardly_more():
    """The oracle is the Fourier transform, exact for circular padding."""
    torch.manual_seed(0)
    n = 24
    module = nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular", bias=False)
    kernel = np.fft.fft2(module.weight.detach().double().numpy(), s=(n, n))
    exact = np.linalg.norm(np.moveaxis(kernel, (0, 1), (2, 3)), 2, axis=(2, 3)).max()
    bound = lipschitz_constants(module, (4, n, n))["output"]
    assert exact <= bound <= exact * 1.01


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
