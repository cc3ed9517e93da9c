"""`iknow warm-up`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from iknow.cli.options import ConfigOption
from iknow.core.text import name


def warm_up(
    bundles: Annotated[
        list[Path] | None, typer.Argument(help="Bundles to check, prepare and ask once.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Compile the search, so that nobody waits for it later.

    Run it once where iknow is installed, such as in a Dockerfile: processes
    started later find the compiled code. For example:

    iknow warm-up signs.iknow
    """
    from iknow.cli.jobs.export import warm_up, warm_up_job

    console = Console()
    warm_up()
    console.print("The search is compiled")
    for bundle in bundles or ():
        asked = warm_up_job(bundle)
        said = "answers" if asked else "is whole; its model is not in it"
        console.print(Text(f"{name(bundle)} {said}"))
