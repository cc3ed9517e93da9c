"""Every ATen operation in the tables, attacked: none stretches or rounds more than its bound.

Operations on inputs of one shape are layers of one network, so that it is exported once.
"""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from iknow.errors import LayerError
from iknow.metrics.lipschitz_aten import (
    AFFINE,
    FUNCTIONS,
    SAME,
    lanczos,
    nonnegative_norm,
    operator_norm,
    safety_factor,
)
from iknow.metrics.lipschitz_torch import SUMS, read_graph, sensitivities
from iknow.models.torch import TorchModel
from tests.metrics.bounding import lipschitz_constants


class Do(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Beside(nn.Module):
    """Modules side by side: the layers "parts.0", "parts.1", ... and two finite scores."""

    def __init__(self, parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.register_buffer("scores", torch.zeros(2))

    def forward(self, x):
        for part in self.parts:
            part(x)
        return x.flatten(1)[:, :1] * self.scores


def parts_of(modules):
    torch.manual_seed(0)
    modules = [copy.deepcopy(module) for module in modules]
    generator = torch.Generator().manual_seed(1)
    for module in modules:
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if "var" in name:
                tensor.data = torch.rand(tensor.shape, generator=generator) + 1e-3
            elif tensor.ndim and not isinstance(module, nn.PReLU):
                tensor.data = torch.randn(tensor.shape, generator=generator) * 3
    return Beside(modules).eval()


def names_of(network):
    return [f"parts.{i}" for i in range(len(network.parts))]


ENTRYWISE = [
    *(nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(0.3), nn.LeakyReLU(-2.0), nn.PReLU(init=1.7)),
    *(nn.ELU(), nn.ELU(alpha=2.5), nn.SELU(), nn.GELU(), nn.GELU("tanh"), nn.SiLU()),
    *(
        nn.Mish(),
        nn.Tanh(),
        nn.Sigmoid(),
        nn.LogSigmoid(),
    ),
    *(nn.Hardtanh(-2, 3), nn.Hardsigmoid(), nn.Hardswish(), nn.PReLU(init=-7.7)),
    *(nn.Hardtanh(-0.1, 0.3), nn.Identity(), nn.Dropout(0.9), nn.AlphaDropout(0.9)),
    *(Do(lambda x: x.clamp(min=-0.2)), Do(lambda x: x.clamp(-1, 1)), Do(torch.neg)),
    *(Do(lambda x: 2 * x), Do(lambda x: x / 4), Do(lambda x: 1 - x), Do(lambda x: x - 3)),
    *(Do(lambda x: x.clone().detach()), Do(lambda x: x + 5)),
]
FLAT = [
    *ENTRYWISE,
    *(nn.Softmax(1), nn.LogSoftmax(-1), nn.LayerNorm(6, eps=1e-3), nn.Linear(6, 5)),
    *(nn.BatchNorm1d(6), nn.Linear(6, 9, bias=False), nn.Unflatten(1, (2, 3))),
    Do(lambda x: torch.cat([x.relu(), 2 * x], 1)),
    Do(lambda x: x + x.tanh()),
    Do(lambda x: x.sigmoid() - x),
    Do(lambda x: x.unsqueeze(1).squeeze(1)),
    Do(lambda x: x.view(-1, 2, 3).flatten(1)),
    Do(lambda x: functional.max_pool1d(x.unsqueeze(1), 3, 1, 1).squeeze((1,))),
]
LINES = [
    *(nn.MaxPool1d(3, 1), nn.MaxPool1d(3, 2, padding=1), nn.MaxPool1d(3, 1, dilation=2)),
    *(nn.MaxPool1d(2, 3), nn.AdaptiveMaxPool1d(3), nn.AvgPool1d(3, 1), nn.AdaptiveAvgPool1d(3)),
    *(nn.AvgPool1d(3, 1, padding=1), nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular")),
    *(nn.Conv1d(2, 5, 4, stride=2, padding=3), nn.Conv1d(2, 5, 4, padding="same", dilation=2)),
    *(nn.ConstantPad1d(2, 7.0), nn.ReflectionPad1d(2)),
    *(nn.ReplicationPad1d(2), nn.BatchNorm1d(2), nn.Flatten(), nn.Linear(9, 4)),
    *(nn.LogSoftmax(1), nn.Softmax(2), nn.LayerNorm((2, 9), eps=1e-2)),
]
IMAGES = [
    *(nn.MaxPool2d(2), nn.MaxPool2d(3, 2), nn.MaxPool2d(3, (1, 3), (1, 0))),
    *(nn.MaxPool2d(2, 1, ceil_mode=True), nn.MaxPool2d((1, 4), 2, ceil_mode=True)),
    *(nn.AdaptiveMaxPool2d(3), nn.AdaptiveMaxPool2d((None, 1)), nn.AvgPool2d(2, 1)),
    nn.AvgPool2d(3, stride=2, ceil_mode=True, count_include_pad=False, padding=1),
    *(nn.AvgPool2d((2, 3), 1, divisor_override=1), nn.AdaptiveAvgPool2d((2, None))),
    *(nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.Conv2d(4, 2, 3, 2)),
    *(nn.Conv2d(4, 2, (1, 3), padding="same"), nn.Conv2d(4, 2, 3, padding=2, dilation=2)),
    nn.Conv2d(4, 2, 3, padding=1, padding_mode="reflect"),
    nn.Conv2d(4, 2, 3, padding=2, padding_mode="replicate"),
    *(nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False), nn.PixelShuffle(2), nn.ZeroPad2d(1)),
    *(nn.ReflectionPad2d(2), nn.Dropout2d(), nn.PReLU(4)),
    nn.Sequential(nn.Conv2d(4, 3, 3), nn.BatchNorm2d(3)),
    nn.Sequential(
        nn.Conv2d(4, 3, 2), nn.BatchNorm2d(3), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(12, 3)
    ),
]
SOLIDS = [
    *(nn.MaxPool3d(2, 1), nn.AdaptiveMaxPool3d(2), nn.AvgPool3d(2, 1), nn.AdaptiveAvgPool3d(2)),
    *(nn.Conv3d(2, 3, (1, 2, 3), padding=1, stride=(1, 2, 1)), nn.Conv3d(2, 2, 3, padding="same")),
    nn.BatchNorm3d(2, eps=0.1),
]
NORMS = [nn.LayerNorm(6), nn.LayerNorm(6, eps=1e-3, elementwise_affine=False)]
SHAPES = {
    "flat": (FLAT, (6,)),
    "lines": (LINES, (2, 9)),
    "images": (IMAGES, (4, 6, 6)),
    "solids": (SOLIDS, (2, 3, 3, 3)),
    "norms": (NORMS, (6,)),
}


def test_every_operation_in_the_tables_is_attacked():
    called = set()
    for modules, shape in SHAPES.values():
        network = parts_of(modules)
        called |= {call[0] for call in read_graph(network, shape, names_of(network)).calls}
    known = {*AFFINE, *FUNCTIONS, *SAME, *SUMS, "cat.default"}
    assert {name.removeprefix("aten.") for name in called} == known


@pytest.mark.parametrize("group", SHAPES)
def test_no_operation_stretches_more_than_its_constant(group, largest_stretch):
    modules, shape = SHAPES[group]
    network = parts_of(modules)
    constants = lipschitz_constants(network, shape, names_of(network))
    for part, constant in zip(network.double().parts, constants.values(), strict=True):
        assert largest_stretch(part, shape) <= constant * (1 + 1e-7), part


def test_an_entrywise_constant_is_the_steepest_slope():
    network = Beside(ENTRYWISE).eval()
    found = lipschitz_constants(network, (3,), names_of(network))
    x = torch.linspace(-30, 30, 1_200_001, dtype=torch.float64)
    for part, constant in zip(network.double().parts, found.values(), strict=True):
        with torch.no_grad():
            slope = float((part(x).diff() / x.diff()).abs().max())
        assert slope <= constant * (1 + 1e-9), part
        assert constant == pytest.approx(slope, rel=1e-4), part


def matrix_norm(function, shape):
    """The norm of an operator written out column by column, by nothing but applying it."""
    zero = function(torch.zeros(1, *shape, dtype=torch.float64))
    basis = torch.eye(math.prod(shape), dtype=torch.float64).reshape(-1, *shape)
    with torch.no_grad():
        return np.linalg.norm((function(basis) - zero).flatten(1).numpy(), 2)


@pytest.mark.parametrize("group", ["lines", "images", "solids"])
def test_constants_of_affine_operations_are_the_norms_of_their_matrices(group):
    modules, shape = SHAPES[group]
    nonlinear = (nn.Softmax, nn.LogSoftmax, nn.LayerNorm, nn.PReLU)
    affine = [m for m in modules if not isinstance(m, nonlinear) and "MaxPool" not in str(m)]
    network = parts_of(affine)
    constants = lipschitz_constants(network, shape, names_of(network))
    for part, constant in zip(network.double().parts, constants.values(), strict=True):
        assert constant == pytest.approx(matrix_norm(part, shape), rel=2e-9), part


PADDINGS = [
    *[(0, "zeros"), (1, "zeros"), (2, "zeros"), ("same", "zeros"), ("valid", "zeros")],
    *[(1, "reflect"), (2, "replicate"), (2, "circular"), ("same", "reflect")],
]


def test_convolutions_of_every_padding_stride_dilation_and_number_of_groups():
    torch.manual_seed(0)
    network = Beside(
        nn.Conv2d(2, 4, 3, stride, padding, dilation, groups, padding_mode=mode)
        for padding, mode in PADDINGS
        for stride in ((1, 2, 3) if padding != "same" else (1,))
        for dilation, groups in ((1, 1), (2, 2))
    ).eval()
    constants = lipschitz_constants(network, (2, 7, 6), names_of(network))
    assert len(constants) == 46
    for part, constant in zip(network.double().parts, constants.values(), strict=True):
        assert constant == pytest.approx(matrix_norm(part, (2, 7, 6)), rel=2e-9), part


def test_the_norm_of_the_reshaped_kernel_is_another_number():
    """It can be too small, so it is no bound, and it knows nothing of stride and input size."""
    averaging = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    nn.init.ones_(averaging.weight)
    assert np.linalg.norm(averaging.weight.detach().numpy().reshape(1, 9), 2) == pytest.approx(3)
    small = lipschitz_constants(averaging, (1, 4, 4))["output"]
    large = lipschitz_constants(averaging, (1, 16, 16))["output"]
    assert 6.8 < small < 6.9 < 8.7 < large < 9


def test_a_large_convolution_is_bounded_and_hardly_more():
    """The oracle is the Fourier transform, exact for circular padding."""
    torch.manual_seed(0)
    n = 24
    module = nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular", bias=False)
    kernel = np.fft.fft2(module.weight.detach().double().numpy(), s=(n, n))
    exact = np.linalg.norm(np.moveaxis(kernel, (0, 1), (2, 3)), 2, axis=(2, 3)).max()
    bound = lipschitz_constants(module, (4, n, n))["output"]
    assert exact <= bound <= exact * 1.01


@pytest.mark.parametrize("group", ["lines", "images", "solids"])
def test_a_max_pools_constant_is_attained_by_one_entry_above_all_others(group):
    modules, shape = SHAPES[group]
    network = Beside([module for module in modules if "MaxPool" in type(module).__name__]).eval()
    constants = lipschitz_constants(network, shape, names_of(network))
    zero, size = torch.zeros(1, *shape, dtype=torch.float64), math.prod(shape)
    ones = torch.eye(size, dtype=torch.float64).reshape(size, *shape)
    for part, constant in zip(network.parts, constants.values(), strict=True):
        moved = (part(ones) - part(zero)).flatten(1).norm(dim=1).max()
        assert float(moved) == pytest.approx(constant), part


def test_softmax_and_log_softmax_attain_their_constants():
    for n in (2, 5):
        network = Beside([nn.Softmax(1), nn.LogSoftmax(dim=-1)]).eval()
        soft, log = lipschitz_constants(network, (n,), names_of(network)).values()
        assert (soft, log) == (0.5, pytest.approx(math.sqrt(n)))
        peak = torch.zeros(1, n, dtype=torch.float64)
        peak[0, 0] = 40
        step = torch.ones(1, n, dtype=torch.float64) * 1e-4
        step[0, 0] *= 1 - n  # orthogonal to nothing that I - 1pᵀ keeps
        moved = torch.log_softmax(peak + step, 1) - torch.log_softmax(peak, 1)
        assert float(moved.norm() / step.norm()) == pytest.approx(math.sqrt(n), rel=1e-6)
    even, tiny = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[1e-4, -1e-4]])
    moved = torch.softmax(even + tiny, 1) - torch.softmax(even, 1)
    assert float(moved.norm() / tiny.norm()) == pytest.approx(0.5, rel=1e-6)


