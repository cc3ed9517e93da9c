"""The command line: `iknow demo`, `fit`, `assess`, `report`, `info`, `compare`, `serve`, ..."""

from __future__ import annotations

from typing import Annotated

import typer

from iknow.cli.assess import assess
from iknow.cli.audit import audit
from iknow.cli.change import add, changes, compact, relabel, remove
from iknow.cli.compare import compare
from iknow.cli.demo import demo
from iknow.cli.errors import OneLineErrors
from iknow.cli.export import export
from iknow.cli.fit import fit
from iknow.cli.info import info
from iknow.cli.report import report
from iknow.cli.serve import serve, warm_up
from iknow.version import __version__

EXIT_CODES = (
    "Exit codes: 0 success; 1 it could not be done, because of a file, a model, the data or the "
    "disk; 2 invalid command line; 3 iknow itself failed; 130 interrupted."
)

app = typer.Typer(
    name="iknow",
    help="Makes a classifier honest: IK, IMK or IDK for every prediction.\n\n"
    "For example, train a model on a table, with a part held out, and ask about new data:\n\n"
    "iknow fit train.csv --label y --train --model m.joblib -o b.iknow\n\n"
    "iknow assess b.iknow new.csv --model m.joblib -o answers.csv",
    epilog=EXIT_CODES,
    cls=OneLineErrors,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(f"iknow {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


CHANGING = (add, remove, relabel, compact, changes)
for command in (demo, fit, assess, report, info, compare, export, serve, warm_up, *CHANGING):
    app.command()(command)

app.add_typer(audit)
