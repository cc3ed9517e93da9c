"""A small network, written out: two layers, three classes, and what it observes."""

import numpy as np
import pytest

from iknow.evaluation.peers import Observed

WIDTH, FEATURES, CLASSES = 6, 4, 3


CENTERS = np.array([[2, 0, 0, 1], [0, 2, 0, -1], [0, 0, 2, 0]], dtype=float)


def draw(n, seed, noise):
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=n)
    return CENTERS[labels] + noise * rng.normal(size=(n, FEATURES)), labels


@pytest.fixture(scope="session")
def network():
    """Random first layer, last layer by least squares: weights and bias of each."""
    rng = np.random.default_rng(0)
    first, offset = rng.normal(size=(FEATURES, WIDTH)), rng.normal(size=WIDTH)
    inputs, labels = draw(200, 4, noise=1.0)
    hidden = np.tanh(inputs @ first + offset)
    design = np.column_stack([hidden, np.ones(len(hidden))])
    last = 3 * np.linalg.lstsq(design, np.eye(CLASSES)[labels], rcond=None)[0]
    last += 0.3 * rng.normal(size=last.shape)  # otherwise its columns add up to a constant
    return (first, offset), (last[:-1].T, last[-1])


@pytest.fixture(scope="session")
def observe(network):
    (first, offset), (weights, bias) = network

    def observe(n, seed, noise=1.0):
        inputs, labels = draw(n, seed, noise)
        hidden = np.tanh(inputs @ first + offset)
        logits = hidden @ weights.T + bias
        return Observed(inputs, hidden, logits, logits.argmax(axis=1), labels)

    return observe


@pytest.fixture(scope="session")
def training(observe):
    return observe(300, 1)


@pytest.fixture(scope="session")
def validation(observe):
    return observe(100, 2)


@pytest.fixture(scope="session")
def test(observe):
    return observe(80, 3, noise=2.0)
