"""`iknow compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from iknow.cli.model_files.names import MODEL_HELP
from iknow.cli.options import (
    DATA,
    BatchOption,
    ClassOption,
    ConfigOption,
    DropOption,
    FeaturesOption,
    IdOption,
    LabelOption,
    LabelsOption,
    LayerOption,
    MetricOption,
    PoolOption,
    ScoresOption,
    SeedOption,
    TextOption,
    by_layer,
    console_for,
    given,
    roles_of,
    scores_by_name,
)


def compare(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    training: Annotated[Path, typer.Argument(help="The samples that the model was trained on.")],
    validation: Annotated[Path, typer.Argument(help="Labeled samples that it was not.")],
    test: Annotated[Path, typer.Argument(help="Further labeled samples, as clean.")],
    training_labels: LabelsOption = None,
    validation_labels: LabelsOption = None,
    test_labels: LabelsOption = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Further labeled data, NAME=FILE; repeatable.", rich_help_panel=DATA
        ),
    ] = None,
    foreign: Annotated[
        list[str] | None,
        typer.Option(
            help="Data on which no answer is right, NAME=FILE; repeatable.", rich_help_panel=DATA
        ),
    ] = None,
    label: LabelOption = None,
    identifier: IdOption = None,
    drop: DropOption = None,
    features: FeaturesOption = None,
    text: TextOption = None,
    layer: LayerOption = None,
    metric: MetricOption = None,
    classes: ClassOption = None,
    pool: PoolOption = None,
    scores: ScoresOption = None,
    batch_size: BatchOption = None,
    coverage: Annotated[
        list[float], typer.Option(help="Share of clean data to assert; repeatable.")
    ] = [0.6, 0.75, 0.9],  # noqa: B006
    accuracy: Annotated[float, typer.Option(help="The accuracy to certify.")] = 0.99,
    confidence: Annotated[float, typer.Option(help="Of certificates and intervals.")] = 0.95,
    random_state: SeedOption = 0,
    json: Annotated[Path | None, typer.Option(help="Write all figures as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with the curves.")] = None,
    config: ConfigOption = None,
) -> None:
    """Compare iknow with other methods on your model and data, at equal coverage.

    For example, with data of another kind, on which no answer is right:

    iknow compare m.joblib train.csv val.csv test.csv --label y --foreign odd=odd.csv
    """
    from iknow.cli.console import show_comparison
    from iknow.cli.jobs.compare import compare_job, sources_by_name
    from iknow.cli.jobs.source import Source

    roles = roles_of(label, identifier, drop, features, text)
    with Console(stderr=True).status("Comparing ..."):
        comparison = compare_job(
            model,
            Source(training, roles, training_labels),
            Source(validation, roles, validation_labels),
            Source(test, roles, test_labels),
            sets=sources_by_name(set_ or (), "--set", roles),
            foreign=sources_by_name(
                foreign or (), "--foreign", roles_of(None, identifier, drop, features, text)
            ),
            layers=layer,
            coverages=coverage,
            accuracy=accuracy,
            confidence=confidence,
            random_state=random_state,
            parameters=given(
                metric=by_layer(metric, "--metric"),
                classes=classes or None,
                pool=by_layer(pool, "--pool"),
                scores=scores_by_name(scores),
                batch_size=batch_size,
            ),
            json_output=json,
            page=html,
        )
    show_comparison(comparison, [json, html], console_for(json, html))
