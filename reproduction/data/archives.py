"""Tables of numbers out of published zip archives.

The archive of time series has been published in several forms: separated by tabs or by spaces, in
plain or in scientific notation. The numbers are the same. Written in one form, eight significant
digits as in the archive of 2018, they are the same bytes too, and a checksum tells.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

SERIES_ENDINGS = (".tsv", ".txt")


def extract_members(downloads: Sequence[Path], targets: Sequence[Path]) -> None:
    """Write members of one archive, each to the target that has its name."""
    (download,) = downloads
    with zipfile.ZipFile(download) as archive:
        for target in targets:
            target.write_bytes(_read_member(archive, [target.name]))


def extract_series(downloads: Sequence[Path], targets: Sequence[Path]) -> None:
    """Write tables of time series, each from the member that has its target's name, any ending."""
    (download,) = downloads
    with zipfile.ZipFile(download) as archive:
        for target in targets:
            content = _read_member(archive, [target.stem + ending for ending in SERIES_ENDINGS])
            target.write_bytes(rewrite_series(content))


def rewrite_series(content: bytes) -> bytes:
    """Rewrite lines of a label and values: tabs between, eight significant digits."""
    lines = []
    for line in content.decode("ascii").splitlines():
        if fields := line.split():
            label, *values = (float(field) for field in fields)
            lines.append("\t".join([f"{label:.0f}", *(f"{value:.8g}" for value in values)]))
    return "".join(f"{line}\n" for line in lines).encode()


def _read_member(archive: zipfile.ZipFile, names: Sequence[str]) -> bytes:
    """The first member with one of the names, in whatever folder of the archive."""
    members = {member.rpartition("/")[2]: member for member in archive.namelist()}
    for name in names:
        if name in members:
            return archive.read(members[name])
    raise KeyError(f"no {' or '.join(names)} in the archive")