def test_a_normalization_of_samples_attains_its_constant():
    module = nn.LayerNorm(6, eps=1e-3)
    nn.init.constant_(module.weight, -2.0)
    constant = lipschitz_constants(module, (6,))["output"]
    assert constant == pytest.approx(2 / math.sqrt(1e-3))
    flat = torch.full((1, 6), 3.0, dtype=torch.float64)
    step = torch.tensor([[1e-5, -1e-5, 0, 0, 0, 0]], dtype=torch.float64)
    module = module.double()
    moved = (module(flat + step) - module(flat)).detach().norm() / step.norm()
    assert float(moved) == pytest.approx(constant, rel=1e-4)


@pytest.mark.parametrize(
    ("module", "shape", "fact"),
    [
        (nn.Softmax(dim=0), (4,), "mixes the samples"),
        (nn.Softmax(dim=-2), (4,), "mixes the samples"),
        (nn.Softplus(), (4,), "'bad' (Softplus)"),
        (nn.GroupNorm(2, 4), (4, 3), "'bad' (GroupNorm)"),
        (nn.ConvTranspose1d(2, 3, 3), (2, 9), "'bad' (ConvTranspose1d)"),
        (Do(lambda x: torch.ops.aten.elu(x, 1.0, 2.0)), (4,), "elu.default with scale=2.0"),
        (nn.Flatten(0), (4,), "mix the samples"),
        (nn.ZeroPad2d((0, 0, 1, -1)), (4,), "mixes the samples"),
        (nn.Upsample(scale_factor=2), (1, 4), "'bad' (Upsample)"),
        (nn.CELU(), (4,), "'bad' (CELU)"),
        (nn.LayerNorm(4, eps=0), (4,), "no bound"),
        (nn.Hardshrink(), (4,), "'bad' (Hardshrink)"),
        (nn.InstanceNorm1d(4), (4, 3), "'bad' (InstanceNorm1d)"),
        (nn.Softsign(), (4,), "'bad' (Softsign)"),
    ],
    ids=lambda part: str(part)[:30],
)
def test_what_has_no_bound_is_refused_by_name(module, shape, fact):
    network = nn.Sequential()
    network.add_module("bad", module)
    with pytest.raises(LayerError, match="'bad'") as caught:
        lipschitz_constants(network, shape)
    assert fact in str(caught.value)
    assert "\n" not in str(caught.value)


