"""Marks: how far a bundle's file is committed.

They lie in the comment of the base archive, so that a bundle without segments stays an ordinary
ZIP. Each has a sector of the disk for itself, as a disk writes a sector whole or not at all. The
mark of turn n lies in sector n % 2: writing it leaves the mark before it as it is.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import NamedTuple

from iknow.errors import BundleError

SECTOR = 512
MARK = struct.Struct("<8s3Q32s")
MAGIC = b"IKNOW\x00M\x01"
SEALED = MARK.size + 32

Read = Callable[[int, int], bytes]


class Head(NamedTuple):
    """The number of segments up to a place, that place, and the digest of the last of them."""

    number: int
    end: int
    digest: bytes


class Mark(NamedTuple):
    """What was committed by the writer whose turn it was."""

    turn: int
    head: Head


class Marks(NamedTuple):
    """What the marks say: the last one, and whether the other one can be read too."""

    last: Mark
    both: bool


def room_at(end: int) -> int:
    """The length of the comment that holds the marks of an archive that ends at a place."""
    return -end % SECTOR + 2 * SECTOR


def first_marks(end: int, digest: bytes) -> bytes:
    """The comment of an archive that ends at a place and has no segments yet."""
    mark = encode_mark(Mark(0, Head(0, end + room_at(end), digest)))
    return bytes(-end % SECTOR) + mark + mark


def sector_of(end: int, turn: int) -> int:
    """Where the mark of a turn lies, behind an archive that ends at a place."""
    return end + -end % SECTOR + turn % 2 * SECTOR


def encode_mark(mark: Mark) -> bytes:
    """The sector of a mark."""
    body = MARK.pack(MAGIC, mark.turn, *mark.head)
    return (body + hashlib.sha256(body).digest()).ljust(SECTOR, b"\0")


def read_marks(read: Read, end: int) -> Marks:
    """The marks behind an archive that ends at a place.

    Raises:
        BundleError: They cannot be read, or do not belong together.
    """
    if any(read(end, sector_of(end, 0))):
        raise BundleError("there is something between the archive and its marks")
    places = [sector_of(end, turn) for turn in (0, 1)]
    found = [_decode(read(place, place + SECTOR), i) for i, place in enumerate(places)]
    known = sorted(mark for mark in found if mark is not None)
    if not known:
        raise BundleError("its marks are damaged or missing")
    if len(known) == 2 and known[1].turn != known[0].turn + (known[1].turn > 0):
        raise BundleError("its marks contradict each other")
    return Marks(known[-1], len(known) == 2)


def _decode(sector: bytes, place: int) -> Mark | None:
    """The mark in a sector; None if it was not written completely, or damaged."""
    body, seal, rest = sector[: MARK.size], sector[MARK.size : SEALED], sector[SEALED:]
    if len(sector) != SECTOR or seal != hashlib.sha256(body).digest() or any(rest):
        return None
    magic, turn, *head = MARK.unpack(body)
    in_place = turn == 0 or turn % 2 == place
    return Mark(turn, Head(*head)) if magic == MAGIC and in_place else None
