"""Opening a bundle's file: its manifest, where its contents lie, and the changes that follow.

A writer may append to the file, or cut off what another left, while we read it. Then what we saw at
different moments may not belong together. So what looks like damage counts only if the file stayed
as it was meanwhile; else we look again.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from iknow.errors import BundleError
from iknow.storage.archive import ArchiveError, End, find_end, read_archive
from iknow.storage.bundle_record import FORMAT
from iknow.storage.change import Change
from iknow.storage.manifest import LARGEST, read_manifest
from iknow.storage.schema import check_record
from iknow.storage.sealed import SealedFile
from iknow.storage.segments.chain import Chain, follow_chain
from iknow.storage.segments.change_record import decode_change
from iknow.storage.segments.marks import Head, read_marks, room_at

FORMAT_LINE = re.compile(rb'\{\n"format": (\d{1,9}),')
MANIFEST = "manifest.json"
KEYS = ("format", "iknow", "classes", "layers", "probe", "settings", "arrays", "model", "changes")
MOST_LOOKS = 1_000


@dataclass(frozen=True, eq=False)
class Opened:
    """An open bundle.

    places: where its contents lie. sha256: of the manifest. end: of the archive. chain: of changes.
    """

    file: SealedFile
    manifest: dict[str, Any]
    sha256: str
    places: dict[str, slice]
    end: int
    chain: Chain

    def head(self) -> str:
        """The digest that seals the whole file."""
        return self.chain.head.digest.hex()

    @property
    def committed(self) -> int:
        """Where that which was acknowledged ends."""
        return self.chain.head.end

    def read_changes(self) -> tuple[Change, ...]:
        """The changes in the segments, in order."""
        changes = []
        for segment in self.chain.segments:
            with prefixed(f"its change {segment.number}: "):
                payload = self.file.read(segment.payload.start, segment.payload.stop)
                changes.append(decode_change(payload))
        return tuple(changes)

    def as_of(self, sha256: str) -> Opened:
        """The same file as it was when its sha256 was this one: later changes do not count.

        Raises:
            BundleError: It never was, or not since it was compacted.
        """
        if self.head() == sha256:
            return self
        states = [self.sha256, *(segment.digest.hex() for segment in self.chain.segments)]
        if sha256 in states:
            kept = self.chain.segments[: states.index(sha256)]
            return replace(self, chain=replace(self.chain, segments=kept))
        raise BundleError(f"it was replaced, and does not hold the state {sha256[:12]} any more")

    def find_turn(self) -> int:
        """How often changes were committed to the file by now."""
        try:
            return read_marks(self.file.read, self.end).last.turn
        except BundleError:  # it is being written, or damaged
            return self.chain.marks.last.turn


def open_bundle(source: Path, copied_up_to: int | None = None) -> Opened:
    """Open a bundle, complete or not. copied_up_to: see `SealedFile`.

    Raises:
        BundleError: It is no bundle, or damaged.
    """
    for _ in range(MOST_LOOKS):
        before = _look(source)
        try:
            return _open(source, copied_up_to)
        except BundleError:
            if before is None or _look(source) == before:
                raise
    return _open(source, copied_up_to)


@contextmanager
def prefixed(prefix: str) -> Iterator[None]:
    """Say where an error is."""
    try:
        yield
    except (BundleError, ValueError) as error:
        raise BundleError(f"{prefix}{error}") from error


def _look(source: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(source)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _open(source: Path, copied_up_to: int | None) -> Opened:
    file = SealedFile(source, copied_up_to)
    end = find_end(file.read, file.opened.size)
    places = _find_contents(source, file, end)
    manifest, sha256 = _read_manifest(source, file, places[MANIFEST])
    with prefixed(f"{source} is damaged: "):
        chain = _find_chain(file, end, bytes.fromhex(sha256))
    return Opened(file, manifest, sha256, places, end.place, chain)


def _find_contents(source: Path, file: SealedFile, end: End) -> dict[str, slice]:
    try:
        places = read_archive(file.read, end.place)
    except ArchiveError as error:
        raise BundleError(f"{source} is not a bundle, or damaged: {error}") from error
    if next(iter(places), None) != MANIFEST:
        raise BundleError(f"{source} is not a bundle: {MANIFEST} is missing")
    return places


def _find_chain(file: SealedFile, end: End, digest: bytes) -> Chain:
    if end.comment != room_at(end.place):
        raise BundleError("its marks are missing")
    start = Head(0, end.place + end.comment, digest)
    return follow_chain(file.read, file.opened.size, start, read_marks(file.read, end.place))


def _read_manifest(source: Path, file: SealedFile, place: slice) -> tuple[dict[str, Any], str]:
    """The manifest, and its sha256."""
    text = file.read(place.start, min(place.stop, place.start + LARGEST + 1))
    # The format comes before the checksum: another format may compute it differently.
    found = FORMAT_LINE.match(text)
    if found and int(found[1]) != FORMAT:
        raise BundleError(
            f"{source} has format {int(found[1])}; this version of iknow reads format {FORMAT}: "
            "load it with the version that wrote it, or fit and save again with this one"
        )
    with prefixed(f"{source} is damaged: {MANIFEST} is damaged: "):
        manifest = read_manifest(text)
        check_record(manifest, "the manifest", KEYS)
        if type(manifest["format"]) is not int or manifest["format"] != FORMAT:
            raise BundleError(f"its format must be {FORMAT}")
    return manifest, hashlib.sha256(text).hexdigest()
