"""`iknow compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from iknow.cli import options
from iknow.cli.model_files.names import MODEL_HELP


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
        typer.Option(
            "--set",
            help="Further labeled data, NAME=FILE; repeatable.",
            rich_help_panel=options.DATA,
        ),
    ] = None,
    foreign: Annotated[
        list[str] | None,
        typer.Option(
            help="Data on which no answer is right, NAME=FILE; repeatable.",
            rich_help_panel=options.DATA,
        ),
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
    from iknow.cli.jobs.compare import compare_job, sources_by_name
    from iknow.cli.jobs.source import Source

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
                pool=options.by_layer(pool, "--pool"),
                scores=options.scores_by_name(scores),
                batch_size=batch_size,
            ),
            json_output=json,
            page=html,
        )
    show_comparison(comparison, [json, html], options.console_for(json, html))
