"""What `python -m benchmarks` shows: the current measurement, then the targets and tables."""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table as RichTable

from benchmarks.files import write_all
from benchmarks.plan import Plan, make_plan
from benchmarks.recording import Recorder
from benchmarks.records import Results
from benchmarks.running import run_plan
from benchmarks.tables import (
    Table,
    cases_table,
    left_out_table,
    machine_table,
    quantity_tables,
    race_tables,
    scaling_tables,
    targets_table,
)
from benchmarks.targets import judge
from iknow.cli.data import show_written

COLORS = {"yes": "green", "no": "red"}


def run(out: Path, *, only: str | None, quick: bool, repeats: int | None, console: Console) -> None:
    """Measure, print the tables and write the files, in this order."""
    plan = make_plan(only, quick, repeats)
    results = _measure(plan)
    show(results, console)
    for path in write_all(results, out):
        show_written(path, console)


def show(results: Results, console: Console) -> None:
    """Print all tables: the machine first, the targets last, where the eye is."""
    for table in (
        machine_table(results),
        cases_table(results),
        *race_tables(results),
        *scaling_tables(results),
        *quantity_tables(results),
        left_out_table(results),
        targets_table(judge(results), results.quick),
    ):
        if table.rows:
            console.print()
            console.print(f"[bold]{escape(table.title)}[/bold]", highlight=False)
            console.print(to_rich(table))
            if table.note:
                console.print(f"[yellow]{escape(table.note)}[/yellow]", highlight=False)


def to_rich(table: Table) -> RichTable:
    """A table for the terminal."""
    headed = any(table.headings)
    drawn = RichTable(
        box=SIMPLE_HEAD if headed else None,
        header_style="bold",
        pad_edge=False,
        show_header=headed,
        padding=(0, 1, 0, 0),
    )
    for i, heading in enumerate(table.headings):
        words = i < table.left or heading in table.words
        drawn.add_column(heading, justify="left" if words else "right", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(_cell(cell) for cell in row), style=_style(row))
    return drawn


def _cell(text: str) -> str:
    color = COLORS.get(text)
    return f"[{color}]{text}[/]" if color else escape(text)


def _style(row: tuple[str, ...]) -> str | None:
    return "bold" if row[0].startswith("iknow") else None


def _measure(plan: Plan) -> Results:
    columns = (
        SpinnerColumn(),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(plan.sections))
        begun: list[str] = []

        def started(section: str) -> None:
            progress.update(task, completed=len(begun), description=section)
            begun.append(section)

        record = Recorder(lambda text: progress.update(task, description=text))
        return run_plan(plan, record, started)
