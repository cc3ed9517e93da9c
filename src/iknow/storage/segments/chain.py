"""The chain of segments behind a base archive: made, followed, and told from an interrupted one."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import NamedTuple

from iknow.errors import BundleError
from iknow.storage.segments.marks import Head, Marks, Read

HEADER = struct.Struct("<8s2Q32s32s")
MAGIC = b"IKNOW\x00S\x01"
HEADER_SIZE = HEADER.size + 32
LARGEST_PAYLOAD = 1 << 36


class Segment(NamedTuple):
    """A committed segment: its number from 1, its digest, and where its payload lies."""

    number: int
    digest: bytes
    payload: slice


@dataclass(frozen=True)
class Chain:
    """The committed segments of a file.

    start: the head before the first. torn: bytes behind the last that an interrupted writer left.
    """

    start: Head
    segments: tuple[Segment, ...]
    marks: Marks
    torn: int

    def head_at(self, count: int) -> Head | None:
        """The head after so many segments, if there are as many."""
        if count > len(self.segments):
            return None
        if not count:
            return self.start
        segment = self.segments[count - 1]
        return Head(count, segment.payload.stop, segment.digest)

    @property
    def head(self) -> Head:
        found = self.head_at(len(self.segments))
        assert found is not None
        return found


def make_header(before: Head, payload: bytes) -> tuple[bytes, Head]:
    """The header of the segment with a payload after a head; and the head that it makes."""
    digest = hashlib.sha256(payload).digest()
    body = HEADER.pack(MAGIC, before.number + 1, len(payload), before.digest, digest)
    own = hashlib.sha256(body).digest()
    end = before.end + HEADER_SIZE + len(payload)
    return body + own, Head(before.number + 1, end, own)


def follow_chain(read: Read, size: int, start: Head, marks: Marks) -> Chain:
    """The committed segments from a head on, in a file of this size.

    Raises:
        BundleError: Something that was committed is missing or wrong.
    """
    segments: list[Segment] = []
    before, wanted = start, marks.last.head.number
    if start.end > size:
        raise BundleError("it is cut short")
    while len(segments) < wanted or not marks.both:
        found = _read_segment(read, size, before)
        if isinstance(found, str):
            if len(segments) < wanted or before.end < size:
                raise BundleError(f"its change {len(segments) + 1} {found}")
            break
        segments.append(found)
        before = Head(found.number, found.payload.stop, found.digest)
    chain = Chain(start, tuple(segments), marks, size - before.end)
    if chain.head_at(wanted) != marks.last.head:
        raise BundleError("its changes do not match its marks")
    return chain


def _read_segment(read: Read, size: int, before: Head) -> Segment | str:
    """The segment after a head, or what is wrong with it."""
    start = before.end + HEADER_SIZE
    header = read(before.end, min(start, size))
    body, own = header[: HEADER.size], header[HEADER.size :]
    if len(header) != HEADER_SIZE:
        return "is cut short or missing"
    if own != hashlib.sha256(body).digest():
        return "has a damaged header"
    magic, number, length, link, digest = HEADER.unpack(body)
    if magic != MAGIC or number != before.number + 1 or link != before.digest:
        return "does not continue what comes before"
    if length > LARGEST_PAYLOAD or start + length > size:
        return "is cut short"
    if hashlib.sha256(read(start, start + length)).digest() != digest:
        return "does not match its checksum"
    return Segment(number, own, slice(start, start + length))
