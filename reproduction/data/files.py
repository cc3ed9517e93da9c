"""The data's files: found where they are, else made from what their authors publish.

A file is looked for in the folder that the environment variable IKNOW_DATA names, then in the
user's cache. If it is in neither, it is made in the cache. Wherever it comes from, it is verified
before it is used; the folder that IKNOW_DATA names is never written to.
"""

from __future__ import annotations

import os
from pathlib import Path

from iknow.errors import DataError
from iknow.search.kernels.numba.compile import user_cache
from reproduction.data.checksum import DataFile, difference
from reproduction.data.making import Source, make_files

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
