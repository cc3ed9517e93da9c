"""The data's files: found where they are, else made from what their authors publish.

A file is looked for in the folder that the environment variable IKNOW_DATA names, then in the
user's cache. If it is in neither, everything is downloaded and converted in a temporary folder
beside the files to come, which move into place only when all of them are as they should be: what a
crash leaves behind is never taken for data. Wherever a file comes from, its checksum is compared
before it is used; the folder that IKNOW_DATA names is never written to.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from iknow.errors import DataError, MissingExtraError
from iknow.search.kernels.numba.compile import user_cache

DATA_VARIABLE = "IKNOW_DATA"


def find_files(source: Source, *, download: bool = True) -> list[Path]:
    """The paths of a source's files, each verified; those in neither folder are downloaded."""
    found = [_find(file) for file in source.files]
    missing = [file.name for file, path in zip(source.files, found, strict=True) if path is None]
    cache = cache_folder()
    if missing and not download:
        raise DataError(f"{' and '.join(missing)}: not found in {_looked_in(cache)}")
    if missing:
        try:
            make_files(source, cache)
        except (DataError, OSError) as error:
            raise DataError(_not_found(missing, cache, error)) from error
    return [path or cache / file.name for path, file in zip(found, source.files, strict=True)]


def cache_folder() -> Path:
    """Where downloaded files are kept."""
    return user_cache() / "data"


def _find(file: DataFile) -> Path | None:
    """The verified path of a file that is in one of the two folders."""
    given = _given_folder()
    for folder in [*([given] if given else []), cache_folder()]:
        path = folder / file.name
        if path.is_file():
            if wrong := difference(path, file):
                raise DataError(
                    f"{path} is damaged or another file: {wrong}; replace it with the right one, "
                    "or remove it to have it downloaded"
                )
            return path
    return None


def _given_folder() -> Path | None:
    given = os.environ.get(DATA_VARIABLE)
    if not given:
        return None
    folder = Path(given).expanduser()
    if not folder.is_dir():
        raise DataError(
            f"{DATA_VARIABLE} should name a folder of data files, and {given!r} is no folder: "
            "correct it, or unset it to have the data downloaded"
        )
    return folder


def _not_found(missing: list[str], cache: Path, error: Exception) -> str:
    return (
        f"{' and '.join(missing)}: not found in {_looked_in(cache)}, and making "
        f"it there failed: {error}. Try again with a working network, or put the file into "
        f"{cache}, or into a folder of your choice that {DATA_VARIABLE} names, under this name"
    )


def _looked_in(cache: Path) -> str:
    given = _given_folder()
    return f"{given} ({DATA_VARIABLE}) or {cache}" if given else str(cache)


ARRAYS = ("x", "y")


@dataclass(frozen=True)
class DataFile:
    """A file: its path within a data folder, such as "mnist/a.gz", and what it should hold.

    size: in bytes; None for an .npz file, which has many forms.
    """

    name: str
    sha256: str
    size: int | None = None


def difference(path: Path, file: DataFile) -> str | None:
    """What was expected and what is there, or None if they are the same."""
    expected = f"sha256 {file.sha256}"
    if file.size is not None:
        expected = f"{file.size:,} bytes with {expected}"
    try:
        digest = content_digest(path)
    except Exception as error:  # numpy reads a damaged header as Python, which can fail in any way
        return f"expected {expected}, found what cannot be read ({type(error).__name__}: {error})"
    if digest == file.sha256:
        return None
    return f"expected {expected}, found {path.stat().st_size:,} bytes with sha256 {digest}"


def content_digest(path: Path) -> str:
    """The sha256 of a file; of an .npz file that of its arrays, with their dtypes and shapes."""
    if path.suffix != ".npz":
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    digest = hashlib.sha256()
    # A stream of our own, because numpy leaves the file of a damaged archive open.
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        for name in ARRAYS:
            array = np.ascontiguousarray(arrays[name])
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(array.data)
    return digest.hexdigest()


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
        for what, target in zip(source.downloads, targets, strict=True):
            download(what.urls, what.checksum, target)
    except ImportError as error:
        raise MissingExtraError("downloading data", "reproduction") from error


def _unexpected(source: Source, what: str) -> str:
    urls = ", ".join(url for download in source.downloads for url in download.urls)
    return f"what {urls} delivered is not the data of the paper's experiments ({what})"


def _install(path: Path, target: Path) -> None:
    """Move a finished file into place; its content reaches the disk before its name does."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with path.open("rb+") as stream:
        os.fsync(stream.fileno())
    os.replace(path, target)


TIMEOUT = 30.0  # seconds without a byte, not for the whole file
HEADERS = {
    "User-Agent": "iknow",  # some servers refuse a library's own
    "Accept-Encoding": "identity",  # a checksum is that of the file as it is published
}


def download(urls: Sequence[str], checksum: str | None, target: Path) -> None:
    """Write a published file to `target`, where nothing is yet; checksum: such as "md5:0123…".

    The first address counts that delivers it whole: with as many bytes as announced and, where a
    checksum is known, the right ones. A sign-in page in place of a file is a failure too.
    """
    import pooch

    pooch.get_logger().setLevel("WARNING")  # it tells of temporary files, and advises on checksums
    fetch = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(), chunk_size=1 << 16, timeout=TIMEOUT, headers=HEADERS
    )
    failures = []
    for url in urls:
        try:
            pooch.retrieve(url, checksum, target.name, target.parent, downloader=fetch)
            return
        except (OSError, ValueError) as error:
            failures.append(f"{url}: {error or type(error).__name__}")
    raise DataError(f"cannot download {'; '.join(failures)}")
