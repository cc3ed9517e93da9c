"""The base classifiers against plain torch: layers, first weights, padding, and training."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from iknow.errors import IknowError, InputError
from reproduction import torch as networks
from reproduction.setups import SETUPS, Architecture, Convolution, Training
from reproduction.torch import build_network, measure_accuracy, one_thread, train_network

ARCHITECTURE = Architecture(hidden=(16,))
TRAINING = Training(batch=16, epochs=60, least=0.95, until=0.95)


@pytest.fixture(autouse=True)
def alone():
    """Small networks on threads of their own wait for each other."""
    with one_thread():
        yield


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def shapes_of(network, shape, n=2):
    """The shape of one sample after each layer, by layer, in order."""
    x, shapes = torch.zeros(n, *shape), {}
    for name, layer in network.named_children():
        x = layer(x)
        assert len(x) == n
        shapes[name] = tuple(x.shape[1:])
    return shapes


# Layers


def test_a_dense_network():
    network = build_network(SETUPS["iris"].architecture, (4,), 3, generator())
    expected = {"dense1": (8,), "relu1": (8,), "dense2": (5,), "relu2": (5,), "logits": (3,)}
    shapes = shapes_of(network, (4,))
    assert shapes == expected
    assert list(shapes) == list(expected)


def test_a_network_over_series():
    network = build_network(SETUPS["italy_power_demand"].architecture, (1, 24), 2, generator())
    expected = {
        "conv1": (6, 21),
        "relu1": (6, 21),
        "conv2": (16, 10),
        "relu2": (16, 10),
        "conv3": (8, 5),
        "relu3": (8, 5),
        "gap": (8, 1),
        "flat": (8,),
        "logits": (2,),
    }
    shapes = shapes_of(network, (1, 24))
    assert shapes == expected
    assert list(shapes) == list(expected)


def test_a_network_over_images():
    architecture = replace(SETUPS["gtsrb"].architecture, same=False)
    network = build_network(architecture, (3, 32, 32), 8, generator())
    expected = {
        "conv1": (6, 28, 28),
        "relu1": (6, 28, 28),
        "pool1": (6, 14, 14),
        "conv2": (16, 10, 10),
        "relu2": (16, 10, 10),
        "pool2": (16, 5, 5),
        "conv3": (64, 1, 1),
        "relu3": (64, 1, 1),
        "gap": (64, 1, 1),
        "flat": (64,),
        "dense1": (32,),
        "relu4": (32,),
        "logits": (8,),
    }
    shapes = shapes_of(network, (3, 32, 32))
    assert shapes == expected
    assert list(shapes) == list(expected)


def test_series_are_pooled_by_two():
    architecture = Architecture(convolutions=(Convolution(3, 4, pool=True),))
    shapes = shapes_of(build_network(architecture, (2, 23), 2, generator()), (2, 23))
    assert (shapes["relu1"], shapes["pool1"], shapes["gap"]) == ((3, 20), (3, 10), (3, 1))


def test_a_linear_classifier_has_logits_alone():
    assert shapes_of(build_network(Architecture(), (4,), 3, generator()), (4,)) == {"logits": (3,)}


def test_relus_cut_and_the_average_is_over_all_places():
    architecture = Architecture(convolutions=(Convolution(5, 3),))
    network = build_network(architecture, (2, 9), 3, generator())
    x = torch.randn(4, 2, 9, generator=generator(1))
    convolved = network.conv1(x).numpy(force=True)
    average = np.where(convolved > 0, convolved, 0).mean(axis=2)
    weight, bias = (each.numpy(force=True) for each in network.logits.parameters())
    expected = average @ weight.T + bias
    np.testing.assert_allclose(network(x).numpy(force=True), expected, rtol=1e-5, atol=1e-6)


# First weights


# Architecture, shape, layer, and what enters and leaves one of its units.
FANS = [
    (Architecture(hidden=(600,)), (400,), "dense1", 400, 600),
    (Architecture(hidden=(600, 400)), (2,), "dense2", 600, 400),
    (Architecture(convolutions=(Convolution(1000, 15),)), (12, 15), "conv1", 12 * 15, 1000 * 15),
    (Architecture(convolutions=(Convolution(1000, 5),)), (9, 5, 5), "conv1", 9 * 25, 1000 * 25),
]


def first_weights(architecture, shape, layer, **options):
    weight = getattr(build_network(architecture, shape, 2, generator(), **options), layer).weight
    return weight.numpy(force=True).ravel().astype(float)


@pytest.mark.parametrize(("architecture", "shape", "layer", "fan_in", "fan_out"), FANS)
def test_weights_are_uniform_as_keras_draws_them(architecture, shape, layer, fan_in, fan_out):
    values = first_weights(architecture, shape, layer)
    limit = np.sqrt(6 / (fan_in + fan_out))
    assert np.abs(values).max() <= limit * (1 + 1e-6)
    assert stats.kstest(values, stats.uniform(-limit, 2 * limit).cdf).pvalue > 0.01


@pytest.mark.parametrize(("architecture", "shape", "layer", "fan_in", "fan_out"), FANS)
def test_weights_by_he_are_a_normal_cut_at_two_deviations(
    architecture, shape, layer, fan_in, fan_out
):
    values = first_weights(architecture, shape, layer, weights="he")
    wanted = np.sqrt(2 / fan_in)
    # What is left after the cut has the deviation that is wanted, so the one before is larger.
    before = wanted / stats.truncnorm(-2, 2).std()
    assert values.std() == pytest.approx(wanted, rel=0.01)
    assert np.abs(values).max() <= 2 * before * (1 + 1e-6)
    assert np.abs(values).max() > 1.98 * before
    assert stats.kstest(values, stats.truncnorm(-2, 2, scale=before).cdf).pvalue > 0.01


def test_biases_are_zero_and_the_generator_decides_the_weights():
    build = [
        build_network(SETUPS["gtsrb"].architecture, (3, 32, 32), 8, generator(s)) for s in (0, 0, 1)
    ]
    one, same, other = (dict(network.named_parameters()) for network in build)
    assert len(one) == 10
    for name, values in one.items():
        assert torch.equal(values, same[name])
        if name.endswith("bias"):
            assert not values.any()
        else:
            assert not torch.isclose(values, other[name]).all()


# Padding


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5, 12])
@pytest.mark.parametrize("shape", [(2, 17), (2, 13, 15)])
def test_padding_same_is_torch_s_own(kernel, shape):
    architecture = Architecture(convolutions=(Convolution(3, kernel),), same=True)
    network = build_network(architecture, shape, 2, generator())
    shapes = shapes_of(network, shape)
    assert list(shapes)[:3] == ["pad1", "conv1", "relu1"]
    assert shapes["conv1"] == (3, *shape[1:])
    kind = nn.Conv1d if len(shape) == 2 else nn.Conv2d
    own = kind(shape[0], 3, kernel, padding="same")
    own.load_state_dict(network.conv1.state_dict())
    x = torch.randn(5, *shape, generator=generator(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that an even kernel costs a copy
        expected = own(x)
    torch.testing.assert_close(network.conv1(network.pad1(x)), expected, rtol=1e-5, atol=1e-6)


# Training


def blobs(n=200, seed=0):
    """Two groups a straight line tells apart, as the training part and the validation part."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    X = (rng.normal(size=(n, 2)) + 10 * y[:, None]).astype(np.float32)
    half = n // 2
    return (X[:half], y[:half]), (X[half:], y[half:])


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


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    train_network(ARCHITECTURE, TRAINING, *blobs(), 2, seed=3)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_seed_decides_whatever_the_global_generator():
    train, val = blobs()
    torch.manual_seed(1)
    one, epochs = train_network(ARCHITECTURE, TRAINING, train, val, 2, seed=3)
    torch.manual_seed(2)
    same, epochs_again = train_network(ARCHITECTURE, TRAINING, train, val, 2, seed=3)
    other, _ = train_network(ARCHITECTURE, TRAINING, train, val, 2, seed=4)
    assert epochs == epochs_again < TRAINING.epochs
    np.testing.assert_array_equal(weights_of(one), weights_of(same))
    assert not np.isclose(weights_of(one), weights_of(other)).all()


