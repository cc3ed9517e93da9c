"""The reproduction: `python -m reproduction all`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from iknow.cli.errors import OneLineCommand
from iknow.core.text import percent, visible
from iknow.errors import DataError, InputError
from reproduction.agreement import count_agreeing
from reproduction.data.datasets import sample_signs
from reproduction.entries import group_outcomes
from reproduction.figures.pictures import make_figures
from reproduction.notebooks.page import write_page
from reproduction.notebooks.printed import compare_printed, measure_all
from reproduction.notebooks.run import run_notebook
from reproduction.notebooks.settings import NOTEBOOKS
from reproduction.reproduce import choose_setups, list_runs, reproduce
from reproduction.results import read_csv

NOTEBOOK_SEEDS = 10


class Device(StrEnum):
    """Where networks train and searches run."""

    CPU = "cpu"
    CUDA = "cuda"


app = typer.Typer(name="python -m reproduction", pretty_exceptions_enable=False)


@app.command(cls=OneLineCommand)
def command(
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
        written = reproduce_figures(out, quick)
    elif experiment == "notebooks":
        written = [reproduce_notebooks(out, seeds, quick)]
    else:
        written = reproduce_tables(experiment, out, seeds, quick, jobs, device.value)
    if experiment == "all":
        written += reproduce_figures(out / "figures", quick)
    for path in written:
        typer.echo(f"Written to {visible(path)}")


def reproduce_tables(
    name: str, out: Path, n_seeds: int | None, quick: bool, jobs: int | None, device: str
) -> list[Path]:
    """Run experiments of the paper, a line for each seed; then say how much agrees."""
    runs, kept, n_done = list_runs(choose_setups(name, quick=quick), n_seeds), 0, 0

    def report(experiment: str, seed: int, was_kept: bool) -> None:
        nonlocal kept, n_done
        kept, n_done = kept + was_kept, n_done + 1
        if not was_kept:
            typer.echo(f"{experiment}, seed {seed}: {n_done} of {len(runs)} done", err=True)

    written = reproduce(runs, out, jobs=jobs, device=device, report=report)
    if kept:
        typer.echo(f"{kept} of {len(runs)} seeds had been run before and were kept")
    for each in group_outcomes(read_csv(out / "results.csv")):
        agreeing, counted = count_agreeing(each.comparisons)
        share = percent(agreeing / counted) if counted else "–"
        told = f"{agreeing} of {counted} counted cells agree, {share}"
        typer.echo(f"{each.setup.name}, {len(each.outcomes)} seeds: {told}")
    return written


def reproduce_figures(out: Path, quick: bool) -> list[Path]:
    """Draw the paper's figures; the traffic signs only if their images are available."""
    signs = None
    try:
        signs = sample_signs()
    except DataError as error:
        typer.echo(f"signs.png is left out: {visible(error)}", err=True)
    return make_figures(out, quick=quick, signs=signs)


def reproduce_notebooks(out: Path, n_seeds: int | None, quick: bool) -> Path:
    """Run the authors' notebooks with some seeds, in minutes, and write `notebooks.md`."""
    if n_seeds is not None and n_seeds < 1:
        raise InputError(f"at least one seed is needed; got {n_seeds}")
    if out.exists() and not out.is_dir():
        raise InputError(f"results go into a folder; {out} is a file")
    outcomes = []
    for notebook in NOTEBOOKS:
        typer.echo(f"notebook {notebook.name}", err=True)
        seeds = range(n_seeds or (2 if quick else NOTEBOOK_SEEDS))
        outcomes += [run_notebook(notebook, seed) for seed in seeds]
    compared = compare_printed(measure_all(outcomes))
    agreeing, counted = count_agreeing(list(compared.values()))
    typer.echo(f"{agreeing} of {counted} counted figures agree")
    return write_page(out / "notebooks.md", outcomes, quick=quick)


if __name__ == "__main__":
    app()
