"""`iknow info`: what a bundle is."""

from __future__ import annotations

import re
from json import dumps
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from iknow.cli import options
from iknow.cli.data import shown_table
from iknow.cli.fit import show_selection
from iknow.core.text import name
from iknow.storage.info import describe_bundle, list_facts, short_line

QUORUM = re.compile(r", quorum=(\([0-9, ]*\)|[0-9]+)")
NUMBER = re.compile(r"[0-9]+\.[0-9]{4,17}(e-?[0-9]+)?")


@options.command
def info(bundle: Path = options.BUNDLE, json: bool = options.AS_JSON) -> None:
    """Say what a bundle is: what it promises, when and with which data it was made.

    It needs no model, and loads none. For example:

    iknow info signs.iknow
    """
    found = describe_bundle(bundle)
    if json:
        typer.echo(dumps(found.to_dict(), indent=1, ensure_ascii=True, default=str))
        return
    console = Console()
    console.print(Text(name(found.title), style="bold"))
    for line in found.note.splitlines():
        console.print(Text(name(line, 1_000)))
    facts = Table.grid(padding=(0, 2))
    for heading, value in list_facts(found).items():
        facts.add_row(Text(heading, style="dim"), Text(value))
    if found.selection is not None and found.selection.level is not None:
        facts.add_row(Text("level", style="dim"), f"IK begins at {found.selection.level:.3f}")
    console.print(Padding(facts, (1, 0, 0, 0)))
    console.print(_layers(found))
    if found.selection is not None:
        show_selection(found.selection, console)
        return
    for sentence in found.promises:
        console.print(Text(short_line(sentence)))


def _layers(info: Any) -> Table:
    table = shown_table("layer", "features", "metric", "rule", "quorum", right=("features",))
    for layer in info.layers:
        rule = "not tuned" if layer.rule is None else QUORUM.sub("", name(layer.rule))
        rule = NUMBER.sub(lambda number: f"{float(number[0]):.4g}", rule)  # as people read it
        said = "left out" if layer.left_out is not None else rule
        quorum = "" if layer.quorum is None else ", ".join(map(str, layer.quorum))
        facts = Text(name(layer.metric)), Text(said), quorum
        table.add_row(Text(name(layer.name)), f"{layer.n_features:,}", *facts)
    return table