def test_accuracy_is_counted_in_batches_of_any_size():
    (X, y), _ = blobs(60)
    network = build_network(ARCHITECTURE, (2,), 2, generator())
    right = 0
    for sample, y_true in zip(X, y, strict=True):
        scores = network(torch.from_numpy(sample[None])).tolist()[0]
        right += scores.index(max(scores)) == y_true
    assert 0 < right < len(y)
    for batch in (1, 7, 4096):
        assert measure_accuracy(network, X, y, batch=batch) == right / len(y)


def script_accuracies(monkeypatch, *accuracies):
    """Let training see these accuracies, one after each epoch; returns those not seen yet."""
    left = list(accuracies)
    monkeypatch.setattr(networks, "measure_accuracy", lambda *arguments: left.pop(0))
    return left


def test_training_ends_when_the_accuracy_is_held(monkeypatch):
    training = Training(batch=50, epochs=20, least=0.85, until=0.9, hold=3)
    left = script_accuracies(monkeypatch, 0.9, 0.5, 0.95, 0.9, 0.89, 1, 1, 0.9, 0.9, 0.7)
    _, epochs = train_network(ARCHITECTURE, training, *blobs(), 2, seed=0)
    assert epochs == 8
    assert left == [0.7]


def test_a_network_that_does_not_hold_is_trained_to_the_end(monkeypatch):
    training = Training(batch=50, epochs=5, least=0.85, until=0.9, hold=3)
    left = script_accuracies(monkeypatch, 0.95, 0.95, 0.1, 0.95, 0.86, 0.86, 0.7)
    _, epochs = train_network(ARCHITECTURE, training, *blobs(), 2, seed=0)
    assert epochs == 5
    assert left == [0.7]


