"""`iknow fit`: from files to a bundle."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from iknow.classifier.estimator import EpistemicClassifier
from iknow.classifier.fitting import split_rows
from iknow.cli import options
from iknow.cli.jobs.assess import inputs_of
from iknow.cli.jobs.forms import takes_text
from iknow.cli.jobs.outputs import check_model, check_output, paths_read
from iknow.cli.jobs.source import Source, check_width, take_inputs, trained_names
from iknow.cli.model_files import check_model_name, load_model, save_model
from iknow.core.arrays import Ints, Labels
from iknow.core.rule import Rule, is_tuned
from iknow.errors import InputError
from iknow.models import PrecomputedModel
from iknow.models.adapt import as_model, is_estimator
from iknow.rules import Ball, RelativeBall
from iknow.tables import Table
from iknow.tables.table import as_integers

GOAL = "What to promise"
WITHOUT_LABELS = ("coverage", "false_alarm")
GOALS = ("accuracy", *WITHOUT_LABELS)


def fit(
    data: Annotated[
        Path, typer.Argument(help=f"Training samples: {options.FILES}, or - for a pipe.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The bundle to write.")],
    model: options.ModelOption = None,
    train: Annotated[
        bool, options.option("Train and write --model first.", options.MODELS, "--train")
    ] = False,
    validation: Annotated[
        Path | None, options.option("Labeled samples to tune on.", options.DATA)
    ] = None,
    validation_labels: options.LabelsOption = None,
    hold_out: Annotated[
        float | None, options.option("Or tune on this share of DATA.", options.DATA)
    ] = None,
    reference: Annotated[
        Path | None,
        options.option("More samples, without labels, that show what is ordinary.", options.DATA),
    ] = None,
    labels: options.LabelsOption = None,
    input_format: options.InputFormatOption = None,
    label: options.LabelOption = None,
    identifier: options.IdOption = None,
    drop: options.DropOption = None,
    features: options.FeaturesOption = None,
    text: options.TextOption = None,
    accuracy: Annotated[
        float | None, options.option("Certify accuracy on IK, or fail.", GOAL)
    ] = None,
    confidence: Annotated[float, options.option("With this probability.", GOAL)] = 0.95,
    coverage: Annotated[float | None, options.option("Match this share of IK.", GOAL)] = None,
    false_alarm: Annotated[
        float | None,
        options.option(
            "Bound the share of ordinary samples that are not IK; needs no labels.", GOAL
        ),
    ] = None,
    layer: options.LayerOption = None,
    metric: options.MetricOption = None,
    rule: Annotated[
        str | None, options.option(options.KIND, options.SEARCH, metavar=options.RULE_NAMES)
    ] = None,
    paper: Annotated[
        bool, options.option("As published: --rule ball.", options.SEARCH, "--paper")
    ] = False,
    quorum: Annotated[
        str | None,
        options.option(
            "Samples a class needs to count: 3, or 1,3 for the belief and any other class.",
            options.SEARCH,
            metavar="N|FOR,AGAINST",
        ),
    ] = None,
    n_neighbors: Annotated[
        int,
        options.option(
            "Neighbors, for the rules that use them.",
            options.SEARCH,
            "--n-neighbors",
            "--k",
            "-k",
            min=1,
        ),
    ] = 5,
    doubt: Annotated[
        bool | None,
        options.option(
            "Let the model's own low confidence make a sample IMK, or never. By default, "
            "where --accuracy certifies more with it.",
            options.SEARCH,
            "--doubt/--no-doubt",
        ),
    ] = None,
    classes: options.ClassOption = None,
    pool: options.PoolOption = None,
    scores: options.ScoresOption = None,
    batch_size: options.BatchOption = None,
    onnx: Annotated[
        bool, options.option("Put the model into the bundle.", options.ABOUT, "--onnx")
    ] = False,
    name: options.NameOption = None,
    version: options.VersionOption = None,
    note: options.NoteOption = None,
    random_state: options.SeedOption = 0,
    force: Annotated[
        bool, options.option("Let --train overwrite a model.", options.MODELS, "--force")
    ] = False,
    config: options.ConfigOption = None,
) -> None:
    """Collect the evidence for a model, choose how near is near, and write both as a bundle.

    Ask for --accuracy, --coverage or --false-alarm. For example, for an IK
    that is right 99 times in 100:

    iknow fit train.npz --model m.pt --validation v.npz --accuracy 0.99 -o b.iknow

    Without a goal, IK shall be wrong ten times less often than the model. If
    there are too few samples to certify that, three quarters of them are IK,
    and nothing is guaranteed.
    """
    if paper and rule is not None:
        raise typer.BadParameter("--paper means --rule ball: leave one out", param_hint="--rule")
    from iknow.cli.console import show_fit

    roles = options.roles_of(label, identifier, drop, features, text)
    training = Source(data, roles, labels, input_format)
    classifier = fit_job(
        training,
        output,
        model=model,
        train=train,
        validation=None if validation is None else Source(validation, roles, validation_labels),
        hold_out=hold_out,
        layers=layer,
        rule=Ball if paper else RelativeBall if rule is None else options.rule_by_name(rule),
        goal={
            "accuracy": accuracy,
            "confidence": confidence,
            "coverage": coverage,
            "false_alarm": false_alarm,
            "doubt": doubt,
        },
        reference=None if reference is None else training.without_labels(reference),
        random_state=random_state,
        parameters=options.given(
            quorum=options.quorum_by_name(quorum),
            k=n_neighbors,
            metric=options.by_layer(metric, "--metric"),
            classes=classes or None,
            batch_size=batch_size,
        ),
        reading=options.given(
            pool=options.by_layer(pool, "--pool"), scores=options.scores_by_name(scores)
        ),
        about={**options.given(name=name, note=note, version=version), "onnx": onnx},
        force=force,
    )
    show_fit(classifier, output, options.console_for(output))


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
    reading: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
    force: bool = False,
) -> EpistemicClassifier:
    """Collect evidence, choose radii, write a bundle; with `train`, make the model first.

    goal: what to tune for, as the arguments of `EpistemicClassifier.tune`. reference: samples that
    show what is ordinary. parameters: others of the classifier, such as its quorum. reading: how
    to read the model, as for `as_model`. about: a name, a version and a note, if there are any, and
    whether the bundle shall hold the model. force: a newly trained model may replace another.
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
    read = as_model(wrapped, **reading) if reading else wrapped
    classifier = EpistemicClassifier(read, layers or None, rule, **given)
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
