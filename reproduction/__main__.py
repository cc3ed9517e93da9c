"""The reproduction: `python -m reproduction all`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from iknow.cli.errors import OneLineCommand
from reproduction.console import reproduce_figures, reproduce_tables
from reproduction.notebooks.command import reproduce_notebooks


class Device(StrEnum):
    """Where networks train and searches run."""

    CPU = "cpu"
    CUDA = "cuda"


app = typer.Typer(name="python -m reproduction", pretty_exceptions_enable=False)


@app.command(cls=OneLineCommand)
def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            help="A dataset of the paper (grid_stability, iris, italy_power_demand, "
            "synthetic_control, mnist, gtsrb), figures, notebooks, or all."
        ),
    ],
    seeds: Annotated[
        int | None, typer.Option(help="Seeds of each; by default as many as its setup names.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path(
        "results/reproduction"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Few samples and two seeds: to see that all runs.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Seeds at a time; by default one per core.")
    ] = None,
    device: Annotated[Device, typer.Option(help="Where to train, search and attack.")] = Device.CPU,
) -> None:
    """Run the paper's experiments and compare our numbers with the published ones.

    Finished seeds are kept: run the same command again to resume.
    """
    if experiment == "figures":
        reproduce_figures(out, quick, Console())
    elif experiment == "notebooks":
        reproduce_notebooks(out, seeds, quick, Console())
    else:
        reproduce_tables(experiment, out, seeds, quick, jobs, device.value, Console())
    if experiment == "all":
        reproduce_figures(out / "figures", quick, Console())


if __name__ == "__main__":
    app()
