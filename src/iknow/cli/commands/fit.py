"""`iknow fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from iknow.cli import options
from iknow.rules import Ball, RelativeBall

GOAL = "What to promise"


def fit(
    data: Annotated[
        Path, typer.Argument(help=f"Training samples: {options.FILES}, or - for a pipe.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The bundle to write.")],
    model: options.ModelOption = None,
    train: Annotated[
        bool,
        typer.Option(
            "--train", help="Train and write --model first.", rich_help_panel=options.MODELS
        ),
    ] = False,
    validation: Annotated[
        Path | None, typer.Option(help="Labeled samples to tune on.", rich_help_panel=options.DATA)
    ] = None,
    validation_labels: options.LabelsOption = None,
    hold_out: Annotated[
        float | None,
        typer.Option(help="Or tune on this share of DATA.", rich_help_panel=options.DATA),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            help="More samples, without labels, that show what is ordinary.",
            rich_help_panel=options.DATA,
        ),
    ] = None,
    labels: options.LabelsOption = None,
    input_format: options.InputFormatOption = None,
    label: options.LabelOption = None,
    identifier: options.IdOption = None,
    drop: options.DropOption = None,
    features: options.FeaturesOption = None,
    text: options.TextOption = None,
    accuracy: Annotated[
        float | None,
        typer.Option(help="Certify accuracy on IK, or fail.", rich_help_panel=GOAL),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="With this probability.", rich_help_panel=GOAL)
    ] = 0.95,
    coverage: Annotated[
        float | None, typer.Option(help="Match this share of IK.", rich_help_panel=GOAL)
    ] = None,
    false_alarm: Annotated[
        float | None,
        typer.Option(
            help="Bound the share of ordinary samples that are not IK; needs no labels.",
            rich_help_panel=GOAL,
        ),
    ] = None,
    layer: options.LayerOption = None,
    metric: options.MetricOption = None,
    rule: Annotated[
        str | None,
        typer.Option(help=options.KIND, metavar=options.RULE_NAMES, rich_help_panel=options.SEARCH),
    ] = None,
    paper: Annotated[
        bool,
        typer.Option("--paper", help="As published: --rule ball.", rich_help_panel=options.SEARCH),
    ] = False,
    quorum: Annotated[
        str | None,
        typer.Option(
            help="Samples a class needs to count: 3, or 1,3 for the belief and any other class.",
            metavar="N|FOR,AGAINST",
            rich_help_panel=options.SEARCH,
        ),
    ] = None,
    n_neighbors: Annotated[
        int,
        typer.Option(
            "--n-neighbors",
            "--k",
            "-k",
            min=1,
            help="Neighbors, for the rules that use them.",
            rich_help_panel=options.SEARCH,
        ),
    ] = 5,
    doubt: Annotated[
        bool | None,
        typer.Option(
            "--doubt/--no-doubt",
            help="Let the model's own low confidence make a sample IMK, or never. By default, "
            "where --accuracy certifies more with it.",
            rich_help_panel=options.SEARCH,
        ),
    ] = None,
    classes: options.ClassOption = None,
    pool: options.PoolOption = None,
    scores: options.ScoresOption = None,
    batch_size: options.BatchOption = None,
    onnx: Annotated[
        bool,
        typer.Option(
            "--onnx", help="Put the model into the bundle.", rich_help_panel=options.ABOUT
        ),
    ] = False,
    name: options.NameOption = None,
    version: options.VersionOption = None,
    note: options.NoteOption = None,
    random_state: options.SeedOption = 0,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Let --train overwrite a model.", rich_help_panel=options.MODELS
        ),
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
    from iknow.cli.jobs.fit import fit_job
    from iknow.cli.jobs.source import Source

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
        },
        reference=None if reference is None else training.without_labels(reference),
        random_state=random_state,
        parameters=options.given(
            quorum=options.quorum_by_name(quorum),
            k=n_neighbors,
            confidence=doubt,
            metric=options.by_layer(metric, "--metric"),
            classes=classes or None,
            pool=options.by_layer(pool, "--pool"),
            scores=options.scores_by_name(scores),
            batch_size=batch_size,
        ),
        about={**options.given(name=name, note=note, version=version), "onnx": onnx},
        force=force,
    )
    show_fit(classifier, output, options.console_for(output))
