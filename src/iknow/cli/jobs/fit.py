"""Fitting: from files to a bundle."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from iknow.classifier.epistemic import EpistemicClassifier
from iknow.classifier.training import split_rows
from iknow.cli.jobs.assess import inputs_of
from iknow.cli.jobs.forms import takes_text
from iknow.cli.jobs.outputs import check_model, check_output, paths_read
from iknow.cli.jobs.source import Source, check_width, take_inputs, trained_names
from iknow.cli.model_files import check_model_name, load_model, save_model
from iknow.core.arrays import Ints, Labels
from iknow.core.rule import Rule, is_tuned
from iknow.errors import InputError
from iknow.models.adapt import is_estimator
from iknow.models.precomputed import PrecomputedModel
from iknow.tables import Table
from iknow.tables.table import as_integers

WITHOUT_LABELS = ("coverage", "false_alarm")
GOALS = ("accuracy", *WITHOUT_LABELS)


def fit_job(
    training: Source,
    output: Path,
    *,
    model: str | None,
    train: bool,
    validation: Source | None,
    hold_out: float | None,
    layers: Sequence[str] | None,
    rule: type[Rule],
    goal: Mapping[str, Any],
    reference: Source | None,
    random_state: int,
    parameters: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
    force: bool = False,
) -> EpistemicClassifier:
    """Collect evidence, choose radii, write a bundle; with `train`, make the model first.

    goal: what to tune for, as the arguments of `EpistemicClassifier.tune`. reference: samples that
    show what is ordinary. parameters: others of the classifier, such as its quorum. about: a name,
    a version and a note, if there are any, and whether the bundle shall hold the model. force: a
    newly trained model may replace an existing one.
    """
    reads = paths_read(training, validation, reference)
    check_output(output, [*reads, *paths_read(model=model)])
    if train and model is None:
        raise InputError("name the model with --model; --train trains one and writes it there")
    if train and model is not None:
        check_model_name(model)
        check_model(model, reads, force=force)
    loaded = None if model is None or train else load_model(model)
    mixed = loaded is not None and takes_text(loaded)
    table, y = training.read_labelled(mixed=mixed)
    tuned, y_tuned = (
        (table, y) if validation is None else _read_validation(validation, rule, goal, mixed=mixed)
    )
    ordinary = None if reference is None else reference.read(mixed=mixed)
    if (table.features is None) != (tuned.features is None):
        raise InputError("both files must hold the model's inputs, or both its outputs")
    rows, tuned_rows = np.arange(len(table)), np.arange(len(tuned))
    tunes = is_tuned(rule) or any(goal[name] is not None for name in GOALS)
    if validation is None and tunes:
        if hold_out is None and not train:
            raise InputError(
                "radii need data that the model was not trained on: pass it with --validation, "
                "or with --hold-out 0.25 hold out a part of samples that the model has not seen"
            )
        rows, tuned_rows = split_rows(y, hold_out or 0.25, random_state)
    wrapped = _find_model(table, y, rows, loaded, train=train, random_state=random_state)
    given = {"classes": table.classes, **named_like(y, parameters), "random_state": random_state}
    classifier = EpistemicClassifier(wrapped, layers or None, rule, **given)
    names = trained_names(wrapped) or table.feature_names
    with warnings.catch_warnings():
        # `take_inputs` compares the column names and restores their order.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        classifier.fit(inputs_of(wrapped, table, names, rows), y[rows], rows=rows)
        if tunes:
            inputs = inputs_of(wrapped, tuned, names, tuned_rows)
            labels = None if y_tuned is None else y_tuned[tuned_rows]
            shown = None if ordinary is None else inputs_of(wrapped, ordinary, names)
            classifier.tune(inputs, labels, reference=shown, **goal)
    if names is not None:
        classifier.feature_names_in_ = np.asarray(names, dtype=object)
    if train and model is not None:  # only after everything else has worked
        save_model(wrapped.estimator, model)
    classifier.save(output, **(about or {}))
    return classifier


def named_like(y: Labels, parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parameters, with the names of classes as ints if the labels are."""
    found = dict(parameters or {})
    if "classes" in found and y.dtype.kind != "U":
        found["classes"] = as_integers(np.array(found["classes"], dtype=np.str_))
    return found


def _read_validation(
    validation: Source, rule: type[Rule], goal: Mapping[str, Any], *, mixed: bool
) -> tuple[Table, Labels | None]:
    """The samples to tune on; levels need no labels for a coverage or a rate of false alarms."""
    if rule.by_level and any(goal[name] is not None for name in WITHOUT_LABELS):
        table = validation.read(mixed=mixed)
        return table, table.labels
    return validation.read_labelled(mixed=mixed)


def _find_model(
    table: Table, y: Labels, rows: Ints, loaded: Any, *, train: bool, random_state: int
) -> Any:
    """The model to wrap: precomputed outputs, the loaded one, or one trained here."""
    if table.features is None:
        if loaded is not None or train:
            raise InputError("the file already holds a model's outputs: leave out --model, --train")
        return PrecomputedModel()
    if loaded is None and not train:
        raise InputError("name the model with --model; --train trains one and writes it there")
    if not train:
        check_width(table, loaded)
        # Frozen, so that an unfitted one is refused and not trained.
        return FrozenEstimator(loaded) if is_estimator(loaded) else loaded
    network = MLPClassifier((64, 32), max_iter=500, early_stopping=False, random_state=random_state)
    estimator = make_pipeline(StandardScaler(), network)
    return FrozenEstimator(estimator.fit(take_inputs(table, None, rows), y[rows]))
