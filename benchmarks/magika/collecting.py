"""Collecting: folders of projects → files of known type, each content once, by project.

Every subfolder of a folder is one project; files directly in it belong to none and are left out.
From each project we take at most `MOST` files of a type, drawn at random, so that no project
decides the figures. Two files that magika cannot tell apart, since it reads the same bytes of
them, are one: the copy in the project that comes first by name stays.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.magika.naming import FOREIGN, promised_type
from benchmarks.magika.parsing import keeps_promise

MOST = 10  # files of one type from one project
LARGEST = 3_000_000  # bytes
OTHER = "other: "  # before the name of a type that the model does not have


@dataclass(frozen=True)
class File:
    """A file of known type.

    Attributes:
        project: The folder that it comes from.
        kind: Its type, one of magika's or a foreign one, which begins with `OTHER`.
        content: Its bytes.
    """

    project: str
    kind: str
    content: bytes


@dataclass(frozen=True)
class Types:
    """What names mean: `extensions` to types, and which types are `textual`."""

    extensions: dict[str, str]
    textual: frozenset[str]

    def of(self, path: Path) -> str | None:
        foreign = FOREIGN.get(path.suffix[1:].lower())
        return promised_type(path, self.extensions) or (foreign and OTHER + foreign)

    def fits(self, content: bytes, kind: str) -> bool:
        return kind.startswith(OTHER) or keeps_promise(content, kind, kind in self.textual)


def collect(folders: Sequence[Path], types: Types, read: Callable[[bytes], bytes]) -> list[File]:
    """The files of all projects in folders; `read` gives what the model sees of a content."""
    found: list[File] = []
    seen: set[bytes] = set()
    for project in sorted(p for folder in folders for p in folder.iterdir() if p.is_dir()):
        taken: dict[str, int] = {}
        for path, kind in _candidates(project, types):
            if taken.get(kind, 0) == MOST:
                continue
            content = path.read_bytes()
            view = read(content)
            digest = hashlib.sha256(view).digest()
            if not view or digest in seen or not types.fits(content, kind):
                continue
            seen.add(digest)
            taken[kind] = taken.get(kind, 0) + 1
            found.append(File(project.name, kind, content))
    return found


def _candidates(project: Path, types: Types) -> Iterator[tuple[Path, str]]:
    """Files whose names promise a type, in a random order that is the same each time."""
    paths = [
        path
        for folder, _, names in os.walk(project)
        for path in (Path(folder, name) for name in names)
        if types.of(path) and path.is_file() and not path.is_symlink()
    ]
    paths.sort()
    random.Random(0).shuffle(paths)
    for path in paths:
        kind = types.of(path)
        if kind and path.stat().st_size <= LARGEST and os.access(path, os.R_OK):
            yield path, kind
