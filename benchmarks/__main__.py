"""The benchmarks: `python -m benchmarks`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.console import run
from iknow.cli.errors import OneLineCommand

app = typer.Typer(name="python -m benchmarks", pretty_exceptions_enable=False)


@app.command(cls=OneLineCommand)
def bench(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("results/benchmark"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes, under a minute: to see that all runs.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(
            help="Sections, with commas between them: mnist, synthetic, pixels, scaling, "
            "selection, memory, startup."
        ),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Rounds of each race; 5, on the curves 3.")
    ] = None,
) -> None:
    """Measure what iknow costs, beside bare matrix products, scikit-learn and FAISS."""
    run(out, only=only, quick=quick, repeats=repeats, console=Console())


if __name__ == "__main__":
    app()
