"""Making data files from what their authors publish, so that a folder holds whole files or none.

Everything is downloaded and converted in a temporary folder beside the files to come. They move
into place in one step each, and only when all of them are as they should be. Nothing is ever looked
for in the temporary folder: what a crash leaves behind is never taken for data.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from iknow.errors import DataError, MissingExtraError
from reproduction.data.checksum import DataFile, difference

# What reading a damaged archive, or one of an unexpected form, raises.
UNREADABLE = (KeyError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)
# Takes the paths of the downloads and the paths to write.
Converter = Callable[[Sequence[Path], Sequence[Path]], None]


@dataclass(frozen=True)
class Download:
    """A published file. checksum: such as "md5:0123…"; None where none is published."""

    urls: tuple[str, ...]
    checksum: str | None = None


@dataclass(frozen=True)
class Source:
    """How files come about: what to download, and how it is made into the files.

    converter: gives the function that converts; None where the downloads are the files. It is
        called before the downloads, so that a missing package is noticed early.
    """

    files: tuple[DataFile, ...]
    downloads: tuple[Download, ...]
    converter: Callable[[], Converter] | None = None


def make_files(source: Source, folder: Path) -> None:
    """Make a source's files in a folder, or leave the folder as it was."""
    convert = source.converter() if source.converter else None
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder) as name:
        workplace = Path(name)
        made = [workplace / Path(file.name).name for file in source.files]
        if convert is None:
            _download_all(source, made)
        else:
            downloads = [workplace / f"download-{i}" for i in range(len(source.downloads))]
            _download_all(source, downloads)
            try:
                convert(downloads, made)
            except UNREADABLE as error:
                raise DataError(_unexpected(source, f"{type(error).__name__}: {error}")) from error
        for path, file in zip(made, source.files, strict=True):
            if wrong := difference(path, file):
                raise DataError(_unexpected(source, f"{file.name}: {wrong}"))
        for path, file in zip(made, source.files, strict=True):
            _install(path, folder / file.name)


def _download_all(source: Source, targets: Sequence[Path]) -> None:
    try:
        from reproduction.data.pooch import download
    except ImportError as error:
        raise MissingExtraError("downloading data", "reproduction") from error
    for what, target in zip(source.downloads, targets, strict=True):
        download(what.urls, what.checksum, target)


def _unexpected(source: Source, what: str) -> str:
    urls = ", ".join(url for download in source.downloads for url in download.urls)
    return f"what {urls} delivered is not the data of the paper's experiments ({what})"


def _install(path: Path, target: Path) -> None:
    """Move a finished file into place; its content reaches the disk before its name does."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with path.open("rb+") as stream:
        os.fsync(stream.fileno())
    os.replace(path, target)
