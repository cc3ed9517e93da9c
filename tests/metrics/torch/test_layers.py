"""Each module's constant: never exceeded, and for most of them attained."""

import math

import pytest
import torch
from torch import nn

from iknow.errors import LayerError
from iknow.metrics.torch.module import lipschitz_constants

ENTRYWISE = [
    *(nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(0.3), nn.LeakyReLU(-2.0), nn.PReLU(init=1.7), nn.RReLU()),
    *(nn.ELU(), nn.ELU(alpha=2.5), nn.CELU(0.5), nn.SELU(), nn.GELU(), nn.GELU("tanh"), nn.SiLU()),
    *(nn.Mish(), nn.Tanh(), nn.Sigmoid(), nn.LogSigmoid(), nn.Softplus(), nn.Softplus(3.0, 30)),
    *(nn.Hardtanh(-2, 3), nn.Hardsigmoid(), nn.Hardswish(), nn.Softsign(), nn.Softshrink()),
    *(nn.Tanhshrink(), nn.Identity(), nn.Dropout(0.9), nn.AlphaDropout(0.9)),
]


def constant(module, shape):
    return lipschitz_constants(module, shape)["output"]


@pytest.mark.parametrize("module", ENTRYWISE, ids=str)
def test_an_entrywise_constant_is_the_steepest_slope(module):
    x = torch.linspace(-30, 30, 1_200_001, dtype=torch.float64)
    with torch.no_grad():
        y = module.double().eval()(x)
    slope = float((y.diff() / x.diff()).abs().max())
    found = constant(module, (3,))
    assert slope <= found * (1 + 1e-9)
    assert found == pytest.approx(slope, rel=1e-4)


MAX_POOLS = [
    (nn.MaxPool1d(3, stride=1), (2, 9), 3),
    (nn.MaxPool1d(3, stride=2, padding=1), (2, 9), 2),
    (nn.MaxPool1d(3, stride=1, dilation=2), (2, 9), 3),
    (nn.MaxPool1d(2, stride=3), (2, 9), 1),
    (nn.MaxPool2d(2), (2, 6, 6), 1),
    (nn.MaxPool2d(3, stride=2), (2, 7, 7), 4),
    (nn.MaxPool2d(3, stride=(1, 3), padding=(1, 0)), (1, 5, 6), 3),
    (nn.MaxPool2d(2, stride=1, ceil_mode=True), (1, 2, 2), 1),
    (nn.MaxPool2d((1, 4), stride=2, ceil_mode=True), (1, 3, 7), 2),
    (nn.MaxPool3d(2, stride=1), (1, 3, 3, 3), 8),
    (nn.AdaptiveMaxPool1d(3), (2, 7), 2),
    (nn.AdaptiveMaxPool2d(3), (2, 7, 6), 2),
    (nn.AdaptiveMaxPool2d((None, 1)), (2, 4, 5), 1),
    (nn.AdaptiveMaxPool3d(2), (1, 3, 3, 2), 4),
]


@pytest.mark.parametrize(("module", "shape", "windows"), MAX_POOLS, ids=lambda part: str(part))
def test_a_max_pools_constant_is_the_root_of_the_windows_an_entry_is_in(
    module, shape, windows, largest_stretch
):
    found = constant(module, shape)
    assert found == pytest.approx(math.sqrt(windows))
    assert largest_stretch(module, shape) <= found * (1 + 1e-9)
    # Attained: some entry, above all others, raised by 1.
    size = math.prod(shape)
    zero = torch.zeros(1, *shape, dtype=torch.float64)
    ones = torch.eye(size, dtype=torch.float64).reshape(size, *shape)
    moved = (module(ones) - module(zero)).flatten(1).norm(dim=1).max()
    assert float(moved) == pytest.approx(found)


def test_a_subclass_of_a_pool_may_have_any_name(largest_stretch):
    class Shrink(nn.MaxPool2d):
        pass

    assert constant(Shrink(3, stride=1), (1, 5, 5)) == pytest.approx(3)


@pytest.mark.parametrize("n", [2, 5])
def test_softmax_and_log_softmax(n, largest_stretch):
    assert constant(nn.Softmax(1), (n,)) == 0.5
    assert constant(nn.Softmax(-1), (4, n)) == 0.5
    assert constant(nn.LogSoftmax(dim=-1), (4, n)) == pytest.approx(math.sqrt(n))
    even, tiny = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[1e-4, -1e-4]])
    moved = torch.softmax(even + tiny, 1) - torch.softmax(even, 1)
    assert float(moved.norm() / tiny.norm()) == pytest.approx(0.5, rel=1e-6)
    peak = torch.zeros(1, n, dtype=torch.float64)
    peak[0, 0] = 40
    step = torch.ones(1, n, dtype=torch.float64) * 1e-4
    step[0, 0] *= 1 - n  # orthogonal to nothing that I - 1pᵀ keeps
    moved = torch.log_softmax(peak + step, 1) - torch.log_softmax(peak, 1)
    assert float(moved.norm() / step.norm()) == pytest.approx(math.sqrt(n), rel=1e-6)
    for module in (nn.Softmax(1), nn.LogSoftmax(1)):
        assert largest_stretch(module, (n,)) <= constant(module, (n,)) * (1 + 1e-9)


