"""`iknow info`: what a bundle is."""

from __future__ import annotations

from json import dumps
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from iknow.cli import options
from iknow.storage.info import describe_bundle


@options.command
def info(bundle: Path = options.BUNDLE, json: bool = options.AS_JSON) -> None:
    """Say what a bundle is: what it promises, when and with which data it was made.

    It needs no model, and loads none. For example:

    iknow info signs.iknow
    """
    found, console = describe_bundle(bundle), Console()
    if json:
        typer.echo(dumps(found.to_dict(), indent=1, ensure_ascii=True, default=str))
        return
    title, _, rest = str(found).partition("\n")
    console.print(Text(title, style="bold"))
    console.print(Text(rest))
