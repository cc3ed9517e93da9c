"""A progress bar for long work, on standard error, and only in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def track(
    items: Iterable[Item], total: int | None, description: str, *, enabled: bool
) -> Iterator[Item]:
    """Yield the items, showing how many are done; no bar for one item or without a terminal.

    total: how many there are; None if nobody knows, and the bar then only moves.
    """
    if not enabled or total in (0, 1) or not sys.stderr.isatty():
        yield from items
        return
    # Imported here because a service never shows a bar.
    from rich.console import Console
    from rich.progress import track as rich_track

    yield from rich_track(items, description, total, console=Console(stderr=True), transient=True)
