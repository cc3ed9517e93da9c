"""`iknow info`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from iknow.cli.options import BundleArgument, ConfigOption


def info(
    bundle: BundleArgument,
    json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
    config: ConfigOption = None,
) -> None:
    """Say what a bundle is: what it promises, when and with which data it was made.

    It needs no model, and loads none. For example:

    iknow info signs.iknow
    """
    from iknow.cli.console import show_info
    from iknow.storage.info import describe_bundle

    found = describe_bundle(bundle)
    if json:
        from json import dumps

        typer.echo(dumps(found.to_dict(), indent=1, ensure_ascii=True, default=str))
        return
    show_info(found, Console())
