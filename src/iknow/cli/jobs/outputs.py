"""What a job may write: never over what it reads, and it is known before any work is done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from iknow.cli.jobs.source import Source
from iknow.cli.model_file import files_of
from iknow.errors import InputError
from iknow.storage.atomic import is_stream


def check_output(output: Path, reads: Sequence[Path] = ()) -> None:
    """Refuse a file that cannot be written, or one of those read, however it is spelled."""
    with suppress(FileNotFoundError):
        output.stat()  # a loop of links is refused by the system
    if output.is_dir():
        raise InputError(f"{output} is a folder: name the file to write in it")
    for path in reads:
        if is_same(output, path):
            raise InputError(f"{output} is read, and would be lost: write to another file")
        if is_within(output, path) or is_within(path, output):
            raise InputError(
                f"{output} and {path} lie in one another, and what is read would be lost: write "
                "somewhere else"
            )


def check_page(output: Path, reads: Sequence[Path] = ()) -> None:
    """Refuse a file that is no page: whoever names a table to write a report to has slipped."""
    is_page = output.suffix.lower() in (".html", ".htm") or is_stream(output)
    if not is_page and not output.is_dir():
        raise InputError(f"{output} cannot be written: a report's name ends in .html")
    check_output(output, reads)


def check_model(model: str, reads: Sequence[Path], *, force: bool) -> None:
    """Refuse to train a model where there is one already, unless that is wanted."""
    path = Path(model)
    check_output(path, reads)
    if os.path.lexists(path) and not force:
        raise InputError(
            f"there is a model {path} already: --train would write over it; name another file, use "
            "it without --train, or say --force"
        )


def paths_read(*sources: Source | None, model: str | None = None) -> list[Path]:
    """All files that samples, labels and the model come from."""
    paths: list[Path | None] = [] if model is None else list(files_of(model))
    for source in sources:
        if source is not None:
            paths += [source.path, source.labels_path]
    return [path for path in paths if path is not None]


def is_same(one: Path, other: Path) -> bool:
    """Whether two names mean the same file: by a link, a hard link, or another spelling."""
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them is not there
        return os.path.realpath(one) == os.path.realpath(other)


def is_within(inner: Path, outer: Path) -> bool:
    """Whether a file lies in a folder, or in what is to become one."""
    return Path(os.path.realpath(outer)) in Path(os.path.realpath(inner)).parents and (
        not outer.exists() or outer.is_dir()
    )
