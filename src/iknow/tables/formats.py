"""The formats of tables, and how the name of a file tells its own."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from iknow.errors import InputError
from iknow.storage.atomic import is_stream
from iknow.tables.streams import STDIN

ENDINGS = {
    ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".arrow": "arrow",
    ".feather": "arrow", ".npz": "npz", ".npy": "npy",
}  # fmt: skip
READABLE = ("csv", "jsonl", "parquet", "arrow", "npz", "npy")
WRITABLE = ("csv", "jsonl", "parquet", "arrow", "npz")
OUT_OF_ORDER = ("parquet", "arrow", "npz", "npy")
"""Formats whose readers move around in a file, so that a pipe must be kept first."""


def format_to_read(path: Path, named: str | None = None) -> str:
    """The format of a file to read: as named, or by its ending; CSV from a pipe."""
    if found := _find(path, named, READABLE, "--input-format"):
        return found
    raise InputError(
        f"{path} cannot be read: expected a file ending in {_endings(READABLE)}, or '-' and "
        "--input-format"
    )


def format_to_write(path: Path, named: str | None = None) -> str:
    """The format of a file to write; refuse one that cannot hold a table."""
    found = _find(path, named, WRITABLE, "--output-format")
    if found:
        return found
    reason = (
        "cannot hold named columns, only one array"
        if path.suffix.lower() == ".npy"
        else "cannot be written"
    )
    raise InputError(f"{path} {reason}: expected a file ending in {_endings(WRITABLE)}")


def _find(path: Path, named: str | None, known: Collection[str], option: str) -> str | None:
    if named is not None:
        if named not in known:
            raise InputError(f"{option} must be one of {', '.join(known)}; got {named!r}")
        return named
    found = ENDINGS.get(path.suffix.lower())
    if found in known:
        return found
    return "csv" if path == STDIN or (found is None and is_stream(path)) else None


def _endings(known: Collection[str]) -> str:
    endings = [ending for ending, name in ENDINGS.items() if name in known]
    return f"{', '.join(endings[:-1])} or {endings[-1]}"
