"""What `iknow info` shows: the facts about a bundle, its layers, and what is promised."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from iknow.cli.console import show_selection, show_written
from iknow.core.text import name
from iknow.storage.about_text import list_facts, short_line

QUORUM = re.compile(r", quorum=(\([0-9, ]*\)|[0-9]+)")
NUMBER = re.compile(r"[0-9]+\.[0-9]{4,17}(e-?[0-9]+)?")


def show_info(info: Any, console: Console) -> None:
    """Print what a bundle is."""
    console.print(Text(name(info.title), style="bold"))
    for line in info.note.splitlines():
        console.print(Text(name(line, 1_000)))
    facts = Table.grid(padding=(0, 2))
    for heading, value in list_facts(info).items():
        facts.add_row(Text(heading, style="dim"), Text(value))
    if info.selection is not None and info.selection.level is not None:
        facts.add_row(Text("level", style="dim"), f"IK begins at {info.selection.level:.3f}")
    console.print(Padding(facts, (1, 0, 0, 0)))
    console.print(_layers(info))
    if info.selection is not None:
        show_selection(info.selection, console)
        return
    for sentence in info.promises:
        console.print(Text(short_line(sentence)))


def show_exported(info: Any, console: Console) -> None:
    """Print how near a bundle's own model comes to the original, and where it was written."""
    compared = info.exported
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for heading in ("", "largest difference", "tolerance"):
        table.add_column(heading, justify="left" if not heading else "right")
    for what, found in {"scores": compared["scores"], **compared["layers"]}.items():
        table.add_row(Text(name(what)), f"{found['difference']:.2g}", f"{found['tolerance']:.2g}")
    console.print(f"The model in the bundle answers alike on {compared['samples']:,} samples")
    console.print(table)
    show_written(Path(info.path), console)


def _layers(info: Any) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for heading in ("layer", "features", "metric", "rule", "quorum"):
        table.add_column(heading, justify="right" if heading == "features" else "left")
    for layer in info.layers:
        rule = "not tuned" if layer.rule is None else _rounded(layer.rule)
        said = "left out" if layer.left_out is not None else rule
        quorum = "" if layer.quorum is None else ", ".join(map(str, layer.quorum))
        facts = Text(name(layer.metric)), Text(said), quorum
        table.add_row(Text(name(layer.name)), f"{layer.n_features:,}", *facts)
    return table


def _rounded(rule: str) -> str:
    """A rule without its quorum, its numbers as people read them."""
    without = QUORUM.sub("", name(rule))
    return NUMBER.sub(lambda number: f"{float(number[0]):.4g}", without)
