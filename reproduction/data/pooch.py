"""Downloads, through pooch: a published file, from the first address that delivers it whole.

Whole means as many bytes as announced and, where a checksum is known, the right ones: a sign-in
page in place of a file counts as a failure like any other, and the next address is tried.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pooch

from iknow.errors import DataError

TIMEOUT = 30.0  # seconds without a byte, not for the whole file
HEADERS = {
    "User-Agent": "iknow",  # some servers refuse a library's own
    "Accept-Encoding": "identity",  # a checksum is that of the file as it is published
}

pooch.get_logger().setLevel("WARNING")  # it tells of temporary files, and advises on checksums


def download(urls: Sequence[str], checksum: str | None, target: Path) -> None:
    """Write a published file to `target`, where nothing is yet; checksum: such as "md5:0123…"."""
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
