"""Assessing: from a bundle and a file to assertions."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from iknow.classifier.epistemic import EpistemicClassifier
from iknow.cli.jobs.outputs import check_output, paths_read
from iknow.cli.jobs.source import Source, check_width, take_inputs, trained_names
from iknow.cli.model_file import load_model
from iknow.cli.tables import Table, check_ending, write_table
from iknow.core.arrays import Labels
from iknow.core.evidence import NO_EXEMPLAR, distances_for_and_against
from iknow.errors import InputError
from iknow.explain.assessment import Assessment
from iknow.models.precomputed import PrecomputedModel


def assess_job(
    bundle: Path,
    data: Source,
    output: Path | None = None,
    *,
    model: str | None,
    device: str | None = None,
    check_model: bool = True,
) -> tuple[Assessment, Labels | None]:
    """Assess the samples of a file with a bundle and its model; write a row each to `output`."""
    if output is not None:
        check_ending(output)
        check_output(output, [bundle, *paths_read(data, model=model)])
    classifier = load_classifier(bundle, model, device, check_model=check_model)
    table = data.read()
    assessment = assess_table(classifier, table, evidence=output is not None)
    if output is not None:
        write_table(output, assertion_columns(assessment))
    return assessment, table.labels


def assertion_columns(assessment: Assessment) -> dict[str, Any]:
    """An assessment as columns for a file, one row per sample, with distances for and against.

    With a quorum these are the distances to the samples that complete it.
    """
    labels = np.array([str(label) for label in assessment.classes.tolist()])
    rows = np.arange(len(assessment))
    answered = assessment.belief_codes >= 0
    codes = np.where(answered, assessment.belief_codes, 0)
    belief = assessment.classes[codes]
    columns: dict[str, Any] = {
        # As text if some are missing, which are empty.
        "belief": belief if answered.all() else np.where(answered, belief.astype(np.str_), ""),
        "assertion": np.array([assertion.name for assertion in assessment.assertion]),
        "reason": np.array([reason.name for reason in assessment.reason]),
        **_level_columns(assessment),
        "justified": np.array(["|".join(labels[row]) for row in assessment.justification]),
    }
    for layer, evidence in assessment.weighed.items():
        own, other = distances_for_and_against(evidence, codes)
        nearest = evidence.nearest_distance()  # without a belief, every class is another class
        columns[f"{layer}:for"] = np.where(answered, own, np.inf)
        exemplars = evidence.exemplars[rows, codes]
        columns[f"{layer}:for_row"] = np.where(answered, exemplars, NO_EXEMPLAR)
        columns[f"{layer}:against"] = np.where(answered, other, nearest)
        reach = assessment.neighborhoods[layer].reach(evidence)
        columns[f"{layer}:reach"] = reach[rows, codes] if reach.ndim == 2 else reach
    return columns


def _level_columns(assessment: Assessment) -> dict[str, Any]:
    """The level of each prediction and what holds it down, if there are levels."""
    if assessment.levels is None:
        return {}
    return {"level": assessment.level, "weakest": assessment.weakest.astype(np.str_)}


def load_classifier(
    bundle: Path, model: str | None, device: str | None, *, check_model: bool
) -> EpistemicClassifier:
    wrapped = None if model is None else load_model(model)
    return EpistemicClassifier.load(bundle, wrapped, device=device, check_model=check_model)


def assess_table(classifier: EpistemicClassifier, table: Table, **how: Any) -> Assessment:
    precomputed = isinstance(classifier.model_, PrecomputedModel)
    if table.features is not None and precomputed:
        raise InputError("the file holds inputs, but the bundle no model: name it with --model")
    if table.features is None and not precomputed:
        raise InputError("the file already holds a model's outputs: leave out --model")
    if not hasattr(classifier, "neighborhoods_"):
        raise InputError("the bundle has no neighborhoods: tune before saving, or run `iknow fit`")
    check_width(table, classifier.model)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        inputs = take_inputs(table, trained_names(classifier), np.arange(len(table)))
        return classifier.assess(inputs, **how)
