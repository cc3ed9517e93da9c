"""The jobs of the command line: from files to a bundle, and from a bundle to assertions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from iknow.classifier import EpistemicClassifier
from iknow.core.arrays import Ints
from iknow.core.assertion import Assertion, Reason
from iknow.core.assessment import Assessment
from iknow.core.evidence import distances_for_and_against
from iknow.core.neighborhood import Neighborhood, has_radius
from iknow.errors import InputError
from iknow.modelfile import load_model, save_model
from iknow.models.adapt import is_estimator
from iknow.models.arrays import PrecomputedModel
from iknow.tables import Table, read_table
from iknow.training import split_rows


@dataclass(frozen=True)
class Source:
    """A data file and where its labels are."""

    path: Path
    label: str | None = None
    labels_path: Path | None = None

    def read(self) -> Table:
        return read_table(self.path, label=self.label, labels_path=self.labels_path)

    def read_labelled(self) -> Table:
        table = self.read()
        if table.labels is None:
            raise InputError(
                f"{self.path} holds no labels: name their column with --label, or their file with "
                "--labels"
            )
        return table


def fit_job(
    training: Source,
    output: Path,
    *,
    model: str | None,
    train: bool,
    validation: Source | None,
    hold_out: float | None,
    layers: Sequence[str] | None,
    rule: type[Neighborhood],
    k: int,
    accuracy: float | None,
    confidence: float,
    coverage: float | None,
    seed: int,
) -> EpistemicClassifier:
    """Collect evidence, choose radii, write a bundle; with `train`, make the model first."""
    table = training.read_labelled()
    tuned = table if validation is None else validation.read_labelled()
    rows = np.arange(len(table))
    tuned_rows = np.arange(len(tuned))
    tunes = has_radius(rule) or coverage is not None
    if validation is None and tunes:
        if hold_out is None and not train:
            raise InputError(
                "radii are chosen on data the model was not trained on: give it with --validation, "
                "or hold a part of these samples out with --hold-out 0.25 if the model has not "
                "seen them"
            )
        rows, tuned_rows = split_rows(_labels(table), hold_out or 0.25, seed)
    wrapped = _find_model(table, rows, model, train=train, seed=seed)
    classifier = EpistemicClassifier(wrapped, layers or None, rule, k=k, classes=table.classes)
    names = _expected_names(wrapped) or table.feature_names
    with warnings.catch_warnings():
        # The columns' names are compared and their order restored here, in `_inputs`.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        classifier.fit(_inputs(table, names, rows), _labels(table)[rows], rows=rows)
        if tunes:
            classifier.tune(
                _inputs(tuned, names, tuned_rows),
                _labels(tuned)[tuned_rows],
                accuracy=accuracy,
                confidence=confidence,
                coverage=coverage,
            )
    if names is not None:
        classifier.feature_names_in_ = np.asarray(names, dtype=object)
    classifier.save(output)
    return classifier


def assess_job(
    bundle: Path,
    data: Source,
    *,
    model: str | None,
    device: str | None = None,
    evidence: bool = False,
) -> tuple[Assessment, Table]:
    """Assess the samples of a file by a bundle and its model; `evidence`: it will be needed."""
    wrapped = None if model is None else load_model(model)
    classifier = EpistemicClassifier.load(bundle, wrapped, device=device)
    table = data.read()
    if table.features is not None and wrapped is None:
        raise InputError(
            f"{data.path} holds inputs, and a bundle does not hold the model: name it with --model"
        )
    names = getattr(classifier, "feature_names_in_", None)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        inputs = _inputs(table, None if names is None else tuple(names), np.arange(len(table)))
        return classifier.assess(inputs, evidence=evidence), table


def assertion_columns(assessment: Assessment) -> dict[str, Any]:
    """An assessment as columns for a file, one row per sample; distances for and against too."""
    labels = np.array([str(label) for label in assessment.classes.tolist()])
    columns: dict[str, Any] = {
        "belief": assessment.belief,
        "assertion": np.array([Assertion(a).name for a in assessment.assertion]),
        "reason": np.array([Reason(r).name for r in assessment.reason]),
        "justified": np.array(["|".join(labels[row]) for row in assessment.justification]),
    }
    rows = np.arange(len(assessment))
    for layer, evidence in assessment.evidence.items():
        own, other = distances_for_and_against(evidence, assessment.belief_codes)
        columns[f"{layer}:for"] = own
        columns[f"{layer}:for_row"] = evidence.exemplars[rows, assessment.belief_codes]
        columns[f"{layer}:against"] = other
        reach = assessment.neighborhoods[layer].reach(evidence)
        columns[f"{layer}:reach"] = (
            reach[rows, assessment.belief_codes] if reach.ndim == 2 else reach
        )
    return columns


def _find_model(table: Table, rows: Ints, name: str | None, *, train: bool, seed: int) -> Any:
    """The model to wrap: precomputed outputs, a loaded one, or one trained here and saved."""
    if table.features is None:
        if name is not None or train:
            raise InputError("the file holds a model's outputs already: leave out --model, --train")
        return PrecomputedModel()
    if name is None:
        raise InputError(
            "name the model to wrap with --model; with --train one is made and written there"
        )
    if not train:
        loaded = load_model(name)
        return FrozenEstimator(loaded) if is_estimator(loaded) else loaded
    network = MLPClassifier((64, 32), max_iter=500, early_stopping=False, random_state=seed)
    estimator = make_pipeline(StandardScaler(), network)
    estimator.fit(_inputs(table, None, rows), _labels(table)[rows])
    save_model(estimator, name)
    return FrozenEstimator(estimator)


def _labels(table: Table) -> Any:
    return table.labels


def _expected_names(model: Any) -> tuple[str, ...] | None:
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else tuple(names)


def _inputs(table: Table, names: tuple[str, ...] | None, rows: Ints) -> Any:
    """Some rows of a table as a model's inputs, columns in the order the model knows."""
    if table.features is None:
        activations = {layer: values[rows] for layer, values in table.activations.items()}
        return table.scores[rows], activations  # type: ignore[index]
    features = table.features[rows]
    if names is None or table.feature_names is None or table.feature_names == names:
        return features
    missing = [name for name in names if name not in table.feature_names]
    extra = [name for name in table.feature_names if name not in names]
    if missing or extra:
        raise InputError(
            f"the columns must be those of training; missing: {', '.join(missing) or 'none'}; "
            f"not known: {', '.join(extra) or 'none'} (name the label column with --label)"
        )
    return features[:, [table.feature_names.index(name) for name in names]]
