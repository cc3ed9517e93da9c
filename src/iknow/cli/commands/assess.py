"""`iknow assess`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from iknow.cli import options


def assess(
    bundle: options.BundleArgument,
    data: options.DataArgument,
    model: options.ModelOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Table to write, or - for a pipe.")
    ] = None,
    level: options.LevelOption = None,
    label: options.LabelOption = None,
    labels: options.LabelsOption = None,
    identifier: options.PassedIdOption = None,
    drop: options.DropOption = None,
    features: options.FeaturesOption = None,
    text: options.TextOption = None,
    input_format: options.InputFormatOption = None,
    output_format: options.OutputFormatOption = None,
    batch_size: options.BatchOption = None,
    device: options.DeviceOption = None,
    no_check_model: options.NoCheckOption = False,
    ray: Annotated[
        bool,
        typer.Option(
            "--ray", help="Assess on all cores with Ray: a .parquet file or a folder of them."
        ),
    ] = False,
    ray_address: Annotated[
        str | None,
        typer.Option(help="The Ray cluster to use; this machine if not given.", metavar="ADDRESS"),
    ] = None,
    config: options.ConfigOption = None,
) -> None:
    """Say IK, IMK or IDK for each prediction, and its level; with labels, how often it is right.

    The data may be larger than memory. For example:

    iknow assess b.iknow new.csv --model m.joblib --id number -o said.csv

    And between other commands, from one pipe to another:

    zcat new.csv.gz | iknow assess b.iknow - --model m.onnx -o - | grep IDK
    """
    from iknow.cli.console import show_outcome
    from iknow.cli.jobs.assess import Setup, assess_job
    from iknow.cli.jobs.source import Source

    with Console(stderr=True).status("Assessing ...") as status:
        outcome = assess_job(
            Setup(bundle, model, level, device, batch_size, check_model=not no_check_model),
            Source(
                data,
                options.roles_of(label, identifier, drop, features, text),
                labels,
                input_format,
            ),
            output,
            output_form=output_format,
            way=_way(ray, ray_address),
            told=lambda n_samples: status.update(f"Assessed {n_samples:,} samples ..."),
        )
    show_outcome(outcome, output, options.console_for(output))


def _way(ray: bool, address: str | None) -> Any:
    """How to assess: in this process, or by Ray."""
    if address is not None and not ray:
        raise typer.BadParameter("it goes with --ray", param_hint="--ray-address")
    if not ray:
        from iknow.cli.jobs.assess import assess_here

        return assess_here
    from iknow.cli.jobs.ray import RayPool

    return RayPool(address)
