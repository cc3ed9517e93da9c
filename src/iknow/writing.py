"""Writing a file in one step: it is the old one or the new one, never a part."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from iknow.errors import InputError


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary sibling that takes the place of `path` once it is written in full."""
    target = path.resolve()  # a link stays a link
    if not target.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {target.parent}")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a whole file, making its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(content)
    return path
