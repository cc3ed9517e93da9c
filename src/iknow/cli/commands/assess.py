"""`iknow assess`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from iknow.cli.options import (
    BatchOption,
    BundleArgument,
    ConfigOption,
    DataArgument,
    DeviceOption,
    DropOption,
    FeaturesOption,
    InputFormatOption,
    LabelOption,
    LabelsOption,
    LevelOption,
    ModelOption,
    NoCheckOption,
    OutputFormatOption,
    PassedIdOption,
    TextOption,
    console_for,
    roles_of,
)


def assess(
    bundle: BundleArgument,
    data: DataArgument,
    model: ModelOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Table to write, or - for a pipe.")
    ] = None,
    level: LevelOption = None,
    label: LabelOption = None,
    labels: LabelsOption = None,
    identifier: PassedIdOption = None,
    drop: DropOption = None,
    features: FeaturesOption = None,
    text: TextOption = None,
    input_format: InputFormatOption = None,
    output_format: OutputFormatOption = None,
    batch_size: BatchOption = None,
    device: DeviceOption = None,
    no_check_model: NoCheckOption = False,
    config: ConfigOption = None,
) -> None:
    """Say IK, IMK or IDK for each prediction, and its level; with labels, how often it is right.

    The data may be larger than memory. For example:

    iknow assess b.iknow new.csv --model m.joblib --id number -o said.csv

    And between other commands, from one pipe to another:

    zcat new.csv.gz | iknow assess b.iknow - --model m.onnx -o - | grep IDK
    """
    from iknow.cli.console import show_outcome
    from iknow.cli.jobs.assess import assess_job
    from iknow.cli.jobs.source import Source

    with Console(stderr=True).status("Assessing ...") as status:
        outcome = assess_job(
            bundle,
            Source(data, roles_of(label, identifier, drop, features, text), labels, input_format),
            output,
            model=model,
            output_form=output_format,
            level=level,
            device=device,
            batch_size=batch_size,
            check_model=not no_check_model,
            told=lambda n_samples: status.update(f"Assessed {n_samples:,} samples ..."),
        )
    show_outcome(outcome, output, console_for(output))
