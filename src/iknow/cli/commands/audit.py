"""`iknow audit verify`, `iknow audit export` and `iknow audit head`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from iknow.cli.options import ModelOption, OutputFormatOption, console_for
from iknow.core.text import visible

if TYPE_CHECKING:
    from iknow.serve.audit import Verification

JournalArgument = Annotated[
    str, typer.Argument(help="A file, or postgresql://user@host/database.", metavar="JOURNAL")
]

audit = typer.Typer(
    name="audit",
    help="Check the audit trail of a service, and read it, also while the service writes to it.\n\n"
    "If the trail has a key, set IKNOW_AUDIT_KEY or IKNOW_AUDIT_KEY_FILE.",
)


@audit.command()
def verify(
    journal: JournalArgument,
    bundle: Annotated[
        list[Path] | None,
        typer.Option(help="Derive answers of this bundle again; repeatable.", metavar="FILE"),
    ] = None,
    model: ModelOption = None,
    head: Annotated[
        list[str] | None,
        typer.Option(help="A head that was noted elsewhere; repeatable.", metavar="SEQ:HASH"),
    ] = None,
    level_tolerance: Annotated[
        float,
        typer.Option(min=0.0, help="How far a derived level may be from the recorded one."),
    ] = 0.0,
) -> None:
    """Check that no record was changed, removed or moved, and that answers follow from inputs.

    It exits with 1 if something is wrong. Without a head that was noted elsewhere, an older copy of
    the whole trail cannot be told from a true one. For example:

    iknow audit verify audit.db --bundle signs.iknow --head 4711:5f0c...
    """
    from iknow.cli.jobs.audit import verify_job

    with Console(stderr=True).status("Verifying ...") as status:
        found = verify_job(
            journal,
            bundles=bundle or (),
            model=model,
            heads=head or (),
            level_tolerance=level_tolerance,
            told=lambda n: status.update(f"Verified {n:,} records ..."),
        )
    show_verification(found, Console(), derived=bool(bundle), noted=bool(head))
    if not found.holds:
        raise typer.Exit(1)


@audit.command()
def export(
    journal: JournalArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Table to write, or - for a pipe.")
    ],
    since: Annotated[
        str | None, typer.Option(help="From this date or time on, in UTC.", metavar="TIME")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Before this date or time, in UTC.", metavar="TIME")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Only about the model of this name.", metavar="NAME")
    ] = None,
    inputs: Annotated[
        bool, typer.Option("--inputs", help="The inputs that were kept too, in base 64.")
    ] = False,
    output_format: OutputFormatOption = None,
) -> None:
    """Write the records as a table: .parquet, .csv, .jsonl or .arrow.

    For example:

    iknow audit export audit.db -o january.parquet --since 2026-01-01 --until 2026-02-01
    """
    from iknow.cli.console import show_written
    from iknow.cli.jobs.audit import check_times, export_job

    times = check_times(since=since, until=until)
    with Console(stderr=True).status("Exporting ...") as status:
        n_records = export_job(
            journal,
            output,
            form=output_format,
            model=model,
            inputs=inputs,
            told=lambda n: status.update(f"Exported {n:,} records ..."),
            **times,
        )
    console = console_for(output)
    console.print(f"{n_records:,} records")
    show_written(output, console)


@audit.command()
def head(journal: JournalArgument) -> None:
    """Print the number and the hash of the last record: note them where the trail is not.

    For example:

    iknow audit head audit.db
    """
    from iknow.cli.jobs.audit import head_job

    typer.echo(head_job(journal))


def show_verification(found: Verification, console: Console, *, derived: bool, noted: bool) -> None:
    """Print what was found."""
    records = f"{found.n_records:,} records, {found.first:,} to {found.last:,}"
    told = records if found.n_records else "no records"
    console.print(Text(f"{found.name}: {told}"), soft_wrap=True)
    for problem in found.problems:
        console.print(Text(visible(problem), style="red"), soft_wrap=True)
    if found.n_problems > len(found.problems):
        console.print(f"... and {found.n_problems - len(found.problems):,} more problems")
    if derived:
        console.print(f"{found.n_derived:,} of {found.n_answers:,} answers were derived again")
    if found.holds:
        console.print(
            Text(f"The chain holds. Its head is {found.last}:{found.head}"), soft_wrap=True
        )
    else:
        console.print(f"{found.n_problems:,} problems", style="bold red")
    if not found.is_keyed and not noted:
        console.print(
            "There is no key, and no head to compare with: who can write to the trail could have "
            "made all of it anew",
            style="dim",
            soft_wrap=True,
        )
