"""What the commands that change a bundle show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from iknow.core.arrays import Ints
from iknow.core.text import name

IDS_SHOWN = 8


def show_numbers(verb: str, numbers: Ints, bundle: Path, console: Console) -> None:
    """Print which samples a change was about."""
    n = len(numbers)
    console.print(
        Text(f"{verb} {n:,} sample{'' if n == 1 else 's'} ({list_ids(numbers)}) in {bundle}"),
        soft_wrap=True,
    )


def show_compacted(before: Any, after: Any, console: Console) -> None:
    """Print what a compaction did."""
    folded = f"Folded {before.n_segments:,} changes into {after.path}"
    console.print(Text(f"{folded}: {before.n_bytes:,} bytes became {after.n_bytes:,}"))


def show_changes(info: Any, console: Console) -> None:
    """Print the log of a bundle, and what it means for its promise."""
    if not info.changes:
        console.print("Nothing has changed since its evidence was collected")
        return
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for heading in ("when", "who", "what", "samples", "why"):
        table.add_column(heading)
    for each in info.changes:
        what = f"{each.what} {len(each.ids):,}"
        words = each.when, name(each.who), what, list_ids(each.ids), name(each.why, 400)
        table.add_row(*map(Text, words))
    console.print(table)
    if info.n_segments:
        console.print(
            f"{info.n_segments:,} of these are appended to the file: removed samples are in it "
            "until `iknow compact`",
            soft_wrap=True,
        )
    if info.selection is not None and info.selection.stale:
        console.print(Text(name(f"Stale since {info.selection.stale}", 400)), soft_wrap=True)


def list_ids(numbers: Ints) -> str:
    """Numbers of samples, the first of many, and runs of them as such."""
    found = [int(each) for each in numbers]
    if len(found) > 2 and found[-1] - found[0] == len(found) - 1:
        return f"{found[0]} to {found[-1]}"
    shown = ", ".join(map(str, found[:IDS_SHOWN]))
    return shown + (f", … ({len(found):,} in all)" if len(found) > IDS_SHOWN else "")
