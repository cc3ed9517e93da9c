"""What `python -m reproduction` shows: bars while it runs, then how much agrees."""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from iknow.cli.data import show_written
from iknow.core.text import percent, visible
from iknow.errors import DataError
from reproduction.agreement import compare, count_agreeing, measure
from reproduction.data.published import sample_signs
from reproduction.figures.pictures import make_figures
from reproduction.protocol import Outcome
from reproduction.readings import find_setup
from reproduction.reproduce import choose_setups, list_runs, reproduce
from reproduction.results import read_csv


def reproduce_tables(
    name: str,
    out: Path,
    n_seeds: int | None,
    quick: bool,
    jobs: int | None,
    device: str,
    console: Console,
) -> None:
    """Run experiments of the paper, with a bar for each that counts its seeds."""
    setups = choose_setups(name, quick=quick)
    runs = list_runs(setups, n_seeds)
    kept: list[tuple[str, int]] = []
    columns = (
        SpinnerColumn(),  # a seed can take minutes: show that it is running
        TextColumn("{task.description:<20}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks = {
            setup.name: progress.add_task(setup.name, total=sum(run is setup for run, _ in runs))
            for setup in setups
        }

        def report(experiment: str, seed: int, was_kept: bool) -> None:
            progress.advance(tasks[experiment])
            if was_kept:
                kept.append((experiment, seed))

        written = reproduce(runs, out, jobs=jobs, device=device, report=report)
    if kept:
        console.print(f"{len(kept)} of {len(runs)} seeds had been run before and were kept")
    console.print(_agreement(read_csv(out / "results.csv")))
    for path in written:
        show_written(path, console)


def reproduce_figures(out: Path, quick: bool, console: Console) -> None:
    """Draw the paper's figures; the traffic signs only if their images are available."""
    signs = None
    try:
        signs = sample_signs()
    except DataError as error:
        Console(stderr=True).print(Text(f"signs.png is left out: {visible(error)}"), soft_wrap=True)
    for path in make_figures(out, quick=quick, signs=signs):
        show_written(path, console)


def _agreement(outcomes: list[Outcome]) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for heading in ("experiment", "seeds", "counted cells", "agree", "share"):
        table.add_column(heading, justify="left" if heading == "experiment" else "right")
    for name in dict.fromkeys(outcome.name for outcome in outcomes):
        found = [outcome for outcome in outcomes if outcome.name == name]
        measured = measure(found, find_setup(name).published)
        agreeing, counted = count_agreeing(compare(measured))
        share = percent(agreeing / counted) if counted else "–"
        table.add_row(name, str(len(found)), str(counted), str(agreeing), share)
    return table
