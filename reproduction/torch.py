"""The base classifiers: networks as the paper describes them, trained as its authors' tools do.

The authors used Keras, so we keep its conventions where torch's differ: initial weights are uniform
(Glorot and Bengio), or normal and truncated at two standard deviations (He et al.); biases are 0,
Adam's epsilon is 1e-7, and padding "same" puts the odd zero at the end.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from iknow.core.arrays import Floats32, Ints
from iknow.errors import IknowError, InputError
from reproduction.setups import Architecture, Training, Weights

# The standard deviation of a standard normal truncated at ±2.
CUT_DEVIATION = 0.87962566103423978


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums in torch depend on the number of threads, and small networks gain nothing from it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train_network(
    architecture: Architecture,
    training: Training,
    train: tuple[Floats32, Ints],
    val: tuple[Floats32, Ints],
    n_classes: int,
    seed: int,
    device: str = "cpu",
) -> tuple[nn.Module, int]:
    """A network trained on (X, y), on a device, and its epochs.

    X: of shape (n, ...), y: of shape (n,). The seed determines the weights and the batches.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("no CUDA device is at hand: leave --device out, to run on the CPU")
    X, y = (torch.from_numpy(each).to(device) for each in train)
    accuracy = 0.0
    for restart in range(training.restarts):
        generator = torch.Generator().manual_seed(seed + 1_000_003 * restart)
        network = build_network(
            architecture, train[0].shape[1:], n_classes, generator, training.weights
        ).to(device)
        optimizer = torch.optim.Adam(network.parameters(), lr=training.rate, eps=1e-7)
        held, epoch = 0, 0
        while epoch < training.epochs and held < training.hold:
            _train_epoch(network, optimizer, X, y, training.batch, generator)
            epoch += 1
            if training.until is not None:
                accuracy = measure_accuracy(network, *val)
                held = held + 1 if accuracy >= training.until else 0
        accuracy = measure_accuracy(network, *val)
        if accuracy >= training.least:
            return network, epoch
    raise IknowError(
        f"none of {training.restarts} networks learned: the last is right on {accuracy:.3f} of the "
        f"validation part; expected {training.least:.3f}"
    )


def build_network(
    architecture: Architecture,
    shape: tuple[int, ...],
    n_classes: int,
    generator: torch.Generator,
    weights: Weights = "glorot",
) -> nn.Module:
    """A network for inputs of a shape: (features,), (channels, length), (channels, height, width).

    It returns logits of shape (n, n_classes).
    """
    # Layers draw initial weights, which we replace: that must not advance the user's random state.
    with torch.random.fork_rng(devices=[]):
        network = _stack(architecture, shape, n_classes)
    _initialise(network, generator, weights)
    return network


def _stack(architecture: Architecture, shape: tuple[int, ...], n_classes: int) -> nn.Module:
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    width, n_relus = shape[0], 0
    for i, block in enumerate(architecture.convolutions, start=1):
        if architecture.same:
            layers[f"pad{i}"] = _pad(block.kernel, len(shape) - 1)
        layers[f"conv{i}"] = _convolve(len(shape) - 1, width, block.filters, block.kernel)
        n_relus += 1
        layers[f"relu{n_relus}"] = nn.ReLU()
        if block.pool:
            layers[f"pool{i}"] = nn.MaxPool2d(2) if len(shape) == 3 else nn.MaxPool1d(2)
        width = block.filters
    if architecture.convolutions:
        layers["gap"] = nn.AdaptiveAvgPool2d(1) if len(shape) == 3 else nn.AdaptiveAvgPool1d(1)
        layers["flat"] = nn.Flatten()
    for i, units in enumerate(architecture.hidden, start=1):
        layers[f"dense{i}"] = nn.Linear(width, units)
        n_relus += 1
        layers[f"relu{n_relus}"] = nn.ReLU()
        width = units
    layers["logits"] = nn.Linear(width, n_classes)
    return nn.Sequential(layers)


@torch.no_grad()
def measure_accuracy(network: nn.Module, X: Floats32, y: Ints, batch: int = 4096) -> float:
    """Fraction of right answers for X, of shape (n, ...), with true labels y, of shape (n,)."""
    network.eval()
    device = next(network.parameters()).device
    batches = torch.split(torch.from_numpy(X), batch)
    parts = [network(part.to(device)).argmax(dim=1) for part in batches]
    return float(np.mean(torch.cat(parts).cpu().numpy() == y))


def _train_epoch(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    X: Tensor,
    y: Tensor,
    batch: int,
    generator: torch.Generator,
) -> None:
    network.train()
    order = torch.randperm(len(X), generator=generator).to(X.device)
    for rows in torch.split(order, batch):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(network(X[rows]), y[rows])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def _convolve(n_axes: int, n_inputs: int, n_outputs: int, kernel: int) -> nn.Module:
    kind = nn.Conv2d if n_axes == 2 else nn.Conv1d
    return kind(n_inputs, n_outputs, kernel)


def _pad(kernel: int, n_axes: int) -> nn.Module:
    sides = ((kernel - 1) // 2, kernel // 2)
    return nn.ZeroPad2d(sides * 2) if n_axes == 2 else nn.ZeroPad1d(sides)


def _initialise(network: nn.Module, generator: torch.Generator, weights: Weights) -> None:
    for module in network.modules():
        if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d)):
            if weights == "glorot":
                nn.init.xavier_uniform_(module.weight, generator=generator)
            else:
                deviation = math.sqrt(2 / module.weight[0].numel()) / CUT_DEVIATION
                cut = 2 * deviation
                nn.init.trunc_normal_(module.weight, 0.0, deviation, -cut, cut, generator=generator)
            assert module.bias is not None
            nn.init.zeros_(module.bias)
