"""Appending: changes become segments of a bundle's file, and are committed together.

    lock → read → announce → cut off what is not committed → append → sync → mark → sync → done

When `append_changes` returns, the changes survive a power failure. If it raises, none of them
happened: what was written is taken back, the mark first, so that at no moment does a mark promise
what is not there.

Whoever keeps a record of changes elsewhere is told the new sha256 while nothing is written yet, and
can refuse. Nothing but these changes has that sha256, so after a crash the bundle says whether they
were made.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from iknow.errors import ConflictError
from iknow.storage.bundle import as_path, check_changes, read_opened
from iknow.storage.change import Change
from iknow.storage.files import locked
from iknow.storage.opening import Opened, open_bundle, prefixed
from iknow.storage.segments.chain import make_header
from iknow.storage.segments.change_record import encode_change
from iknow.storage.segments.compacting import Chosen, rewrite_bundle
from iknow.storage.segments.marks import SECTOR, Head, Mark, encode_mark, sector_of


def append_changes(
    path: str | os.PathLike[str],
    changes: Sequence[Change],
    *,
    after: str | None = None,
    chosen: Chosen | None = None,
    announce: Callable[[str], None] | None = None,
) -> str:
    """Append changes to a bundle, all or none, and return its new sha256.

    Args:
        path: The bundle.
        changes: The changes, in order.
        after: The sha256 of the bundle that they follow. Default: whatever is there now.
        chosen: A selection and rules to use from now on; the bundle is then written anew.
        announce: Is called with the new sha256 before anything is written. If it raises, nothing
            is. Not with `chosen`, as the sha256 of a bundle that is written anew is known later.

    Raises:
        ConflictError: The bundle is not the one that they follow any more.
        BundleError: The bundle is damaged, or the changes do not fit it.
        OSError: They could not be written; the bundle is as it was.
    """
    source = as_path(path)
    if source.is_file() and not os.access(source, os.W_OK):
        raise PermissionError(errno.EACCES, "it may not be written", str(source))
    payloads = [encode_change(change) for change in changes]
    with locked(source, in_place=True) as descriptor:
        opened = open_bundle(source, copied_up_to=0)
        assert descriptor is not None
        if after is not None and opened.head() != after:
            raise ConflictError(
                f"{source} was changed by somebody else meanwhile: load it again and repeat the "
                "change"
            )
        bundle = read_opened(source, opened, verify=False)
        with prefixed(f"{source} cannot take this change: "):
            check_changes(bundle, (*bundle.changes, *changes))
        if chosen is not None:
            assert announce is None
            return rewrite_bundle(source, changes, chosen)
        content, head = _make_segments(opened.chain.head, payloads)
        if announce is not None:
            announce(head.digest.hex())
        _append(descriptor, opened, content, head)
        return head.digest.hex()


def _make_segments(head: Head, payloads: list[bytes]) -> tuple[list[bytes], Head]:
    """The bytes to write behind a head, and the head after them."""
    content: list[bytes] = []
    for payload in payloads:
        header, head = make_header(head, payload)
        content += [header, payload]
    return content, head


def _append(descriptor: int, opened: Opened, content: list[bytes], head: Head) -> None:
    """Write and commit segments; the lock is held."""
    chain, end = opened.chain, opened.end
    before, turn = chain.head, chain.marks.last.turn
    if not chain.marks.both:  # else an interruption while a mark cannot be read would be damage
        turn += 1
        _write(descriptor, sector_of(end, turn), encode_mark(Mark(turn, before)))
        os.fsync(descriptor)
    other = opened.file.read(sector_of(end, turn + 1), sector_of(end, turn + 1) + SECTOR)
    try:
        if chain.torn:
            os.ftruncate(descriptor, before.end)
        place = before.end
        for part in content:
            _write(descriptor, place, part)
            place += len(part)
        os.fsync(descriptor)
        _write(descriptor, sector_of(end, turn + 1), encode_mark(Mark(turn + 1, head)))
        os.fsync(descriptor)
    except BaseException:
        _take_back(descriptor, sector_of(end, turn + 1), other, before.end)
        raise


def _take_back(descriptor: int, sector: int, other: bytes, end: int) -> None:
    """Make the file what it was; where that fails too, the next writer cuts off the rest."""
    with suppress(OSError):
        _write(descriptor, sector, other)
        os.fsync(descriptor)
        os.ftruncate(descriptor, end)
        os.fsync(descriptor)


def _write(descriptor: int, place: int, content: bytes) -> None:
    """Write all of some bytes at a place; the system may take them in parts."""
    rest = memoryview(content)
    os.lseek(descriptor, place, os.SEEK_SET)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
