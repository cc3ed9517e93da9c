"""`iknow report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from iknow.cli import options

PAGE = Path("report.html")


def report(
    bundle: options.BundleArgument,
    data: options.DataArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = PAGE,
    model: options.ModelOption = None,
    level: options.LevelOption = None,
    label: options.LabelOption = None,
    labels: options.LabelsOption = None,
    identifier: options.IdOption = None,
    drop: options.DropOption = None,
    features: options.FeaturesOption = None,
    text: options.TextOption = None,
    input_format: options.InputFormatOption = None,
    training: Annotated[
        Path | None,
        typer.Option(
            help="The file given to `iknow fit`, to show the exemplars.",
            rich_help_panel=options.DATA,
        ),
    ] = None,
    training_label: Annotated[
        str | None,
        typer.Option(
            help="Its column of labels, if it has another name.", rich_help_panel=options.DATA
        ),
    ] = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(help="A layer that decides; repeatable.", rich_help_panel=options.SEARCH),
    ] = None,
    show: Annotated[
        str | None,
        typer.Option(help="What samples look like: image:8x8, image:3x32x32, series, features."),
    ] = None,
    device: options.DeviceOption = None,
    no_check_model: options.NoCheckOption = False,
    config: options.ConfigOption = None,
) -> None:
    """Write what is known, and why, as one HTML page that opens anywhere.

    For example, of images of 28 by 28 pixels:

    iknow report b.iknow test.npz --model m.pt --show image:28x28 -o page.html
    """
    from iknow.cli.console import show_figures, show_report
    from iknow.cli.jobs.report import renderer_by_name, report_job
    from iknow.cli.jobs.source import Source

    roles = options.roles_of(label, identifier, drop, features, text)
    trained = options.roles_of(training_label or label, identifier, drop, features, text)
    assessment, y_true = report_job(
        bundle,
        Source(data, roles, labels, input_format),
        output,
        model=model,
        training=None if training is None else Source(training, trained),
        layers=layer,
        renderer=renderer_by_name(show),
        level=level,
        device=device,
        check_model=not no_check_model,
    )
    show_figures(assessment, y_true, options.console_for(output))
    show_report(output, options.console_for(output))
