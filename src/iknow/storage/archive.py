"""Archives: several named contents in one file, a ZIP that anybody can look into.

Contents are stored as they are, in their order, and each starts at a multiple of 64 bytes, so that
an array can be used where it lies. Nothing else in the file is left to choose:

    for each content    local header (name, size, CRC-32), padded by an extra field; the content
    at the end          central directory, ZIP64 end record and its locator, end record

Sizes and places are written in the ZIP64 fields whether or not they are large, so that there is one
layout and not two. Times are 1980-01-01: the same contents make the same file.

That makes reading safe and short. The central directory is taken for a claim: a list of names,
sizes and checksums. All else is made from it once more and must be there byte for byte. So there
is no field to lie in, nothing compressed or encrypted, no overlap, no gap, and nothing before,
between or behind.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import IO, NamedTuple

ALIGNMENT = 64
LARGEST_DIRECTORY = 1 << 24
"""Bytes of the central directory, which is read at once: room for 100,000 contents."""
LONGEST_NAME = 1000

SIZE_IN_EXTRA = 0xFFFFFFFF
ZIP64, ALIGNED = 0x0001, 0xD935  # extra fields; the second is known from Android's packages
VERSION = 45  # the first with ZIP64
MIDNIGHT, NEW_YEAR_1980 = 0, 0x21
UNIX, READABLE_FILE = 3 << 8, 0o100644 << 16

LOCAL = struct.Struct("<4s5H3I2H")
LOCAL_SIZES = struct.Struct("<2H2Q")
PADDING = struct.Struct("<3H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
CENTRAL_SIZES = struct.Struct("<2H3Q")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR = struct.Struct("<4sIQI")
END = struct.Struct("<4s4H2IH")
LENGTH_OF_ENDS = END64.size + LOCATOR.size + END.size


Parts = Sequence[bytes | memoryview]
"""What a content is made of, one part after the other."""


class ArchiveError(Exception):
    """A file that is no archive of this kind; the message says what is wrong with it."""


class Entry(NamedTuple):
    """One content: its name, how many bytes it has, and their CRC-32."""

    name: str
    size: int
    crc: int


class Layout(NamedTuple):
    """Where everything is in an archive.

    headers: of each content, to be found where the one before ends. starts: where contents start.
    ends: all that follows the last content, from the byte `end` on.
    """

    headers: list[bytes]
    starts: list[int]
    end: int
    ends: bytes


def lay_out(entries: Sequence[Entry]) -> Layout:
    """The layout of an archive of these contents, the only one there is."""
    headers: list[bytes] = []
    starts: list[int] = []
    directory: list[bytes] = []
    place = 0
    for entry in entries:
        header = _local_header(entry, place)
        directory.append(_central_header(entry, place))
        headers.append(header)
        starts.append(place + len(header))
        place = starts[-1] + entry.size
    central = b"".join(directory)
    return Layout(headers, starts, place, central + _ends(len(entries), place, len(central)))


def write_archive(
    file: IO[bytes], contents: Sequence[tuple[str, Sequence[bytes | memoryview]]]
) -> None:
    """Write contents, each a name and the parts it is made of."""
    entries = []
    for name, parts in contents:
        crc = 0
        for part in parts:
            crc = zlib.crc32(part, crc)
        entries.append(Entry(name, sum(memoryview(part).nbytes for part in parts), crc))
    layout = lay_out(entries)
    for header, (_, parts) in zip(layout.headers, contents, strict=True):
        file.write(header)
        for part in parts:
            file.write(part)
    file.write(layout.ends)


def read_archive(read: Callable[[int, int], bytes], size: int) -> dict[str, slice]:
    """Where the contents of an archive lie; reads headers and nothing of the contents.

    read: gives the bytes from one place to another, of a file of this size.
    """
    entries = _read_directory(read, size)
    if len({entry.name for entry in entries}) != len(entries):
        raise ArchiveError("two of its contents have the same name")
    layout = lay_out(entries)
    if layout.end + len(layout.ends) != size or read(layout.end, size) != layout.ends:
        raise ArchiveError("its directory is damaged")
    found = {}
    for entry, header, start in zip(entries, layout.headers, layout.starts, strict=True):
        if read(start - len(header), start) != header:
            raise ArchiveError(f"the header of {entry.name} is damaged")
        found[entry.name] = slice(start, start + entry.size)
    return found


def _read_directory(read: Callable[[int, int], bytes], size: int) -> list[Entry]:
    """What the central directory claims, no part of which is certain yet."""
    end = size - LENGTH_OF_ENDS
    if end < 0 or read(0, 4) != b"PK\x03\x04":
        raise ArchiveError("it is no archive of iknow's")
    record = read(end, end + END64.size)
    if len(record) != END64.size:
        raise ArchiveError("it was cut short meanwhile")
    signature, *_, length, start = END64.unpack(record)
    if signature != b"PK\x06\x06" or start + length != end or length > LARGEST_DIRECTORY:
        raise ArchiveError("its end is missing or damaged")
    directory = read(start, end)
    entries, place = [], 0
    while place < length:
        after = place + CENTRAL.size
        try:
            fields = CENTRAL.unpack(directory[place:after])
            crc, name_length = fields[7], fields[10]
            name = directory[after : after + name_length].decode("ascii")
            after += name_length
            sizes = CENTRAL_SIZES.unpack(directory[after : after + CENTRAL_SIZES.size])
        except (struct.error, UnicodeDecodeError) as error:
            raise ArchiveError("its directory is damaged") from error
        if name_length > LONGEST_NAME:
            raise ArchiveError("its directory is damaged")
        entries.append(Entry(name, sizes[2], crc))
        place = after + CENTRAL_SIZES.size
    if sum(entry.size for entry in entries) > size:
        raise ArchiveError("its directory is damaged")
    return entries


def _local_header(entry: Entry, place: int) -> bytes:
    name = entry.name.encode("ascii")
    length = LOCAL.size + len(name) + LOCAL_SIZES.size + PADDING.size
    padding = -(place + length) % ALIGNMENT
    extra = LOCAL_SIZES.pack(ZIP64, 16, entry.size, entry.size)
    extra += PADDING.pack(ALIGNED, 2 + padding, ALIGNMENT) + bytes(padding)
    return (
        LOCAL.pack(
            b"PK\x03\x04", VERSION, 0, 0, MIDNIGHT, NEW_YEAR_1980, entry.crc,
            SIZE_IN_EXTRA, SIZE_IN_EXTRA, len(name), len(extra),
        )
        + name
        + extra
    )  # fmt: skip


def _central_header(entry: Entry, place: int) -> bytes:
    name = entry.name.encode("ascii")
    extra = CENTRAL_SIZES.pack(ZIP64, 24, entry.size, entry.size, place)
    return (
        CENTRAL.pack(
            b"PK\x01\x02", UNIX | VERSION, VERSION, 0, 0, MIDNIGHT, NEW_YEAR_1980, entry.crc,
            SIZE_IN_EXTRA, SIZE_IN_EXTRA, len(name), len(extra), 0, 0, 0, READABLE_FILE,
            SIZE_IN_EXTRA,
        )
        + name
        + extra
    )  # fmt: skip


def _ends(count: int, start: int, length: int) -> bytes:
    record = END64.pack(
        b"PK\x06\x06", END64.size - 12, UNIX | VERSION, VERSION, 0, 0, count, count, length, start
    )
    locator = LOCATOR.pack(b"PK\x06\x07", 0, start + length, 1)
    many, far = 0xFFFF, 0xFFFFFFFF
    return record + locator + END.pack(b"PK\x05\x06", 0, 0, many, many, far, far, 0)
