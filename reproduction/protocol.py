"""The protocol: one experiment with one seed, from data to measured cells.

    dataset → network → Epistemic classifier → choice on validation data → test data, perturbed

Nothing is chosen on test data. The seed determines the split, the weights, the batches and the
noise; on one machine a seed always gives the same cells, however many others run at the same time.
(On a GPU training adds in any order, and the cells differ as they do between machines.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.arrays import Bools, Floats32
from iknow.errors import MissingExtraError
from iknow.explain.assessment import Assessment
from iknow.rules import Ball
from reproduction.data.datasets import Dataset, load_dataset
from reproduction.methods import METHODS, Chosen, choose, find_known, tune_default
from reproduction.noise import add_gaussian, add_uniform
from reproduction.setups import Setup
from reproduction.tables import METRICS


@dataclass(frozen=True)
class Cell:
    """One measured number, in the terms of the paper's tables. value: None if undefined."""

    layers: str
    method: str
    perturbation: str
    metric: str
    value: float | None


@dataclass(frozen=True)
class Outcome:
    """The outcome of one seed of an experiment.

    facts: the network's accuracies and epochs, and the chosen parameters.
    """

    name: str
    seed: int
    cells: list[Cell]
    facts: dict[str, Any]


def run_seed(setup: Setup, seed: int, device: str = "cpu") -> Outcome:
    """Run one experiment with one seed. device: where to train and search, "cpu" or "cuda"."""
    try:
        from reproduction.torch import measure_accuracy, one_thread, train_network
    except ImportError as error:
        raise MissingExtraError("reproducing the paper", "reproduction") from error
    data = _limit(load_dataset(setup.dataset, seed), setup.max_samples)
    with one_thread():
        network, epochs = train_network(
            setup.architecture,
            setup.training,
            (data.X_train, data.y_train),
            (data.X_val, data.y_val),
            len(data.classes),
            seed,
            device,
        )
        read = tuple(dict.fromkeys(chain.from_iterable(setup.layer_sets.values())))
        # The radii are chosen later, for each set of layers; until then we need only the evidence.
        classifier = _wrap(network, data, device, layers=read, rule=Ball(0.0))
        chosen = _choose(classifier, setup, data)
        coverages = {name: each.coverage for name, each in chosen.items()}
        default = tune_default(_wrap(network, data, device), data.X_val, coverages)
        n_neighbors = max(each.k for each in chosen.values())
        cells: list[Cell] = []
        accuracy: dict[str, float] = {}
        for perturbation, X in _perturb(setup, data, network, seed):
            assessment = classifier.assess(X, n_neighbors, evidence=True)
            right = assessment.belief_codes == data.y_test
            accuracy[perturbation] = float(right.mean())
            by_default = default.find_known(X)
            for layers, parameters in chosen.items():
                known = find_known(parameters, assessment) | {"default": by_default[layers]}
                cells += _measure(known, right, layers, perturbation)
        facts = {
            "epochs": epochs,
            "validation_accuracy": measure_accuracy(network, data.X_val, data.y_val),
            "accuracy": accuracy,
            "chosen": {
                layers: _describe(each, default.levels[layers]) for layers, each in chosen.items()
            },
        }
    return Outcome(setup.name, seed, cells, facts)


def _wrap(network: Any, data: Dataset, device: str, **options: Any) -> EpistemicClassifier:
    classifier = EpistemicClassifier(
        network,
        **options,
        classes=np.arange(len(data.classes)),
        batch_size=1024,  # fixed: a network's last bits may depend on it
        progress=False,
        search=None if device == "cpu" else device,
    )
    return classifier.fit(data.X_train, data.y_train)


def _choose(classifier: EpistemicClassifier, setup: Setup, data: Dataset) -> dict[str, Chosen]:
    kept: dict[int, Assessment] = {}

    def assess_val(n_neighbors: int) -> Assessment:
        if n_neighbors not in kept:
            kept[n_neighbors] = classifier.assess(data.X_val, n_neighbors, evidence=True)
        return kept[n_neighbors]

    return {
        name: choose(assess_val, data.y_val, layers, len(data.y_train))
        for name, layers in setup.layer_sets.items()
    }


def _perturb(
    setup: Setup, data: Dataset, network: Any, seed: int
) -> Iterator[tuple[str, Floats32]]:
    """The test inputs under each condition of the tables, one at a time to save memory."""
    noise, X = setup.noise, data.X_test
    unit = float(data.X_train.std()) if noise.relative else 1.0
    rng = np.random.default_rng(seed)
    yield "nominal", X
    yield "gaussian", add_gaussian(X, noise.gaussian * unit, rng, noise.limits)
    yield "uniform", add_uniform(X, noise.uniform * unit, rng, noise.limits)
    if noise.large is not None:
        spread = float(data.X_train.max() - data.X_train.min())
        yield "large", add_uniform(X, noise.large * spread, rng, noise.limits)
    if setup.attack is not None:
        try:
            from reproduction.art import attack_inputs
        except ImportError as error:
            raise MissingExtraError("the adversarial conditions", "reproduction") from error
        changed = attack_inputs(network, X, len(data.classes), setup.attack, noise.limits)
        yield "adversarial", changed


def _measure(
    known: Mapping[str, Bools], right: Bools, layers: str, perturbation: str
) -> list[Cell]:
    """The cells of a table; known: by method, masks of shape (n,), like `right`."""
    cells = []
    for method in METHODS:
        inside = known[method]
        values = (float(inside.mean()), _mean(right[inside]), _mean(right[~inside]))
        cells += [
            Cell(layers, method, perturbation, metric, value)
            for metric, value in zip(METRICS, values, strict=True)
        ]
    return cells


def _mean(right: Bools) -> float | None:
    return float(right.mean()) if len(right) else None


def _describe(chosen: Chosen, level: float) -> dict[str, Any]:
    return {
        "coverage": chosen.coverage,
        "radii": dict(chosen.radii),
        "k": chosen.k,
        "threshold": chosen.threshold,
        "level": level,
    }


def _limit(data: Dataset, most: int | None) -> Dataset:
    """A limited number of samples of each part, for a quick run; parts may be sorted by class."""
    if most is None:
        return data
    rng = np.random.default_rng(0)
    parts: dict[str, Any] = {}
    for part in ("train", "val", "test"):
        X, y = getattr(data, f"X_{part}"), getattr(data, f"y_{part}")
        rows = rng.permutation(len(y))[: most if part != "train" else 4 * most]
        parts |= {f"X_{part}": X[rows], f"y_{part}": y[rows]}
    return replace(data, **parts)
