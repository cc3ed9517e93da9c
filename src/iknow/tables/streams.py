"""Where a table is: the formats, which the name of a file tells, and streams that are read once."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from iknow.errors import InputError
from iknow.storage.files import is_stream
from iknow.tables.table import existing

STDIN = Path("-")
"""The name of what comes from another command, or goes to one."""
ENDINGS = {
    ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".arrow": "arrow",
    ".feather": "arrow", ".npz": "npz", ".npy": "npy",
}  # fmt: skip
READABLE = ("csv", "jsonl", "parquet", "arrow", "npz", "npy")
WRITABLE = ("csv", "jsonl", "parquet", "arrow", "npz")
OUT_OF_ORDER = ("parquet", "arrow", "npz", "npy")
"""Formats whose readers move around in a file, so that a pipe must be kept first."""


class Counted(io.RawIOBase):
    """A stream that counts the quotes that pass, and whose beginning can be looked at."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._ahead = file, b""
        self.n_quotes = 0

    def readable(self) -> bool:
        return True

    def peek(self, size: int) -> io.BytesIO:
        """Up to this number of the bytes that come next; they still come."""
        while len(self._ahead) < size and (more := self._file.read(size - len(self._ahead))):
            self._ahead += more
        return io.BytesIO(self._ahead[:size])

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        content, self._ahead = self._ahead[: len(view)], self._ahead[len(view) :]
        if len(content) < len(view):
            content += self._file.read(len(view) - len(content)) or b""
        view[: len(content)] = content
        self.n_quotes += content.count(b'"')
        return len(content)


@contextmanager
def opening(path: Path, *, seekable: bool) -> Iterator[IO[bytes]]:
    """A file, or standard input, open for reading.

    seekable: whether the format must be read out of order; a pipe then goes to a temporary file.
    """
    if path != STDIN:
        with existing(path).open("rb") as file:
            yield file
    elif sys.stdin is None or sys.stdin.isatty():
        raise InputError("'-' reads from another command or a file, as in `iknow ... - < new.csv`")
    elif not seekable:
        yield sys.stdin.buffer
    else:
        with tempfile.TemporaryFile() as spooled:
            while content := sys.stdin.buffer.read(1 << 20):
                spooled.write(content)
            spooled.seek(0)
            yield spooled


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
