"""Streams of bytes: what can be read once, from a pipe as from a file."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from iknow.errors import InputError
from iknow.tables.table import existing

STDIN = Path("-")
"""The name of what comes from another command, or goes to one."""


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
