"""Assessing: from a bundle and a file to assertions."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from iknow.classifier import EpistemicClassifier
from iknow.core.assertion import Assertion, Reason
from iknow.core.assessment import Assessment
from iknow.core.evidence import distances_for_and_against
from iknow.errors import InputError
from iknow.jobs.source import Source, take_inputs, trained_names
from iknow.modelfile import load_model
from iknow.models.arrays import PrecomputedModel
from iknow.tables import Table


def assess_job(
    bundle: Path,
    data: Source,
    *,
    model: str | None,
    device: str | None = None,
    evidence: bool = False,
) -> tuple[Assessment, Table]:
    """Assess the samples of a file by a bundle and its model; `evidence`: it will be needed."""
    classifier = load_classifier(bundle, model, device)
    table = data.read()
    return assess_table(classifier, table, evidence=evidence), table


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


def load_classifier(bundle: Path, model: str | None, device: str | None) -> EpistemicClassifier:
    wrapped = None if model is None else load_model(model)
    return EpistemicClassifier.load(bundle, wrapped, device=device)


def assess_table(classifier: EpistemicClassifier, table: Table, **how: Any) -> Assessment:
    if table.features is not None and isinstance(classifier.model_, PrecomputedModel):
        raise InputError(
            "the file holds inputs, and a bundle does not hold the model: name it with --model"
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        inputs = take_inputs(table, trained_names(classifier), np.arange(len(table)))
        return classifier.assess(inputs, **how)
