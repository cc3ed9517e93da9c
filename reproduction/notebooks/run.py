"""One notebook with one seed: from its data to measured cells.

    data → network → Epistemic classifier → every trial on the test part

The seed decides the weights and the batches and, for the series, the split.

How much the weights stretch a radius up to a layer is, in the notebooks and in the paper's
supplement, the largest singular value of the product W_1 W_2 ⋯ W_i. With ReLUs between the matrices
that is no bound (see `iknow.metrics.lipschitz`); the product of their largest singular values is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from operator import mul
from types import ModuleType
from typing import Any

import numpy as np

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.arrays import Floats
from iknow.core.assertion import Assertion
from iknow.core.rule import Rule
from iknow.errors import MissingExtraError
from iknow.evaluation.metrics import Evaluation, evaluate
from iknow.explain.assessment import Assessment
from iknow.metrics.lipschitz import spectral_norm
from iknow.rules import Ball, RelativeBall
from iknow.selection import Goal, Validation, select
from reproduction.data.datasets import Dataset
from reproduction.notebooks.printed import METRICS, key_of
from reproduction.notebooks.settings import Notebook
from reproduction.protocol import Cell, Outcome


def run_notebook(notebook: Notebook, seed: int) -> Outcome:
    """Run one notebook with one seed."""
    data = notebook.load(seed)
    with import_torch().one_thread():
        classifier = fit_notebook(notebook, data, seed)
        weights = _weights_of(classifier.model, notebook)
        facts = {"product_norms": product_norms(weights), "norm_products": norm_products(weights)}
        cells = list(measure_trials(notebook, classifier, data, facts["product_norms"]))
        cells += _watch(notebook, data, seed)
    return Outcome(notebook.name, seed, cells, facts)


def fit_notebook(notebook: Notebook, data: Dataset, seed: int) -> EpistemicClassifier:
    """A notebook's network, trained on its data, and balls of radius 0 for trials to replace."""
    train, val = (data.X_train, data.y_train), (data.X_val, data.y_val)
    network, _ = import_torch().train_network(
        notebook.architecture, notebook.training, train, val, len(data.classes), seed
    )
    return EpistemicClassifier(
        network,
        notebook.layers,
        rule=Ball(0.0),
        classes=np.arange(len(data.classes)),
        batch_size=1024,
        progress=False,
    ).fit(*train)


def import_torch() -> ModuleType:
    """`reproduction.torch`; without torch, an error that says how to install it."""
    try:
        from reproduction import torch
    except ImportError as error:
        raise MissingExtraError("reproducing the notebooks", "reproduction") from error
    return torch


def measure_trials(
    notebook: Notebook,
    classifier: EpistemicClassifier,
    data: Dataset,
    stretches: dict[str, float],
) -> Iterator[Cell]:
    """The cells of everything that a notebook does with a fitted classifier."""
    n_neighbors = int(max((max(t.numbers) for t in notebook.trials if t.kind == "k"), default=1))
    test = classifier.assess(data.X_test, n_neighbors, evidence=True)
    right = test.belief_codes == data.y_test
    yield _cell(notebook, "network", "accuracy", float(right.mean()))
    for trial in notebook.trials:
        rules = trial.rules(notebook.layers, stretches)
        yield from _cells(notebook, trial.name, test, rules, data)
    if notebook.chooses:
        yield from _chosen(notebook, classifier, test, data)
    if notebook.curve:
        curve = [_measure(test, {"logits": Ball(radius)}, data).f_ik for radius in notebook.curve]
        yield _cell(notebook, "curve", "largest F_IK", max(curve))


def _watch(notebook: Notebook, data: Dataset, seed: int) -> Iterator[Cell]:
    """How accurate the network is on validation data on its way: the same seed, fewer epochs."""
    torch = import_torch()
    train, val = (data.X_train, data.y_train), (data.X_val, data.y_val)
    for epochs in notebook.watched:
        training = replace(notebook.training, epochs=epochs, least=0.0)
        network, _ = torch.train_network(
            notebook.architecture, training, train, val, len(data.classes), seed
        )
        accuracy = torch.measure_accuracy(network, *val)
        yield _cell(notebook, "network", f"after {epochs} epochs", accuracy)


def _chosen(
    notebook: Notebook, classifier: EpistemicClassifier, test: Assessment, data: Dataset
) -> Iterator[Cell]:
    """The radii of the largest coverage on validation data; beside them, our own rule at it."""
    val = classifier.assess(data.X_val, 1, evidence=True)
    known = Validation(val.evidence, val.belief_codes, data.y_val)
    ball = select(Goal(), known, Ball)
    yield _cell(notebook, "chosen", "F_IK on validation", ball.coverage)
    yield from _cells(notebook, "chosen", test, dict(ball.neighborhoods), data)
    relative = RelativeBall.match(known.contrasts, known.belief, data.y_val, ball.coverage)
    yield from _cells(notebook, "relative", test, dict(relative), data)


def _cells(
    notebook: Notebook,
    trial: str,
    test: Assessment,
    rules: dict[str, Rule],
    data: Dataset,
) -> Iterator[Cell]:
    report = _measure(test, rules, data)
    a_imk = report.accuracy(Assertion.IMK)
    values = (report.f_ik, report.a_ik, report.f_imk, a_imk, report.f_idk)
    for metric, value in zip(METRICS, values, strict=True):
        yield _cell(notebook, trial, metric, None if math.isnan(value) else value)


def _measure(test: Assessment, rules: dict[str, Rule], data: Dataset) -> Evaluation:
    return evaluate(test.under(rules), data.y_test)


def _cell(notebook: Notebook, trial: str, metric: str, value: float | None) -> Cell:
    return Cell(*key_of(notebook.name, trial, metric)[1:], value)


def _weights_of(network: Any, notebook: Notebook) -> dict[str, Floats]:
    """The dense layers' weights by the layer that reads them, of shape (n_inputs, n_outputs)."""
    if notebook.architecture.convolutions:
        return {}
    values = network.state_dict()
    n_hidden = len(notebook.architecture.hidden)
    names = {f"dense{i}": f"relu{i}" for i in range(1, n_hidden + 1)} | {"logits": "logits"}
    return {
        layer: values[f"{name}.weight"].numpy().T.astype(np.float64)
        for name, layer in names.items()
    }


def product_norms(weights: Mapping[str, Floats]) -> dict[str, float]:
    """The norms of the products, by layer, of weights of shape (n_inputs, n_outputs)."""
    norms: dict[str, float] = {}
    product: Any = None
    for layer, matrix in weights.items():
        product = matrix if product is None else product @ matrix
        norms[layer] = float(np.linalg.norm(product, 2))
    return norms


def norm_products(weights: Mapping[str, Floats]) -> dict[str, float]:
    """The products of the norms, by layer, of weights of shape (n_inputs, n_outputs)."""
    norms = accumulate(map(spectral_norm, weights.values()), mul)
    return dict(zip(weights, norms, strict=True))