def test_without_an_accuracy_to_reach_all_epochs_are_trained(monkeypatch):
    training = Training(batch=50, epochs=4, least=0.85)
    left = script_accuracies(monkeypatch, 1.0, 0.7)
    _, epochs = train_network(ARCHITECTURE, training, *blobs(), 2, seed=0)
    assert epochs == 4
    assert left == [0.7]


def test_an_accuracy_below_the_least_at_the_end_starts_again(monkeypatch):
    training = Training(batch=50, epochs=3, least=0.85)
    script_accuracies(monkeypatch, 0.84, 0.86)
    built = []
    build = networks.build_network

    def build_and_tell(*arguments):
        network = build(*arguments)
        built.append(weights_of(network))
        return network

    monkeypatch.setattr(networks, "build_network", build_and_tell)
    found, epochs = train_network(ARCHITECTURE, training, *blobs(), 2, seed=0)
    assert epochs == 3
    assert len(built) == 2
    assert not np.isclose(*built).all()
    # Three epochs of Adam move no weight further than 3 · 2 · 0.001: it is the second network.
    assert np.abs(weights_of(found) - built[1]).max() < 0.007
    assert np.abs(weights_of(found) - built[0]).max() > 0.1


def test_a_dead_network_is_replaced(monkeypatch):
    build, built = networks.build_network, []

    def build_dead_first(*arguments):
        network = build(*arguments)
        if not built:
            with torch.no_grad():
                network.dense1.bias.fill_(-1e6)
        built.append(network)
        return network

    monkeypatch.setattr(networks, "build_network", build_dead_first)
    train, val = blobs()
    found, _ = train_network(ARCHITECTURE, TRAINING, train, val, 2, seed=0)
    assert found is built[1]
    assert measure_accuracy(built[0], *val) < 0.7
    assert measure_accuracy(found, *val) >= TRAINING.least


def test_when_nothing_learns_it_is_said():
    (X, y), val = blobs()
    training = replace(TRAINING, epochs=2, restarts=3)
    train = (np.zeros_like(X), y)
    with pytest.raises(IknowError, match=r"none of 3 networks learned: .* right on 0\.\d+.*0\.950"):
        train_network(ARCHITECTURE, training, train, val, 2, seed=0)


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