# Rounding, against the same in float64, on the inputs as they were before any cast


def worst_inputs(shape, scale, generator):
    """Rows where rounding shows: of many sizes, nearly constant, alternating, at a threshold."""
    plain = torch.randn(12, *shape, dtype=torch.float64, generator=generator) * scale
    flat = scale + 1e-6 * scale * torch.randn(6, *shape, dtype=torch.float64, generator=generator)
    signs = torch.sign(torch.randn(6, *shape, dtype=torch.float64, generator=generator))
    sizes = 10 ** (4 * torch.randn(6, *shape, dtype=torch.float64, generator=generator))
    near = 20 / 1.0 + 1e-7 * torch.randn(6, *shape, dtype=torch.float64, generator=generator)
    return torch.cat([plain, flat, signs * scale, signs * sizes, near, 1e3 * near, 0 * plain])


def shares_of_bounds(modules, shape, dtype):
    """For each module the largest error over the bound, of what `TorchModel` observes."""
    network = parts_of(modules).to(dtype)
    layers = names_of(network)
    bounds = sensitivities(network, shape, layers)
    exact = copy.deepcopy(network).double().parts
    largest = dict.fromkeys(layers, 0.0)
    generator = torch.Generator().manual_seed(0)
    for scale in (1e-3, 1.0, 30.0, 1e4, 1e9):
        inputs = worst_inputs(shape, scale, generator)
        lengths = inputs.flatten(1).norm(dim=1).numpy()
        for rows in (slice(None), slice(0, 1), slice(3, 8)):
            seen = TorchModel(network).observe(inputs[rows].numpy(), layers)
            for layer, function in zip(layers, exact, strict=True):
                with torch.no_grad():
                    wanted = function(inputs[rows]).flatten(1).numpy()
                allowed = bounds[layer].rounding + bounds[layer].rounding_per_length * lengths[rows]
                off = np.linalg.norm(seen.activations[layer].astype(float) - wanted, axis=1)
                off[seen.invalid] = 0
                largest[layer] = max(largest[layer], float((off / allowed).max()))
    return list(largest.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("group", ["flat", "lines", "images", "solids", "norms"])
def test_no_operation_rounds_more_than_its_bound(group, dtype):
    modules, shape = SHAPES[group]
    if dtype == torch.bfloat16:  # of which torch has no such pool
        modules = [module for module in modules if not isinstance(module, nn.AvgPool3d)]
    for module, share in zip(modules, shares_of_bounds(modules, shape, dtype), strict=True):
        assert share <= 1, module


def batch_norm(variance, eps, weight=1.0):
    module = nn.BatchNorm1d(6, eps)
    module.running_var.fill_(variance)
    nn.init.constant_(module.weight, weight)
    return module


def test_parameters_that_are_too_small_for_all_digits_count():
    """Below 1e-38 float32 has fewer digits: 1.1e-44 becomes 1.12e-44."""
    small = [
        Do(lambda x: x * 1.1e-44 * 1e30),
        nn.Sequential(batch_norm(1e20, 0.0, 1e-34), Do(lambda x: x * 1e22)),
    ]
    network = Beside(small).eval()
    inputs = 1e12 * torch.randn(9, 6, generator=torch.Generator().manual_seed(0))
    bounds = sensitivities(network, (6,), names_of(network))
    for part, bound in zip(network.parts, bounds.values(), strict=True):
        found, exact = part(inputs).double(), copy.deepcopy(part).double()(inputs.double())
        off = (found - exact).detach().norm(dim=1).numpy()
        assert off.max() > 1e-4 * exact.detach().norm(dim=1).max()
        assert (off <= bound.off(inputs.double().norm(dim=1).numpy())).all()
    refused = [
        (batch_norm(0.0, 1e-44), "use a larger eps"),
        (Do(lambda x: 1e-20 * x / 2.3e-42), "divides by numbers so small"),
    ]
    for module, words in refused:
        with pytest.raises(LayerError, match=words):
            sensitivities(Beside([module]).eval(), (6,), ["parts.0"])


def test_the_bound_of_a_sum_is_not_idle():
    """A plain sum of many numbers in bfloat16 comes near enough to be told from no bound."""
    (share,) = shares_of_bounds([nn.Linear(20, 5)], (20,), torch.bfloat16)
    assert 0.01 < share <= 1
    (share,) = shares_of_bounds([nn.Linear(20, 5)], (20,), torch.float32)
    assert 1e-3 < share <= 1
    with pytest.raises(LayerError, match="may lose all digits"):
        shares_of_bounds([nn.Linear(1000, 3)], (1000,), torch.bfloat16)


def test_a_pool_given_one_side_for_all_axes_sums_as_many_terms():
    network = Beside([nn.AvgPool2d(16), nn.AvgPool2d((16,))]).eval()
    plain, listed = sensitivities(network, (1, 32, 32), names_of(network)).values()
    assert listed == plain


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_products_that_may_round_their_factors_first_are_refused(precision):
    network = nn.Sequential(nn.Linear(8, 8))
    torch.set_float32_matmul_precision(precision)
    try:
        with pytest.raises(LayerError, match="may be rounded before they are multiplied"):
            sensitivities(network, (8,), ["0"])
        sensitivities(network.double(), (8,), ["0"])
    finally:
        torch.set_float32_matmul_precision("highest")


# Operator norms, against the singular values of the matrix written out


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
