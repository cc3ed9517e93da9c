"""The activations of the paper's MNIST network, trained as in `reproduction`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.cases import Case, Layer
from iknow.core.arrays import Floats32, Ints
from iknow.core.evidence import Evidence
from iknow.errors import MissingExtraError
from iknow.models.adapt import as_model
from iknow.models.inputs import cut_batches
from iknow.models.model import Observation, join_whole
from iknow.rules import Ball
from iknow.search.cells import CpuIndex
from iknow.selection import Goal, Validation, select
from reproduction.data.datasets import load_dataset
from reproduction.setups import find_setup

BATCH = 4096
FIRST_LAYER = "relu1"


@dataclass(frozen=True, eq=False)
class Part:
    """The network's outputs about one part of the data, and the truth, of shape (n,)."""

    outputs: Observation
    y_true: Ints


@dataclass(frozen=True, eq=False)
class Digits:
    """The trained network's outputs for MNIST. layers: the two of the paper, in order."""

    train: Part
    val: Part
    test: Part
    layers: tuple[str, str]
    accuracy: float
    epochs: int

    def evidence(self, layers: tuple[str, ...], k: int = 0) -> dict[str, Evidence]:
        """Evidence about the validation samples, by layer."""
        return {
            name: CpuIndex(
                self.train.outputs.activations[name], self.train.y_true, self.n_classes
            ).gather(self.val.outputs.activations[name], k)
            for name in layers
        }

    @property
    def n_classes(self) -> int:
        return int(self.train.outputs.scores.shape[1])


def train_digits(n_rows: int | None) -> Digits:
    """Train the network on all training samples or, for a quick run, on the first few."""
    try:
        from reproduction.torch import measure_accuracy, one_thread, train_network
    except ImportError as error:
        raise MissingExtraError("the MNIST network", "torch") from error
    setup = find_setup("mnist")
    if n_rows is not None:
        # Fewer samples need smaller batches to learn in as few epochs.
        setup = setup.quick()
        setup = replace(setup, training=replace(setup.training, batch=64))
    data = load_dataset("mnist", seed=0)
    fewer = None if n_rows is None else n_rows // 5
    train = data.X_train[:n_rows], data.y_train[:n_rows]
    val = data.X_val[:fewer], data.y_val[:fewer]
    test = data.X_test[:fewer], data.y_test[:fewer]
    with one_thread():
        network, epochs = train_network(
            setup.architecture, setup.training, train, val, len(data.classes), 0
        )
        layers = (FIRST_LAYER, *setup.layers)
        return Digits(
            train=_observe(network, *train, layers),
            val=_observe(network, *val, layers),
            test=_observe(network, *test, layers),
            layers=setup.layers,
            accuracy=measure_accuracy(network, *test),
            epochs=epochs,
        )


def make_mnist_case(digits: Digits) -> Case:
    """Two layers, queries from the test part, radii of the largest coverage on validation."""
    belief, y_true = digits.val.outputs.belief, digits.val.y_true
    validation = Validation(digits.evidence(digits.layers), belief, y_true)
    chosen = select(Goal(), validation, Ball)

    def layer(name: str) -> Layer:
        parts = (part.outputs.activations[name] for part in (digits.train, digits.test))
        points, queries = (np.ascontiguousarray(each, dtype=np.float32) for each in parts)
        rule = chosen.neighborhoods[name]
        assert isinstance(rule, Ball)
        return Layer(name, points, queries, rule.radius)

    return Case(
        name="mnist",
        about=f"activations of the paper's network, right on {digits.accuracy:.1%} of the test "
        f"samples after {digits.epochs} epochs",
        layers=tuple(layer(name) for name in digits.layers),
        labels=digits.train.y_true,
        belief=digits.test.outputs.belief,
        n_classes=digits.n_classes,
        facts={"accuracy": digits.accuracy, "epochs": digits.epochs, "tuned": chosen.coverage},
    )


def _observe(network: Any, X: Floats32, y: Ints, layers: tuple[str, ...]) -> Part:
    model = as_model(network)
    parts = (model.observe(batch, layers) for batch in cut_batches(X, BATCH))
    return Part(join_whole(parts, len(X)), y)
