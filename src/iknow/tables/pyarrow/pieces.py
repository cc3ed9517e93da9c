"""Pieces: a dataset of Parquet files cut into ranges of row groups, to be read apart.

A part of a file never spans two row groups. So pieces, each read on its own, yield the same parts
in the same order as the files read one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from iknow.core.text import names as quoted
from iknow.errors import InputError
from iknow.tables.pyarrow.batches import open_parquet
from iknow.tables.pyarrow.columns import read_parts
from iknow.tables.table import Roles, Table, decoding, existing

ROWS = 1 << 16
"""How many rows a piece has at least, unless it is a file's last."""


class Piece(NamedTuple):
    """Row groups of a file: those from `start` on, before `stop`."""

    path: Path
    start: int
    stop: int


def find_pieces(source: Path) -> list[Piece]:
    """The pieces of a Parquet file, or of all in a folder by the order of their names."""
    files = [existing(source)] if not source.is_dir() else sorted(source.glob("*.parquet"))
    if not files:
        raise InputError(f"{source} holds no file ending in .parquet")
    pieces, first = list[Piece](), None
    for path in files:
        with decoding(path):
            opened = pq.read_metadata(existing(path))
            names = opened.schema.to_arrow_schema().names
            sizes = [opened.row_group(i).num_rows for i in range(opened.num_row_groups)]
        first = names if first is None else first
        if names != first:
            raise InputError(
                f"all files of {source} must have the same columns in the same order: {path.name} "
                f"has {quoted(names)}, and {files[0].name} has {quoted(first)}"
            )
        pieces += [Piece(path, *groups) for groups in _ranges(sizes)]
    if not pieces:
        raise InputError(f"{source} is empty: it has columns but no rows")
    return pieces


def _ranges(sizes: list[int]) -> Iterator[tuple[int, int]]:
    """Successive ranges of row groups of these sizes, none of them without rows."""
    start, rows = 0, 0
    for i, size in enumerate(sizes):
        rows += size
        if rows >= ROWS:
            yield start, i + 1
            start, rows = i + 1, 0
    if rows:
        yield start, len(sizes)


@contextmanager
def reading_piece(piece: Piece, roles: Roles, *, mixed: bool) -> Iterator[Iterator[Table]]:
    """The samples of a piece, part by part. mixed: whether text may be a feature."""
    chosen = range(piece.start, piece.stop)
    with piece.path.open("rb") as file, open_parquet(file, piece.path, chosen) as opened:
        yield read_parts(opened, piece.path, roles, labelled=True, mixed=mixed)
