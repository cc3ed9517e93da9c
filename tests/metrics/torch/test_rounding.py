"""What torch computes is within its bound of what it stands for, however hard it is made.

The oracle is the same network in float64, on the inputs as they were before any cast.
"""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from iknow.errors import InputError, LayerError
from iknow.metrics.torch.arithmetic import arithmetic_of
from iknow.metrics.torch.layers import AFFINE, LIPSCHITZ, jump_of
from iknow.metrics.torch.module import sensitivities
from iknow.metrics.torch.operators import nonnegative_norm
from iknow.models.torch import TorchModel

MODULES = {
    **{
        kind: (kind(), (6,))
        for kind in (
            *(nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.Tanh, nn.Softsign, nn.LogSigmoid, nn.Softshrink),
            *(nn.Tanhshrink, nn.Sigmoid, nn.Hardsigmoid, nn.Hardswish, nn.SiLU, nn.Mish, nn.SELU),
            *(nn.GELU, nn.LeakyReLU, nn.RReLU, nn.PReLU, nn.ELU, nn.CELU, nn.Softplus),
        )
    },
    nn.Softmax: (nn.Softmax(1), (6,)),
    nn.LogSoftmax: (nn.LogSoftmax(1), (6,)),
    nn.LayerNorm: (nn.LayerNorm(6, eps=1e-3), (6,)),
    nn.MaxPool1d: (nn.MaxPool1d(3, 1), (2, 8)),
    nn.MaxPool2d: (nn.MaxPool2d(2, 1), (2, 4, 4)),
    nn.MaxPool3d: (nn.MaxPool3d(2, 1), (1, 3, 3, 3)),
    nn.AdaptiveMaxPool1d: (nn.AdaptiveMaxPool1d(3), (2, 7)),
    nn.AdaptiveMaxPool2d: (nn.AdaptiveMaxPool2d(2), (2, 5, 5)),
    nn.AdaptiveMaxPool3d: (nn.AdaptiveMaxPool3d(2), (1, 3, 3, 3)),
    nn.Linear: (nn.Linear(20, 5), (20,)),
    nn.Conv1d: (nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), (2, 9)),
    nn.Conv2d: (nn.Conv2d(2, 4, 3, padding=1, groups=2), (2, 6, 6)),
    nn.Conv3d: (nn.Conv3d(1, 2, 2), (1, 3, 3, 3)),
    nn.ConvTranspose1d: (nn.ConvTranspose1d(2, 3, 3), (2, 5)),
    nn.ConvTranspose2d: (nn.ConvTranspose2d(2, 3, 3, stride=2), (2, 3, 3)),
    nn.ConvTranspose3d: (nn.ConvTranspose3d(1, 2, 2), (1, 2, 2, 2)),
    nn.BatchNorm1d: (nn.BatchNorm1d(6), (6,)),
    nn.BatchNorm2d: (nn.BatchNorm2d(2), (2, 3, 3)),
    nn.BatchNorm3d: (nn.BatchNorm3d(2), (2, 2, 2, 2)),
    nn.AvgPool1d: (nn.AvgPool1d(3, 1), (2, 8)),
    nn.AvgPool2d: (nn.AvgPool2d((2, 3), 1, divisor_override=1), (2, 4, 4)),
    nn.AvgPool3d: (nn.AvgPool3d(2, 1), (1, 3, 3, 3)),
    nn.AdaptiveAvgPool1d: (nn.AdaptiveAvgPool1d(3), (2, 7)),
    nn.AdaptiveAvgPool2d: (nn.AdaptiveAvgPool2d(2), (2, 5, 5)),
    nn.AdaptiveAvgPool3d: (nn.AdaptiveAvgPool3d(2), (1, 3, 3, 3)),
    nn.ConstantPad1d: (nn.ConstantPad1d(2, 0.1), (2, 4)),
    nn.PixelShuffle: (nn.PixelShuffle(2), (4, 2, 2)),
}
EXTREMES = {
    "GELU-tanh": (nn.GELU("tanh"), (6,)),
    "steep PReLU": (nn.PReLU(init=-7.7), (6,)),
    "flat Softplus": (nn.Softplus(beta=1e-3), (6,)),
    "early Softplus": (nn.Softplus(threshold=1), (6,)),
    "negative Softplus": (nn.Softplus(beta=-2, threshold=-3), (6,)),
    "narrow Hardtanh": (nn.Hardtanh(-0.1, 0.3), (6,)),
    "long Linear": (nn.Linear(1000, 3), (1000,)),
}
NOT_BOUNDED = {nn.GroupNorm}


