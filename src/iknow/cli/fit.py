"""`iknow fit`: from files to a bundle."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from iknow.classifier.estimator import EpistemicClassifier
from iknow.classifier.fitting import split_rows
from iknow.cli import options
from iknow.cli.data import (
    DataFile,
    check_output,
    console_for,
    inputs_of,
    paths_read,
    show_written,
    shown_table,
    trained_names,
)
from iknow.cli.model_files import check_model_name, load_model, save_model
from iknow.cli.options import argument, option
from iknow.core.arrays import Labels
from iknow.core.rule import Rule, is_tuned
from iknow.core.text import name as shown
from iknow.core.text import visible
from iknow.errors import InputError
from iknow.models import PrecomputedModel
from iknow.rules import RULES, Ball, RelativeBall
from iknow.tables import DataTable

GOAL = "What to promise"


@options.command
def fit(
    *,
    data: Path = argument(f"Training samples: {options.FILES}, or - for a pipe."),
    output: Path = options.NEW_BUNDLE,
    model: str | None = options.MODEL,
    train: bool = option("Train and write --model first.", options.MODELS),
    validation: Path | None = option("Labeled samples to tune on.", options.DATA),
    validation_labels: Path | None = options.LABELS,
    hold_out: float | None = option("Or tune on this share of DATA.", options.DATA),
    reference: Path | None = option(
        "More samples, without labels, that show what is ordinary.", options.DATA
    ),
    samples: options.SampleOptions,
    accuracy: float | None = option("Certify accuracy on IK, or fail.", GOAL),
    confidence: float = option("With this probability.", GOAL, default=0.95),
    coverage: float | None = option("Match this share of IK.", GOAL),
    false_alarm: float | None = option(
        "Bound the share of ordinary samples that are not IK; needs no labels.", GOAL
    ),
    reading: options.ModelOptions,
    rule: str | None = option(
        f"The kind of rule; {RelativeBall.command_name()} by default.",
        options.SEARCH,
        metavar="|".join(rule.command_name() for rule in RULES.values()),
    ),
    paper: bool = option("As published: --rule ball.", options.SEARCH),
    quorum: str | None = option(
        "Samples a class needs to count: 3, or 1,3 for the belief and any other class.",
        options.SEARCH,
        metavar="N|FOR,AGAINST",
    ),
    n_neighbors: int = option(
        "Neighbors, for the rules that use them.",
        options.SEARCH,
        "--n-neighbors",
        "--k",
        "-k",
        default=5,
        min=1,
    ),
    premium: float = option(
        "What a second opinion by training samples may cost on ordinary data, as a share of the "
        "risk of going by the model's confidence alone.",
        options.SEARCH,
        default=0.05,
        min=0.0,
    ),
    onnx: bool = option("Put the model into the bundle.", options.ABOUT),
    about: options.AboutOptions,
    random_state: int = options.SEED,
    force: bool = option("Let --train overwrite a model.", options.MODELS),
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
    kind = Ball if paper else RelativeBall if rule is None else rule_by_name(rule)
    training = samples.source(data)
    held = None if validation is None else DataFile(validation, training.roles, validation_labels)
    further = None
    if reference is not None:  # the same columns, without a label
        further = DataFile(reference, replace(training.roles, label=None, id=None))
    needed = _quorum(quorum)
    reading.check()
    _check_files(output, model, training, held, further, train=train, force=force)

    loaded = None if model is None or train else load_model(model)
    table, y = training.read_labeled(loaded)
    tuned: DataTable = table
    y_tuned: Labels | None = y
    if held is not None and kind.by_level and (coverage, false_alarm) != (None, None):
        tuned = held.read(loaded)  # levels need no labels for these goals
        y_tuned = tuned.labels
    elif held is not None:
        tuned, y_tuned = held.read_labeled(loaded)
    ordinary = None if further is None else further.read(loaded)
    if (table.features is None) != (tuned.features is None):
        raise InputError("both files must hold the model's inputs, or both its outputs")
    rows, tuned_rows = np.arange(len(table)), np.arange(len(tuned))
    tunes = is_tuned(kind) or (accuracy, coverage, false_alarm) != (None, None, None)
    if held is None and tunes:
        if hold_out is None and not train:
            raise InputError(
                "radii need data that the model was not trained on: pass it with --validation, "
                "or with --hold-out 0.25 hold out a part of samples that the model has not seen"
            )
        rows, tuned_rows = split_rows(y, hold_out or 0.25, random_state)
    if table.features is None:
        if model is not None or train:
            raise InputError("the file already holds a model's outputs: leave out --model, --train")
        loaded = PrecomputedModel()
    elif train:
        loaded = _train(table.features[rows], y[rows], random_state)
    elif loaded is None:
        raise InputError("name the model with --model; --train trains one and writes it there")
    given = {"classes": table.classes, "k": n_neighbors, **options.given(quorum=needed)}
    classifier = reading.make(loaded, y, rule=kind, random_state=random_state, **given)
    names = trained_names(loaded) or table.feature_names
    classifier.fit(inputs_of(loaded, table, names, rows), y[rows], rows=rows)
    if tunes:
        classifier.tune(
            inputs_of(loaded, tuned, names, tuned_rows),
            None if y_tuned is None else y_tuned[tuned_rows],
            reference=None if ordinary is None else inputs_of(loaded, ordinary, names),
            accuracy=accuracy,
            coverage=coverage,
            false_alarm=false_alarm,
            confidence=confidence,
            premium=premium,
        )
    if names is not None:
        classifier.feature_names_in_ = np.asarray(names, dtype=object)
    if train and model is not None:  # only after everything else has worked
        save_model(loaded, model)
    classifier.save(output, onnx=onnx, **about.given)
    show_fit(classifier, output, console_for(output))


def rule_by_name(name: str) -> type[Rule]:
    """The rule of a name on the command line."""
    rules = {rule.command_name(): rule for rule in RULES.values()}
    if name not in rules:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(rules)}", param_hint="--rule")
    return rules[name]


def _quorum(text: str | None) -> int | tuple[int, int] | None:
    """The quorum of a text such as "3" or "1,3"."""
    if text is None:
        return None
    numbers = text.split(",")
    if len(numbers) > 2 or not all(re.fullmatch(r"\s*[0-9]{1,6}\s*", each) for each in numbers):
        raise typer.BadParameter(
            f"{text!r} is not a whole number, or two such as 1,3", param_hint="--quorum"
        )
    first, last = int(numbers[0]), int(numbers[-1])
    return first if len(numbers) == 1 else (first, last)


def _check_files(
    output: Path, model: str | None, *sources: DataFile | None, train: bool, force: bool
) -> None:
    """Refuse to write over an input, or a trained model over an existing file, unless forced."""
    reads = paths_read(*sources)
    check_output(output, [*reads, *paths_read(model=model)])
    if not train:
        return
    if model is None:
        raise InputError("name the model with --model; --train trains one and writes it there")
    check_model_name(model)
    check_output(Path(model), reads)
    if os.path.lexists(model) and not force:
        raise InputError(
            f"the model {Path(model)} already exists, and --train would overwrite it: name another "
            "file, drop --train to use it, or add --force"
        )


def _train(features: Any, y: Any, random_state: int) -> Any:
    network = MLPClassifier((64, 32), max_iter=500, early_stopping=False, random_state=random_state)
    return make_pipeline(StandardScaler(), network).fit(features, y)


def show_fit(classifier: EpistemicClassifier, output: Path, console: Console) -> None:
    """Print what was learned and where it was written."""
    table = shown_table("layer", "features", "rule", right=("features",))
    for layer, index in classifier.indexes_.items():
        rule = shown(repr(classifier.neighborhoods_[layer]))
        table.add_row(Text(shown(layer)), str(index.n_features), Text(rule))
    n_rows = next(iter(classifier.indexes_.values())).n_rows
    console.print(f"{n_rows:,} training samples of {len(classifier.classes_)} classes")
    console.print(table)
    if hasattr(classifier, "selection_"):
        selection = classifier.selection_
        for sentence in selection.sentences():
            console.print(Text(visible(sentence)))  # it may quote names of layers and classes
        if selection.certificate is None and selection.false_alarm is None and not selection.note:
            console.print("Nothing is guaranteed: ask for that with --accuracy or --false-alarm")
    show_written(output, console)
