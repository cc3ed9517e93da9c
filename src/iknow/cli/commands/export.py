"""`iknow export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from iknow.cli import options


def export(
    bundle: options.BundleArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The bundle to write.")],
    model: options.ModelOption = None,
    samples: Annotated[
        Path | None,
        typer.Option(
            help=f"Compare on these too: {options.FILES}, or - for a pipe.",
            rich_help_panel=options.DATA,
        ),
    ] = None,
    input_format: options.InputFormatOption = None,
    label: options.LabelOption = None,
    identifier: options.IdOption = None,
    drop: options.DropOption = None,
    features: options.FeaturesOption = None,
    text: options.TextOption = None,
    name: options.NameOption = None,
    version: options.VersionOption = None,
    note: options.NoteOption = None,
    no_check_model: options.NoCheckOption = False,
    config: options.ConfigOption = None,
) -> None:
    """Write a bundle that holds its model as ONNX, so that it runs without the model's code.

    Both must answer alike on the training inputs in the bundle, and on
    --samples: the same belief, assertion and level. For example:

    iknow export b.iknow --model m.pt --samples test.csv -o portable.iknow

    iknow assess portable.iknow new.csv
    """
    from iknow.cli.console import show_exported
    from iknow.cli.jobs.export import export_job
    from iknow.cli.jobs.source import Source
    from iknow.storage.about import describe_bundle

    roles = options.roles_of(label, identifier, drop, features, text)
    with Console(stderr=True).status("Exporting ..."):
        export_job(
            bundle,
            model,
            output,
            samples=None if samples is None else Source(samples, roles, None, input_format),
            about=options.given(name=name, version=version, note=note),
            check_model=not no_check_model,
        )
    show_exported(describe_bundle(output), options.console_for(output))