@pytest.mark.parametrize("module", [nn.LayerNorm(6, eps=1e-3), nn.GroupNorm(2, 6, eps=1e-3)])
def test_a_normalisation_of_samples_has_a_large_but_true_bound(module, largest_stretch):
    nn.init.constant_(module.weight, -2.0)
    found = constant(module, (6,))
    assert found == pytest.approx(2 / math.sqrt(1e-3))
    module = module.double()
    assert largest_stretch(module, (6,)) <= found
    flat = torch.full((1, 6), 3.0, dtype=torch.float64)
    step = torch.tensor([[1e-5, -1e-5, 0, 0, 0, 0]], dtype=torch.float64)
    moved = (module(flat + step) - module(flat)).detach().norm() / step.norm()
    assert float(moved) == pytest.approx(found, rel=1e-4)
    assert constant(nn.LayerNorm(6, elementwise_affine=False), (6,)) == pytest.approx(316.2, 1e-3)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.BatchNorm1d(4), (4,)),
        (nn.BatchNorm1d(4), (4, 5)),
        (nn.BatchNorm2d(4, affine=False), (4, 3, 3)),
        (nn.BatchNorm3d(4, eps=0.1), (4, 2, 2, 2)),
    ],
)
def test_batch_normalisation_with_random_statistics(module, shape, largest_stretch):
    torch.manual_seed(3)
    module.running_var.uniform_(0.1, 4)
    module.running_mean.normal_()
    if module.affine:
        nn.init.normal_(module.weight)
    found = constant(module, shape)
    stretch = largest_stretch(module.double().eval(), shape, n_steps=60)
    assert stretch <= found
    assert stretch == pytest.approx(found, rel=0.1)


@pytest.mark.parametrize(
    ("module", "shape", "fact"),
    [
        (nn.BatchNorm1d(4, track_running_stats=False), (4,), "mixes the samples"),
        (nn.Softmax(dim=0), (4,), "mixes the samples"),
        (nn.Softmax(dim=-2), (4,), "mixes the samples"),
        (nn.Softplus(threshold=2), (4,), "jumps by 1.3e-01 at its threshold 2"),
        (nn.Softplus(beta=1e-3), (4,), "jumps by 2.1e-06 at its threshold 20"),
        (nn.Flatten(0), (4,), "row for each sample"),
        (nn.ZeroPad2d((0, 0, 1, -1)), (4,), "mixes the samples"),
        (nn.LazyBatchNorm1d(), (4,), "(LazyBatchNorm1d)"),
        (nn.Upsample(scale_factor=2), (1, 4), "(Upsample) has no known bound"),
        (nn.Embedding(3, 4), (4,), "(Embedding) has no known bound"),
        (nn.CELU(-1.0), (4,), "alpha must be > 0"),
        (nn.LayerNorm(4, eps=0), (4,), "no bound"),
        (nn.Hardshrink(), (4,), "'bad' (Hardshrink) has no known bound"),
        (nn.InstanceNorm1d(4), (4, 3), "'bad' (InstanceNorm1d) has no known bound"),
        (nn.LSTM(4, 3), (2, 4), "'bad' (LSTM) has no known bound"),
        (nn.MaxPool1d(2, return_indices=True), (2, 4), "does not return one tensor"),
    ],
    ids=lambda part: str(part)[:30],
)
def test_what_has_no_bound_is_refused_by_name(module, shape, fact):
    network = nn.Sequential()
    network.add_module("bad", module)
    with pytest.raises(LayerError, match="'bad'") as caught:
        lipschitz_constants(network, shape)
    assert fact in str(caught.value)


def test_a_subclass_that_computes_something_else_is_not_taken_for_its_base():
    class Doubled(nn.Linear):
        def forward(self, batch):
            return 2 * super().forward(batch)

    with pytest.raises(LayerError, match=r"'0' \(Doubled\) has no known bound"):
        lipschitz_constants(nn.Sequential(Doubled(3, 3)), (3,))
    patched = nn.Linear(3, 3)
    patched.forward = lambda batch: 5 * batch
    with pytest.raises(LayerError, match=r"'0' \(Linear\) has its own forward"):
        lipschitz_constants(nn.Sequential(patched), (3,))
