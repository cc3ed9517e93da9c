"""Networks, attack and noise against plain code, and the setups against the paper."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from iknow.errors import IknowError, InputError
from reproduction import torch as networks
from reproduction.art import attack_inputs
from reproduction.data.datasets import DATASETS
from reproduction.noise import add_gaussian, add_uniform
from reproduction.setups import (
    READINGS,
    SETUPS,
    Architecture,
    Attack,
    Convolution,
    Training,
    find_setup,
)
from reproduction.tables import ACCURACIES, load_published
from reproduction.torch import build_network, measure_accuracy, one_thread, train_network

pytestmark = pytest.mark.slow
ARCHITECTURE = Architecture(hidden=(16,))
TRAINING = Training(batch=16, epochs=60, least=0.95, until=0.95)
ROUNDING = 1e-6  # of float32, near 1


@pytest.fixture(autouse=True, scope="module")
def alone():
    """Small networks on threads of their own wait for each other."""
    with one_thread():
        yield


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def shapes_of(network, shape, n=2):
    """The name of each layer and the shape of one sample after it, in order."""
    x, shapes = torch.zeros(n, *shape), []
    for name, layer in network.named_children():
        x = layer(x)
        shapes.append((name, tuple(x.shape[1:])))
    return shapes


UNPADDED = replace(SETUPS["gtsrb"].architecture, same=False)


@pytest.mark.parametrize(
    ("architecture", "shape", "expected"),
    [
        (SETUPS["iris"].architecture, (4,), "dense1 8, relu1 8, dense2 5, relu2 5, logits 3"),
        (SETUPS["italy_power_demand"].architecture, (1, 24),
         "conv1 6 21, relu1 6 21, conv2 16 10, relu2 16 10, conv3 8 5, relu3 8 5, gap 8 1, flat 8, "
         "logits 3"),
        (UNPADDED, (3, 32, 32),
         "conv1 6 28 28, relu1 6 28 28, pool1 6 14 14, conv2 16 10 10, relu2 16 10 10, "
         "pool2 16 5 5, conv3 64 1 1, relu3 64 1 1, gap 64 1 1, flat 64, dense1 32, relu4 32, "
         "logits 3"),
        (Architecture(convolutions=(Convolution(3, 4, pool=True),)), (2, 23),
         "conv1 3 20, relu1 3 20, pool1 3 10, gap 3 1, flat 3, logits 3"),
        (Architecture(), (4,), "logits 3"),
    ],
)  # fmt: skip
def test_layers_are_named_and_shaped_as_described(architecture, shape, expected):
    shapes = shapes_of(build_network(architecture, shape, 3, generator()), shape)
    assert ", ".join(" ".join(map(str, (name, *s))) for name, s in shapes) == expected


def test_relus_cut_and_the_average_is_over_all_places():
    network = build_network(Architecture((Convolution(5, 3),)), (2, 9), 3, generator())
    x = torch.randn(4, 2, 9, generator=generator(1))
    convolved = network.conv1(x).numpy(force=True)
    average = np.where(convolved > 0, convolved, 0).mean(axis=2)
    weight, bias = (each.numpy(force=True) for each in network.logits.parameters())
    np.testing.assert_allclose(
        network(x).numpy(force=True), average @ weight.T + bias, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("architecture", "shape", "layer", "fan_in", "fan_out"),
    [
        (Architecture(hidden=(600,)), (400,), "dense1", 400, 600),
        (Architecture(hidden=(600, 400)), (2,), "dense2", 600, 400),
        (Architecture((Convolution(1000, 15),)), (12, 15), "conv1", 12 * 15, 1000 * 15),
        (Architecture((Convolution(1000, 5),)), (9, 5, 5), "conv1", 9 * 25, 1000 * 25),
    ],
)
def test_weights_are_drawn_as_keras_draws_them(architecture, shape, layer, fan_in, fan_out):
    glorot, he = (
        getattr(build_network(architecture, shape, 2, generator(), each), layer)
        .weight.numpy(force=True)
        .ravel()
        .astype(float)
        for each in ("glorot", "he")
    )
    limit = np.sqrt(6 / (fan_in + fan_out))
    assert np.abs(glorot).max() <= limit * (1 + 1e-6)
    assert stats.kstest(glorot, stats.uniform(-limit, 2 * limit).cdf).pvalue > 0.01
    wanted = np.sqrt(2 / fan_in)
    # What is left after the cut has the deviation that is wanted, so the one before is larger.
    before = wanted / stats.truncnorm(-2, 2).std()
    assert he.std() == pytest.approx(wanted, rel=0.01)
    assert 1.98 * before < np.abs(he).max() <= 2 * before * (1 + 1e-6)
    assert stats.kstest(he, stats.truncnorm(-2, 2, scale=before).cdf).pvalue > 0.01


def test_biases_are_zero_and_the_generator_decides_the_weights():
    architecture = SETUPS["gtsrb"].architecture
    build = [build_network(architecture, (3, 32, 32), 8, generator(s)) for s in (0, 0, 1)]
    one, same, other = (dict(network.named_parameters()) for network in build)
    assert len(one) == 10
    for name, values in one.items():
        assert torch.equal(values, same[name])
        is_bias = name.endswith("bias")
        assert not values.any() if is_bias else not torch.isclose(values, other[name]).all()


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5, 12])
@pytest.mark.parametrize("shape", [(2, 17), (2, 13, 15)])
def test_padding_same_is_torch_s_own(kernel, shape):
    architecture = Architecture((Convolution(3, kernel),), same=True)
    network = build_network(architecture, shape, 2, generator())
    assert shapes_of(network, shape)[1] == ("conv1", (3, *shape[1:]))
    own = (nn.Conv1d if len(shape) == 2 else nn.Conv2d)(shape[0], 3, kernel, padding="same")
    own.load_state_dict(network.conv1.state_dict())
    x = torch.randn(5, *shape, generator=generator(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that an even kernel costs a copy
        expected = own(x)
    torch.testing.assert_close(network.conv1(network.pad1(x)), expected, rtol=1e-5, atol=1e-6)


# Training


def blobs(n=200):
    """Two groups a straight line tells apart, as the training part and the validation part."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=n)
    X = (rng.normal(size=(n, 2)) + 10 * y[:, None]).astype(np.float32)
    return (X[: n // 2], y[: n // 2]), (X[n // 2 :], y[n // 2 :])


def weights_of(network):
    return np.concatenate([each.numpy(force=True).ravel() for each in network.parameters()])


def test_training_is_a_plain_loop_with_adam():
    train, val = blobs()
    training = Training(batch=16, epochs=5, least=0.0)
    found, epochs = train_network(ARCHITECTURE, training, train, val, 2, seed=7)
    assert epochs == 5
    draws = generator(7)
    network = build_network(ARCHITECTURE, (2,), 2, draws)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.001, betas=(0.9, 0.999), eps=1e-7)
    X, y = (torch.from_numpy(each) for each in train)
    for _ in range(5):
        order = torch.randperm(len(X), generator=draws).tolist()
        for start in range(0, len(X), 16):
            rows = order[start : start + 16]
            scores = network(X[rows])
            losses = torch.logsumexp(scores, dim=1) - scores[range(len(rows)), y[rows]]
            network.zero_grad()
            losses.mean().backward()
            optimizer.step()
    np.testing.assert_allclose(weights_of(found), weights_of(network), rtol=1e-4, atol=1e-6)


def test_the_seed_decides_and_the_global_generator_is_left_alone():
    found = []
    for global_seed, seed in ((1, 3), (2, 3), (2, 4)):
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        found.append(train_network(ARCHITECTURE, TRAINING, *blobs(), 2, seed=seed))
        assert torch.equal(torch.get_rng_state(), before)
    (one, epochs), (same, again), (other, _) = found
    assert epochs == again < TRAINING.epochs
    np.testing.assert_array_equal(weights_of(one), weights_of(same))
    assert not np.isclose(weights_of(one), weights_of(other)).all()


def test_accuracy_is_counted_in_batches_of_any_size():
    (X, y), _ = blobs(60)
    network = build_network(ARCHITECTURE, (2,), 2, generator())
    scores = [network(torch.from_numpy(sample[None])).tolist()[0] for sample in X]
    right = sum(s.index(max(s)) == truth for s, truth in zip(scores, y, strict=True))
    assert 0 < right < len(y)
    for batch in (1, 7, 4096):
        assert measure_accuracy(network, X, y, batch=batch) == right / len(y)


@pytest.mark.parametrize(
    ("epochs", "until", "accuracies", "trained"),
    [
        (20, 0.9, [0.9, 0.5, 0.95, 0.9, 0.89, 1, 1, 0.9, 0.9], 8),  # held three times
        (5, 0.9, [0.95, 0.95, 0.1, 0.95, 0.86, 0.86], 5),  # to the end
        (4, None, [1.0], 4),
    ],
)
def test_training_ends_when_the_accuracy_is_held(monkeypatch, epochs, until, accuracies, trained):
    left = [*accuracies, 0.7]
    monkeypatch.setattr(networks, "measure_accuracy", lambda *arguments: left.pop(0))
    training = Training(batch=50, epochs=epochs, least=0.85, until=until, hold=3)
    assert train_network(ARCHITECTURE, training, *blobs(), 2, seed=0)[1] == trained
    assert left == [0.7]


def test_a_network_that_has_not_learned_is_replaced(monkeypatch):
    build, built = networks.build_network, []

    def build_dead_first(*arguments):
        built.append(build(*arguments))
        if len(built) == 1:
            with torch.no_grad():
                built[0].dense1.bias.fill_(-1e6)
        return built[-1]

    monkeypatch.setattr(networks, "build_network", build_dead_first)
    (X, y), val = blobs()
    found, _ = train_network(ARCHITECTURE, TRAINING, (X, y), val, 2, seed=0)
    assert found is built[1]
    assert not np.isclose(*(weights_of(each) for each in built)).all()
    assert measure_accuracy(built[0], *val) < 0.7
    assert measure_accuracy(found, *val) >= TRAINING.least
    training = replace(TRAINING, epochs=2, restarts=3)
    with pytest.raises(IknowError, match=r"none of 3 networks learned: .* right on 0\.\d+.*0\.950"):
        train_network(ARCHITECTURE, training, (np.zeros_like(X), y), val, 2, seed=0)


def test_one_thread_gives_the_others_back():
    before = torch.get_num_threads()
    try:
        for n in (3, 1, 2):
            torch.set_num_threads(n)
            with one_thread():
                assert torch.get_num_threads() == 1
            assert torch.get_num_threads() == n
        with pytest.raises(RuntimeError), one_thread():
            raise RuntimeError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is at hand")
def test_a_missing_device_is_said():
    with pytest.raises(InputError, match="no CUDA device is at hand"):
        train_network(ARCHITECTURE, TRAINING, *blobs(), 2, seed=0, device="cuda")


# The attack


def plain_attack(network, X, attack, limits):
    """Step by step, one sample at a time: up the loss of the network's own answer."""
    results = []
    for sample in torch.from_numpy(X):
        start = sample[None]
        answer, x = network(start).argmax(dim=1), start.clone()
        for _ in range(attack.iterations):
            x = x.detach().requires_grad_()
            loss = nn.functional.cross_entropy(network(x), answer)
            (slope,) = torch.autograd.grad(loss, x)
            x = x + attack.step * slope.sign()
            x = x if limits is None else x.clamp(*limits)
            x = start + (x - start).clamp(-attack.radius, attack.radius)
        results.append(x.numpy(force=True))
    return np.concatenate(results)


@pytest.fixture(scope="module")
def trained(alone):
    """A network over four features in [0, 1], its inputs and their classes, some overlapping."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=600)
    X = np.clip(0.25 + 0.25 * y[:, None] + rng.normal(0, 0.12, (600, 4)), 0, 1).astype(np.float32)
    training = Training(batch=32, epochs=100, least=0.7, until=0.9)
    parts = (X[:300], y[:300]), (X[300:], y[300:])
    network, _ = train_network(Architecture(hidden=(16, 16)), training, *parts, 3, seed=0)
    return network, *parts[1]


@pytest.mark.parametrize("limits", [None, (0.0, 1.0)])
@pytest.mark.parametrize(
    "attack", [Attack(0.1, 0.02, 10), Attack(0.1, 0.01, 3), Attack(0.05, 0.1, 7)]
)  # the steps of the last are longer than its radius
def test_the_attack_is_the_plain_one_within_radius_and_limits(trained, attack, limits):
    network, X, _ = trained  # 300: more than the toolbox takes at a time
    before, answers = X.copy(), network(torch.from_numpy(X)).numpy(force=True)
    found = attack_inputs(network, X, 3, attack, limits)
    assert (found.shape, found.dtype) == (X.shape, np.float32)
    np.testing.assert_allclose(found, plain_attack(network, X, attack, limits), atol=1e-5)
    most = min(attack.radius, attack.step * attack.iterations)
    assert abs(np.abs(found - X).max() - most) <= ROUNDING
    assert limits is None or 0 <= found.min() <= found.max() <= 1
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(network(torch.from_numpy(X)).numpy(force=True), answers)
    assert not network.training


@pytest.mark.parametrize(
    ("shape", "convolution"), [((1, 20), Convolution(4, 5)), ((2, 9, 9), Convolution(4, 3, True))]
)
def test_series_and_images_are_attacked_alike(shape, convolution):
    network = build_network(Architecture((convolution,), (6,)), shape, 4, generator(3))
    X = np.random.default_rng(1).random((30, *shape)).astype(np.float32)
    found = attack_inputs(network, X, 4, Attack(0.1, 0.02, 8), (0.0, 1.0))
    expected = plain_attack(network, X, Attack(0.1, 0.02, 8), (0.0, 1.0))
    # Where a slope is as good as 0 its sign is a matter of rounding.
    assert (np.abs(found - expected) < 1e-5).mean() > 0.99


def test_answers_are_turned_more_by_a_larger_radius_and_wrong_ones_can_become_right(trained):
    network, X, y = trained
    found = attack_inputs(network, X, 3, Attack(0.1, 0.02, 20), (0.0, 1.0))
    with torch.no_grad():
        before, after = (network(torch.from_numpy(each)).argmax(1).numpy() for each in (X, found))
    wrong = before != y
    assert wrong.sum() >= 10
    assert (after[wrong] == y[wrong]).mean() > 0.5
    assert (after != before).mean() > 0.3
    attacks = (attack_inputs(network, X, 3, Attack(r, r / 5, 20), None) for r in (0.01, 0.05, 0.2))
    first, second, third = (measure_accuracy(network, each, y) for each in attacks)
    assert first > second > third
    assert measure_accuracy(network, found, y) < measure_accuracy(network, X, y) - 0.2


# Noise

KINDS = {add_gaussian: stats.norm(0, 0.3), add_uniform: stats.uniform(-0.3, 0.6)}


@pytest.mark.parametrize("add", KINDS)
@pytest.mark.parametrize("shape", [(200_000,), (1000, 200), (50, 10, 20, 20)])
def test_noise_is_drawn_anew_for_every_value_from_its_distribution(add, shape):
    noise = (add(np.full(shape, 3.0), 0.3, np.random.default_rng(0)) - 3.0).ravel()
    assert add is add_gaussian or np.abs(noise).max() <= 0.3 + 1e-12
    assert stats.kstest(noise, KINDS[add].cdf).pvalue > 0.01
    assert len(np.unique(noise)) > 0.999 * noise.size
    columns = noise[:12_000].reshape(300, 40)
    between = np.corrcoef(columns.T) - np.eye(40)
    assert np.abs(between).max() < 0.3  # 40 features over 300 samples: 5 deviations of 1/√300


@given(
    add=st.sampled_from(list(KINDS)),
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    dtype=st.sampled_from([np.float16, np.float32, np.float64]),
    limits=st.sampled_from([None, (0.0, 1.0), (-2.0, -1.0)]),
    seed=st.integers(0, 2**32 - 1),
)
def test_shape_and_dtype_stay_and_limits_clip(add, shape, dtype, limits, seed):
    X = np.random.default_rng(seed).random(shape).astype(dtype)
    before = X.copy()
    first, again = (add(X, 0.5, np.random.default_rng(seed), limits) for _ in range(2))
    assert (first.shape, first.dtype) == (X.shape, X.dtype)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(X, before)
    assert not np.shares_memory(first, X)
    if limits is not None:  # nothing changes within
        free = add(X, 0.5, np.random.default_rng(seed))
        np.testing.assert_array_equal(first, np.clip(free, *map(dtype, limits)))


@pytest.mark.parametrize("add", KINDS)
def test_a_generator_goes_on_and_an_amplitude_scales(add):
    X, rng = np.zeros((5, 4)), np.random.default_rng(3)
    first, second = add(X, 1.0, rng), add(X, 1.0, rng)
    assert not np.isclose(first, second).any()
    np.testing.assert_allclose(add(X, 2.5, np.random.default_rng(3)), 2.5 * first)
    np.testing.assert_array_equal(add(X, 0.0, np.random.default_rng(3)), X)


# Setups

ALL = SETUPS | READINGS
# By the paper's section S2: the shape of an input; filters and kernels of the convolutions; units
# of the hidden layers; amplitudes of the normal and the uniform noise, and of the last condition.
PAPER = {
    "grid_stability": ((13,), [], [32, 32], (0.03, 0.09, 0.5)),
    "iris": ((4,), [], [8, 5], (0.03, 0.09, 0.5)),
    "italy_power_demand": ((1, 24), [(6, 4), (16, 12), (8, 6)], [], (0.2, 0.6, 0.5)),
    "synthetic_control": ((1, 60), [(9, 12), (12, 16), (9, 12)], [], (0.5, 1.0, 0.2)),
    "mnist": ((784,), [], [32, 32], (0.1, 0.3, 0.2)),
    "gtsrb": ((3, 32, 32), [(6, 5), (16, 5), (64, 5)], [32], (0.033, 0.1, 0.05)),
}


def test_the_six_datasets_of_the_tables_have_a_setup_each():
    own = [name for name, setup in ALL.items() if name == setup.published]
    assert sorted(own) == sorted(PAPER) == sorted(ACCURACIES)
    assert sorted({key.dataset for key in load_published()}) == sorted(own)
    assert list(SETUPS) == [*own, "grid_stability_12"]
    assert not set(SETUPS) & set(READINGS)
    assert find_setup("iris") is SETUPS["iris"]
    assert find_setup("mnist_before_relu") is READINGS["mnist_before_relu"]
    with pytest.raises(InputError, match=r"'cifar'.*iris, .*gtsrb.*mnist_before_relu"):
        find_setup("cifar")


@pytest.mark.parametrize("name", ALL)
def test_a_setup_fits_the_paper(name):
    setup = ALL[name]
    shape, convolutions, hidden, amplitudes = PAPER[setup.published]
    assert (setup.name, setup.dataset in DATASETS, setup.seeds >= 5) == (name, True, True)
    assert [(each.filters, each.kernel) for each in setup.architecture.convolutions] == convolutions
    assert list(setup.architecture.hidden) == hidden
    # The published accuracy is what a network happened to have: it may end training, and one that
    # falls far short of it has not learned.
    accuracy = ACCURACIES[setup.published]
    assert setup.training.until in (None, accuracy)
    assert accuracy - 0.15 < setup.training.least < accuracy
    published = [key for key in load_published() if key.dataset == setup.published]
    conditions = {key.perturbation for key in published}
    assert ("large" in conditions) == (setup.noise.large is not None)
    assert ("adversarial" in conditions) == (setup.attack is not None)
    last = setup.noise.large if setup.attack is None else setup.attack.radius
    assert (setup.noise.gaussian, setup.noise.uniform, last) == amplitudes
    # The layers of support are in the network, in order.
    shape = (12,) if setup.dataset == "grid_stability_12" else shape
    network = build_network(setup.architecture, shape, 3, generator())
    names = [layer for layer, _ in network.named_children()]
    assert {key.layers for key in published} <= set(setup.layer_sets)
    assert setup.layer_sets["logit"] == (names[-1],)
    assert names.index(setup.layers[0]) < names.index(setup.layers[1])


@pytest.mark.parametrize("name", ALL)
def test_a_setup_is_plain_values_and_its_quick_form_is_smaller_and_else_the_same(name):
    setup, quick = ALL[name], ALL[name].quick()
    changed = replace(setup, training=replace(setup.training, hold=4))
    others = [each for each in ALL.values() if each.name != name] + [changed, quick]
    assert json.dumps(setup.to_dict()) not in [json.dumps(each.to_dict()) for each in others]
    assert (quick.max_samples, quick.seeds, setup.max_samples) == (500, 2, None)
    restored = replace(
        quick, max_samples=None, seeds=setup.seeds, attack=setup.attack, training=setup.training
    )
    assert restored == setup
    if setup.attack is not None:
        assert setup.attack.step * setup.attack.iterations >= setup.attack.radius
        assert quick.attack.radius == setup.attack.radius
        assert quick.attack.iterations <= setup.attack.iterations
