"""The benchmarks: `python -m benchmarks`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.report import write_all
from benchmarks.sections import Run, choose_sections, run_sections
from benchmarks.targets import judge
from iknow.cli.errors import OneLineCommand

app = typer.Typer(name="python -m benchmarks", pretty_exceptions_enable=False)
MET = {True: "yes", False: "NO", None: "–"}


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
    names = choose_sections(only)
    results = run_sections(Run(quick, repeats), names)
    written = write_all(results, out)
    for each in judge(results):
        typer.echo(
            f"{each.target:50} {each.wanted:>10} {each.measured:>10} {MET[each.met]:>4}"
            f"  {each.where}"
        )
    if quick:
        typer.echo("A quick run: its sizes are not those that the targets are about.")
    for path in written:
        typer.echo(f"Written to {path}")


if __name__ == "__main__":
    app()
