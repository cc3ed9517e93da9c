"""Downloads: one published file, from the first of its addresses that delivers it whole.

Whole means as many bytes as announced and, where a checksum is known, the right ones: a sign-in
page in place of a file counts as a failure like any other, and the next address is tried.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Protocol
from urllib.request import Request, urlopen

from iknow.errors import DataError

TIMEOUT = 30.0  # seconds without a byte, not for the whole file
CHUNK = 1 << 16


@dataclass(frozen=True)
class Download:
    """A published file. checksum: such as "md5:0123…"; None where none is published."""

    urls: tuple[str, ...]
    checksum: str | None = None


class Advance(Protocol):
    """Takes the number of bytes that have just come."""

    def __call__(self, n_bytes: int) -> None: ...


def download(what: Download, target: Path) -> None:
    """Write a published file to `target`, in place of anything there."""
    failures = []
    for url in what.urls:
        try:
            _fetch(url, target)
            _check(what, target)
            return
        except (OSError, HTTPException, ValueError, DataError) as error:
            failures.append(f"{url}: {error or type(error).__name__}")
    raise DataError(f"cannot download {'; '.join(failures)}")


def _fetch(url: str, target: Path) -> None:
    request = Request(url, headers={"User-Agent": "iknow"})  # some servers refuse urllib's own
    with urlopen(request, timeout=TIMEOUT) as response, target.open("wb") as stream:
        announced = response.headers.get("Content-Length")
        expected = int(announced) if announced else None
        with _progress(url.rpartition("/")[2], expected) as advance:
            received = _copy(response, stream, advance)
    # A connection that is closed early looks to urllib like the end of the file.
    if expected is not None and received != expected:
        raise DataError(f"it ended after {received:,} of {expected:,} bytes")


def _copy(response: IO[bytes], stream: IO[bytes], advance: Advance) -> int:
    received = 0
    while chunk := response.read(CHUNK):
        stream.write(chunk)
        received += len(chunk)
        advance(len(chunk))
    return received


def _check(what: Download, path: Path) -> None:
    if what.checksum is None:
        return
    algorithm, _, expected = what.checksum.partition(":")
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, algorithm).hexdigest()
    if found != expected:
        raise DataError(f"expected {algorithm} {expected}, found {found}")


@contextmanager
def _progress(name: str, n_bytes: int | None) -> Iterator[Advance]:
    """A bar on standard error that fills as bytes come; nothing without a terminal."""
    if not sys.stderr.isatty():
        yield lambda n_bytes: None
        return
    # Imported here because files already at hand need no bar.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    with bar:
        task = bar.add_task(name, total=n_bytes)
        yield lambda n_bytes: bar.advance(task, n_bytes)
