"""`iknow compare`: from a model and files to a table of methods."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from sklearn.frozen import FrozenEstimator

from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli import options
from iknow.cli.commands.fit import named_like
from iknow.cli.jobs.assess import inputs_of
from iknow.cli.jobs.forms import takes_text
from iknow.cli.jobs.outputs import check_output, check_page, paths_read
from iknow.cli.jobs.source import Source, trained_names
from iknow.cli.model_files import MODEL_HELP, load_model
from iknow.errors import InputError
from iknow.evaluation.compare import compare as compare_methods
from iknow.evaluation.comparison import Comparison
from iknow.models.adapt import as_model, is_estimator
from iknow.report import make_comparison_page
from iknow.storage.files import write_bytes
from iknow.tables import Roles, Table


def compare(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    training: Annotated[Path, typer.Argument(help="The samples that the model was trained on.")],
    validation: Annotated[Path, typer.Argument(help="Labeled samples that it was not.")],
    test: Annotated[Path, typer.Argument(help="Further labeled samples, as clean.")],
    training_labels: options.LabelsOption = None,
    validation_labels: options.LabelsOption = None,
    test_labels: options.LabelsOption = None,
    set_: Annotated[
        list[str] | None,
        options.option("Further labeled data, NAME=FILE; repeatable.", options.DATA, "--set"),
    ] = None,
    foreign: Annotated[
        list[str] | None,
        options.option("Data on which no answer is right, NAME=FILE; repeatable.", options.DATA),
    ] = None,
    label: options.LabelOption = None,
    identifier: options.IdOption = None,
    drop: options.DropOption = None,
    features: options.FeaturesOption = None,
    text: options.TextOption = None,
    layer: options.LayerOption = None,
    metric: options.MetricOption = None,
    classes: options.ClassOption = None,
    pool: options.PoolOption = None,
    scores: options.ScoresOption = None,
    batch_size: options.BatchOption = None,
    coverage: Annotated[
        list[float], typer.Option(help="Share of clean data to assert; repeatable.")
    ] = [0.6, 0.75, 0.9],  # noqa: B006
    accuracy: Annotated[float, typer.Option(help="The accuracy to certify.")] = 0.99,
    confidence: Annotated[float, typer.Option(help="Of certificates and intervals.")] = 0.95,
    random_state: options.SeedOption = 0,
    json: Annotated[Path | None, typer.Option(help="Write all figures as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with the curves.")] = None,
    config: options.ConfigOption = None,
) -> None:
    """Compare iknow with other methods on your model and data, at equal coverage.

    For example, with data of another kind, on which no answer is right:

    iknow compare m.joblib train.csv val.csv test.csv --label y --foreign odd=odd.csv
    """
    from iknow.cli.console import show_comparison

    roles = options.roles_of(label, identifier, drop, features, text)
    with Console(stderr=True).status("Comparing ..."):
        comparison = compare_job(
            model,
            Source(training, roles, training_labels),
            Source(validation, roles, validation_labels),
            Source(test, roles, test_labels),
            sets=sources_by_name(set_ or (), "--set", roles),
            foreign=sources_by_name(
                foreign or (), "--foreign", options.roles_of(None, identifier, drop, features, text)
            ),
            layers=layer,
            coverages=coverage,
            accuracy=accuracy,
            confidence=confidence,
            random_state=random_state,
            parameters=options.given(
                metric=options.by_layer(metric, "--metric"),
                classes=classes or None,
                batch_size=batch_size,
            ),
            reading=options.given(
                pool=options.by_layer(pool, "--pool"), scores=options.scores_by_name(scores)
            ),
            json_output=json,
            page=html,
        )
    show_comparison(comparison, [json, html], options.console_for(json, html))


def compare_job(
    model: str,
    training: Source,
    validation: Source,
    test: Source,
    *,
    sets: Mapping[str, Source],
    foreign: Mapping[str, Source],
    layers: Sequence[str] | None,
    coverages: Sequence[float],
    accuracy: float,
    confidence: float,
    random_state: int,
    parameters: Mapping[str, Any] | None = None,
    reading: Mapping[str, Any] | None = None,
    json_output: Path | None = None,
    page: Path | None = None,
) -> Comparison:
    """Fit and tune a classifier around a model, compare it with its peers, write the result.

    sets: labeled. foreign: without labels, as no answer can be right. parameters: others of the
    classifier. reading: how to read the model, as for `as_model`.
    """
    every = [training, validation, test, *sets.values(), *foreign.values()]
    reads = paths_read(*every, model=model)
    if json_output is not None:
        check_output(json_output, reads)
    if page is not None:
        check_page(page, reads if json_output is None else [*reads, json_output])
    loaded = load_model(model)
    mixed = takes_text(loaded)
    first, first_labels = training.read_labelled(mixed=mixed)
    names = trained_names(loaded) or first.feature_names

    def labeled(source: Source) -> tuple[Any, Any]:
        table, y = source.read_labelled(mixed=mixed)
        return _inputs(table, source, loaded, names), y

    with warnings.catch_warnings():
        # `take_inputs` compares the column names and restores their order.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        fitted = _inputs(first, training, loaded, names), first_labels
        held = labeled(validation)
        wrapped = FrozenEstimator(loaded) if is_estimator(loaded) else loaded
        more = {"random_state": random_state, **named_like(first_labels, parameters)}
        read = as_model(wrapped, **reading) if reading else wrapped
        classifier = EpistemicClassifier(read, layers or None, **more)
        classifier.fit(*fitted).tune(held[0], coverage=coverages[len(coverages) // 2])
        others: dict[str, Any] = {name: labeled(source) for name, source in sets.items()}
        for name, source in foreign.items():
            table = source.read(mixed=mixed)
            others[name] = _inputs(table, source, loaded, names), None
        comparison = compare_methods(
            classifier,
            fitted,
            held,
            labeled(test),
            sets=others,
            coverages=coverages,
            accuracy=accuracy,
            confidence=confidence,
            random_state=random_state,
        )
    if json_output is not None:
        write_bytes(json_output, json.dumps(comparison.to_dict(), indent=1).encode())
    if page is not None:
        title = f"{Path(model).stem} and its peers on {Path(test.name).name}"
        write_bytes(page, make_comparison_page(comparison, title=title).encode())
    return comparison


def sources_by_name(given: Iterable[str], option: str, roles: Roles) -> dict[str, Source]:
    """The files behind options of the form NAME=FILE, with the same columns."""
    found: dict[str, Source] = {}
    for each in given:
        name, equals, path = each.partition("=")
        if not (name and equals and path):
            raise InputError(f"{option} must be NAME=FILE; got {each!r}")
        if name in found:
            raise InputError(f"{option} names {name!r} twice: give each set its own name")
        found[name] = Source(Path(path), roles)
    return found


def _inputs(table: Table, source: Source, model: Any, names: tuple[str, ...] | None) -> Any:
    if table.features is None:
        raise InputError(
            f"{source.name} holds a model's outputs, but a comparison perturbs inputs: give those"
        )
    return inputs_of(model, table, names)
