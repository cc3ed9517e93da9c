"""The Basic Iterative Method against the same method in a few lines of torch."""

import numpy as np
import pytest
import torch
from torch import nn

from reproduction.art import attack_inputs
from reproduction.setups import Architecture, Attack, Convolution, Training
from reproduction.torch import build_network, measure_accuracy, one_thread, train_network

ROUNDING = 1e-6  # of float32, near 1


@pytest.fixture(autouse=True, scope="module")
def alone():
    """Small networks on threads of their own wait for each other."""
    with one_thread():
        yield


def plain_attack(network, X, attack, limits):
    """Step by step, one sample at a time: up the loss of the network's own answer."""
    results = []
    for sample in torch.from_numpy(X):
        start = sample[None]
        answer = network(start).argmax(dim=1)
        x = start.clone()
        for _ in range(attack.iterations):
            x = x.detach().requires_grad_()
            loss = nn.functional.cross_entropy(network(x), answer)
            (slope,) = torch.autograd.grad(loss, x)
            x = x + attack.step * slope.sign()
            if limits is not None:
                x = x.clamp(*limits)
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
    "attack",
    [
        Attack(0.1, 0.02, 10),
        Attack(0.1, 0.01, 3),
        Attack(0.05, 0.1, 7),  # steps that are longer than the radius
    ],
)
def test_the_attack_is_the_plain_one(trained, attack, limits):
    network, X, _ = trained  # 300: more than the toolbox takes at a time
    found = attack_inputs(network, X, 3, attack, limits)
    assert (found.shape, found.dtype) == (X.shape, np.float32)
    np.testing.assert_allclose(found, plain_attack(network, X, attack, limits), atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "convolution"), [((1, 20), Convolution(4, 5)), ((2, 9, 9), Convolution(4, 3, True))]
)
def test_series_and_images_are_attacked_alike(shape, convolution):
    architecture = Architecture(convolutions=(convolution,), hidden=(6,))
    network = build_network(architecture, shape, 4, torch.Generator().manual_seed(3))
    X = np.random.default_rng(1).random((30, *shape)).astype(np.float32)
    attack = Attack(0.1, 0.02, 8)
    found = attack_inputs(network, X, 4, attack, (0.0, 1.0))
    assert found.shape == X.shape
    expected = plain_attack(network, X, attack, (0.0, 1.0))
    # Where a slope is as good as 0 its sign is a matter of rounding.
    assert (np.abs(found - expected) < 1e-5).mean() > 0.99


def test_no_value_is_changed_by_more_than_the_radius_or_past_the_limits(trained):
    network, X, _ = trained
    before = X.copy()
    for limits in (None, (0.0, 1.0)):
        found = attack_inputs(network, X, 3, Attack(0.2, 0.05, 10), limits)
        change = np.abs(found - X)
        assert change.max() <= 0.2 + ROUNDING
        assert change.max() >= 0.2 - ROUNDING
        within = (found.min() >= 0) and (found.max() <= 1)
        assert within == (limits is not None)
    np.testing.assert_array_equal(X, before)


def test_answers_are_turned_and_a_wrong_one_can_become_right(trained):
    network, X, y = trained
    found = attack_inputs(network, X, 3, Attack(0.1, 0.02, 20), (0.0, 1.0))
    with torch.no_grad():
        before = network(torch.from_numpy(X)).argmax(dim=1).numpy()
        after = network(torch.from_numpy(found)).argmax(dim=1).numpy()
    wrong = before != y
    assert wrong.sum() >= 10
    assert (after[wrong] == y[wrong]).mean() > 0.5
    assert (after != before).mean() > 0.3
    assert measure_accuracy(network, found, y) < measure_accuracy(network, X, y) - 0.2


def test_a_larger_radius_turns_more_answers(trained):
    network, X, y = trained
    accuracies = [
        measure_accuracy(network, attack_inputs(network, X, 3, Attack(r, r / 5, 20), None), y)
        for r in (0.01, 0.05, 0.2)
    ]
    assert accuracies[0] > accuracies[1] > accuracies[2]


def test_the_network_answers_as_before(trained):
    network, X, _ = trained
    before = network(torch.from_numpy(X)).numpy(force=True)
    attack_inputs(network, X, 3, Attack(0.1, 0.02, 3), None)
    np.testing.assert_array_equal(network(torch.from_numpy(X)).numpy(force=True), before)
    assert not network.training
