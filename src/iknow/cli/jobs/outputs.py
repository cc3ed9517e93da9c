"""What a job may write: never over its inputs, and it finds out before it starts to work."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from iknow.cli.jobs.source import Source
from iknow.cli.model_files import files_of
from iknow.errors import InputError
from iknow.storage.files import is_stream, write_bytes
from iknow.tables.reading import STDIN


def check_output(output: Path, reads: Sequence[Path] = ()) -> None:
    """Refuse a file that cannot be written, or an input, however it is spelled."""
    if output == STDIN:  # standard output
        return
    with suppress(FileNotFoundError):
        output.stat()  # the system refuses a loop of links
    if output.is_dir():
        raise InputError(f"{output} is a folder: name the file to write in it")
    for path in reads:
        if is_same(output, path):
            raise InputError(f"{output} is an input and would be lost: write to another file")
        if is_within(output, path) or is_within(path, output):
            raise InputError(
                f"the input {path} would be lost, as {output} holds it or is in it: write elsewhere"
            )


def check_page(output: Path, reads: Sequence[Path] = ()) -> None:
    """Refuse a report that is not an HTML file: a table's name there is a mistake."""
    is_page = output.suffix.lower() in (".html", ".htm") or is_stream(output) or output == STDIN
    if not is_page and not output.is_dir():
        raise InputError(f"{output} cannot be written: the name of a report must end in .html")
    check_output(output, reads)


def write_page(output: Path, page: str) -> None:
    """Write a report as a file, or to standard output."""
    if output == STDIN:
        sys.stdout.buffer.write(page.encode())
    else:
        write_bytes(output, page.encode())


def check_model(model: str, reads: Sequence[Path], *, force: bool) -> None:
    """Refuse to write a trained model over an existing file, unless forced."""
    path = Path(model)
    check_output(path, reads)
    if os.path.lexists(path) and not force:
        raise InputError(
            f"the model {path} already exists, and --train would overwrite it: name another file, "
            "drop --train to use it, or add --force"
        )


def paths_read(*sources: Source | None, model: str | None = None) -> list[Path]:
    """All files that hold samples, labels and the model."""
    given = [source for source in sources if source is not None]
    paths = [path for source in given for path in (source.path, source.labels_path)]
    found = [path for path in (*files_of(model or ""), *paths) if path is not None]
    if found.count(STDIN) > 1:
        raise InputError("'-' can be read once: only one of the inputs may come from a pipe")
    return [path for path in found if path != STDIN]


def is_same(one: Path, other: Path) -> bool:
    """Whether two names mean the same file: by a link, a hard link, or another spelling."""
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them does not exist
        return os.path.realpath(one) == os.path.realpath(other)


def is_within(inner: Path, outer: Path) -> bool:
    """Whether a file is inside a folder, or inside a path that is about to become one."""
    return Path(os.path.realpath(outer)) in Path(os.path.realpath(inner)).parents and (
        not outer.exists() or outer.is_dir()
    )
