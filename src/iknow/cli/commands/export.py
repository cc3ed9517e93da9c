"""`iknow export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from iknow.cli.options import (
    DATA,
    FILES,
    BundleArgument,
    ConfigOption,
    DropOption,
    FeaturesOption,
    IdOption,
    InputFormatOption,
    LabelOption,
    ModelOption,
    NameOption,
    NoCheckOption,
    NoteOption,
    TextOption,
    VersionOption,
    console_for,
    given,
    roles_of,
)


def export(
    bundle: BundleArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The bundle to write.")],
    model: ModelOption = None,
    samples: Annotated[
        Path | None,
        typer.Option(help=f"Compare on these too: {FILES}, or - for a pipe.", rich_help_panel=DATA),
    ] = None,
    input_format: InputFormatOption = None,
    label: LabelOption = None,
    identifier: IdOption = None,
    drop: DropOption = None,
    features: FeaturesOption = None,
    text: TextOption = None,
    name: NameOption = None,
    version: VersionOption = None,
    note: NoteOption = None,
    no_check_model: NoCheckOption = False,
    config: ConfigOption = None,
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

    roles = roles_of(label, identifier, drop, features, text)
    with Console(stderr=True).status("Exporting ..."):
        export_job(
            bundle,
            model,
            output,
            samples=None if samples is None else Source(samples, roles, None, input_format),
            about=given(name=name, version=version, note=note),
            check_model=not no_check_model,
        )
    show_exported(describe_bundle(output), console_for(output))