def worst_inputs(shape, scale, generator):
    """Rows where rounding shows: of many sizes, nearly constant, alternating, at a threshold."""
    plain = torch.randn(12, *shape, dtype=torch.float64, generator=generator) * scale
    flat = scale + 1e-6 * scale * torch.randn(6, *shape, dtype=torch.float64, generator=generator)
    signs = torch.sign(torch.randn(6, *shape, dtype=torch.float64, generator=generator))
    sizes = 10 ** (4 * torch.randn(6, *shape, dtype=torch.float64, generator=generator))
    near = 20 / 1.0 + 1e-7 * torch.randn(6, *shape, dtype=torch.float64, generator=generator)
    return torch.cat([plain, flat, signs * scale, signs * sizes, near, 1e3 * near, 0 * plain])


def share_of_bound(module, shape, dtype, seed=0):
    """The largest error over the bound, of what `TorchModel` observes, in all and one by one."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    module = copy.deepcopy(module)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.ndim and "var" not in name and not isinstance(module, nn.PReLU):
            tensor.data = torch.randn(tensor.shape, generator=generator) * 3
        elif tensor.ndim and "var" in name:
            tensor.data = torch.rand(tensor.shape, generator=generator) + 1e-3
    n_values = math.prod(module(torch.zeros(2, *shape)).shape[1:])
    network = nn.Sequential(module, nn.Flatten(), _Pair(n_values)).to(dtype)
    bound = sensitivities(network, shape, ["0"])["0"]
    exact = copy.deepcopy(network[0]).double().eval()
    if isinstance(module, nn.Softplus):  # as real arithmetic has it, without a threshold
        exact = lambda x: torch.logaddexp(0 * x, x * module.beta) / module.beta  # noqa: E731
    largest = 0.0
    for scale in (1e-3, 1.0, 30.0, 1e4, 1e9):
        inputs = worst_inputs(shape, scale, generator)
        if dtype == torch.float16:
            inputs = inputs.clamp(-60, 60)
        with torch.no_grad():
            wanted = exact(inputs).flatten(1).numpy()
        allowed = bound.rounding + bound.rounding_per_length * inputs.flatten(1).norm(dim=1).numpy()
        for rows in (slice(None), slice(0, 1), slice(3, 8)):
            seen = TorchModel(network).observe(inputs[rows].numpy(), ["0"])
            off = np.linalg.norm(seen.activations["0"].astype(float) - wanted[rows], axis=1)
            off[seen.invalid] = 0
            largest = max(largest, float((off / allowed[rows]).max()))
    return largest


class _Pair(nn.Linear):
    """Two finite scores, so that no sample is invalid for want of them."""

    def __init__(self, n_features):
        super().__init__(n_features, 2)
        nn.init.zeros_(self.weight)


def test_every_known_module_is_tried():
    pads = {kind for kind in AFFINE if "Pad" in kind.__name__}
    exact = {nn.Identity, nn.Flatten, nn.Unflatten, *(k for k in AFFINE if "Drop" in k.__name__)}
    own = {kind for kind in AFFINE if kind.__module__.startswith("iknow")}
    assert {*LIPSCHITZ, *AFFINE} - pads - exact - own - NOT_BOUNDED <= MODULES.keys()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("module", "shape"),
    [*MODULES.values(), *EXTREMES.values()],
    ids=[*(kind.__name__ for kind in MODULES), *EXTREMES],
)
def test_no_module_rounds_more_than_its_bound(module, shape, dtype):
    if isinstance(module, nn.AvgPool3d) and dtype == torch.bfloat16:
        pytest.skip("torch has none in bfloat16")
    if math.prod(shape) == 1000 and dtype == torch.bfloat16:
        with pytest.raises(LayerError, match="may lose all digits"):
            share_of_bound(module, shape, dtype)
    else:
        assert share_of_bound(module, shape, dtype) <= 1


def test_a_pool_given_one_side_for_all_axes_sums_as_many_terms():
    plain, listed = (
        sensitivities(nn.Sequential(nn.AvgPool2d(side)), (1, 32, 32), ["0"])["0"]
        for side in (16, (16,))
    )
    assert listed == plain


def test_the_bound_of_a_sum_is_not_idle():
    """A plain sum of many numbers in bfloat16 comes near enough to be told from no bound."""
    assert 0.01 < share_of_bound(nn.Linear(20, 5), (20,), torch.bfloat16) <= 1
    assert 1e-3 < share_of_bound(nn.Linear(20, 5), (20,), torch.float32) <= 1


def network_of(forward, **parts):
    kind = type("Network", (nn.Module,), {"forward": forward})
    network = kind()
    for name, part in parts.items():
        network.add_module(name, part)
    return network


def some_networks():
    torch.manual_seed(0)
    yield (
        nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(36, 8),
            nn.GELU(),
            nn.Linear(8, 3),
        ),
        (1, 6, 6),
    )
    yield (
        network_of(
            lambda self, x: self.c(torch.cat([x, functional.relu(self.b(x / 7) - 3 + x)], 1)),
            b=nn.Linear(5, 5),
            c=nn.Linear(10, 3),
        ),
        (5,),
    )
    yield nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Tanh(), nn.Linear(7, 3)), (5,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("shift", [0.0, 1000.0, 1e9])
def test_errors_add_up_along_a_network(which, dtype, shift):
    network, shape = list(some_networks())[which]
    inputs = np.random.default_rng(0).normal(size=(40, *shape)) + shift
    exact = copy.deepcopy(network).double().eval()
    network = network.to(dtype)
    layers = ["input", *(name for name, _ in network.named_children()), "output"]
    bounds = sensitivities(network, shape, layers, inputs, TorchModel)
    found = {}
    for name, part in exact.named_children():
        part.register_forward_hook(lambda _m, _i, out, name=name: found.update({name: out.clone()}))
    with torch.no_grad():
        found["output"] = exact(torch.from_numpy(inputs))
    found["input"] = torch.from_numpy(inputs)
    lengths = np.linalg.norm(inputs.reshape(40, -1), axis=1)
    for rows in (slice(None), slice(2, 3)):
        seen = TorchModel(network).observe(inputs[rows], layers).activations
        for layer in layers:
            wanted = found[layer].flatten(1).numpy()[rows]
            off = np.linalg.norm(seen[layer].astype(float) - wanted, axis=1)
            bound = bounds[layer]
            assert (off <= bound.rounding + bound.rounding_per_length * lengths[rows]).all(), layer


def test_float16_is_refused_where_an_overflow_could_be_hidden():
    """60000 + 60000 - 60000 - 60000 is 0, but not in float16, and tanh makes a number of it."""
    network = nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 2)).half()
    assert sensitivities(network, (4,), ["0"])["0"].rounding_per_length > 1e-3
    with pytest.raises(LayerError, match=r"'1' \(Tanh\).*float16 may overflow"):
        sensitivities(network, (4,), ["1"])
    huge = nn.Sequential(nn.Linear(4, 2), nn.Tanh())
    nn.init.constant_(huge[0].weight, 1e25)
    with pytest.raises(LayerError, match=r"'1' \(Tanh\).*float32 may overflow"):
        sensitivities(huge, (4,), ["1"])


def test_the_cast_of_the_input_is_part_of_every_bound():
    network = nn.Sequential(nn.Identity(), nn.Linear(1, 2)).bfloat16()
    x = np.array([[1001.9], [1002.1]])
    seen = TorchModel(network).observe(x, ["input", "0"]).activations
    bounds = sensitivities(network, (1,), ["input", "0"], x, TorchModel)
    for layer, bound in bounds.items():
        off = np.abs(seen[layer] - x).max()
        assert off > 1.8
        assert off <= bound.rounding + bound.rounding_per_length * 1001.9
    stamps = np.array([[1.7e9 + 60.0]])
    bound = sensitivities(nn.Linear(1, 2), (1,), ["input"], stamps, TorchModel)["input"]
    assert bound.rounding_per_length * 1.7e9 >= 64


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_products_that_may_round_their_factors_first_say_so(precision):
    network = nn.Sequential(nn.Linear(8, 8))
    plain = sensitivities(network, (8,), ["0"])["0"]
    torch.set_float32_matmul_precision(precision)
    try:
        rough = sensitivities(network, (8,), ["0"])["0"]
    finally:
        torch.set_float32_matmul_precision("highest")
    assert rough.rounding_per_length > 100 * plain.rounding_per_length
    assert rough.lipschitz == plain.lipschitz
    assert arithmetic_of(network).factors == 0


def test_what_has_no_bound_is_refused_by_name():
    mixed = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).bfloat16())
    with pytest.raises(LayerError, match="several dtypes"):
        sensitivities(mixed, (4,), ["1"])
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(LayerError, match="under autocast"),
    ):
        sensitivities(nn.Sequential(nn.Linear(4, 4)), (4,), ["0"])
    with pytest.raises(LayerError, match=r"'0' \(GroupNorm\).*the rounding of GroupNorm"):
        sensitivities(nn.Sequential(nn.GroupNorm(2, 4)), (4,), ["0"])
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    with pytest.raises(LayerError, match="'0' computes its weight in each pass"):
        sensitivities(nn.Sequential(normed), (4,), ["0"])
    on_nothing = nn.Sequential(nn.Linear(4, 4)).to("meta")
    with pytest.raises((LayerError, NotImplementedError), match="meta"):
        sensitivities(on_nothing, (4,), ["0"])
    infinite = nn.Sequential(nn.Linear(4, 4))
    nn.init.constant_(infinite[0].weight, math.inf)
    with pytest.raises(ValueError, match="finite"):
        sensitivities(infinite, (4,), ["0"])


def test_of_any_module_the_input_is_known():
    with torch.autocast("cpu", torch.bfloat16):
        found = sensitivities(nn.LSTM(4, 4), (3, 4), ["input"])
    assert found["input"].lipschitz == pytest.approx(1)
    assert 2**-24 <= found["input"].rounding_per_length < 2**-23.9


def test_a_softplus_that_jumps_has_the_jump_in_its_rounding():
    module = nn.Softplus(beta=1e-3, threshold=2.0)
    jump = jump_of(module)
    x = torch.tensor([[1999.999, 2000.001]], dtype=torch.float64)
    assert float(module(x).diff().abs()) == pytest.approx(jump, rel=1e-3)
    bound = sensitivities(nn.Sequential(module), (1,), ["0"])["0"]
    assert bound.lipschitz == pytest.approx(1)
    assert jump <= bound.rounding < 1.01 * jump


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


def test_a_module_that_gives_something_else_than_was_proven_is_caught_by_real_inputs(monkeypatch):
    """A second net: even what no look at the code can show, such as a patch of torch itself."""
    network = nn.Sequential(nn.Linear(4, 4))
    inputs = np.random.default_rng(0).normal(size=(5, 4))
    assert sensitivities(network, (4,), ["0"], inputs, TorchModel)
    real = functional.linear
    monkeypatch.setattr(
        functional,
        "linear",
        lambda x, w, b=None: real(x, w, b) if x.dtype == torch.float64 else 1.001 * real(x, w, b),
    )
    with pytest.raises(LayerError, match="for real inputs the module differs from"):
        sensitivities(network, (4,), ["0"], inputs, TorchModel)


def test_whole_numbers_are_refused():
    network = nn.Sequential(nn.ReLU(), nn.Flatten())
    with pytest.raises(LayerError, match="pass floats"):
        sensitivities(network, (4,), ["0"], np.zeros((3, 4), dtype=np.uint8), TorchModel)
    with pytest.raises(InputError, match="adapter=TorchModel"):
        sensitivities(network, (4,), ["0"], np.zeros((3, 4)))


def test_errors_grow_as_the_network_does_not_as_its_absolute_values_do():
    """Rotations keep lengths; the same with absolute values stretch 16 entries threefold."""
    torch.manual_seed(0)
    parts = [nn.Linear(16, 16, bias=False) for _ in range(8)]
    for part in parts:
        nn.init.orthogonal_(part.weight)
    network = nn.Sequential(*(step for part in parts for step in (part, nn.ReLU())))
    bound = sensitivities(network, (16,), ["15"])["15"]
    assert bound.lipschitz == pytest.approx(1, rel=1e-5)
    assert bound.rounding_per_length < 1e-4
