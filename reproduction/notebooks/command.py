"""What `python -m reproduction notebooks` does: run every notebook, then write the page."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import track

from iknow.cli.data import show_written
from iknow.errors import InputError
from reproduction.agreement import count_agreeing
from reproduction.notebooks.compare import compare_printed, measure_all
from reproduction.notebooks.page import write_page
from reproduction.notebooks.run import run_notebook
from reproduction.notebooks.settings import NOTEBOOKS

SEEDS = 10


def reproduce_notebooks(out: Path, n_seeds: int | None, quick: bool, console: Console) -> None:
    """Run the notebooks with some seeds, in minutes, and write `notebooks.md`."""
    if n_seeds is not None and n_seeds < 1:
        raise InputError(f"at least one seed is needed; got {n_seeds}")
    if out.exists() and not out.is_dir():
        raise InputError(f"results go into a folder; {out} is a file")
    seeds = range(n_seeds or (2 if quick else SEEDS))
    runs = [(notebook, seed) for notebook in NOTEBOOKS for seed in seeds]
    bar = track(runs, "notebooks", console=Console(stderr=True), transient=True)
    outcomes = [run_notebook(notebook, seed) for notebook, seed in bar]
    compared = compare_printed(measure_all(outcomes))
    agreeing, counted = count_agreeing(list(compared.values()))
    console.print(f"{agreeing} of {counted} counted figures agree")
    show_written(write_page(out / "notebooks.md", outcomes, quick=quick), console)
