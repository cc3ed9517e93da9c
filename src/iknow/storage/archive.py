"""Archives: several named contents in one file, an ordinary ZIP.

Contents are stored uncompressed, in order, each at a multiple of 64 bytes so that an array can be
used in place. Nothing else is left to choose: sizes always use the ZIP64 fields, times are
1980-01-01, and the same contents make the same file.

    for each content    local header (name, size, CRC-32), padded by an extra field; the content
    at the end          central directory, ZIP64 end record and its locator, end record

The end record may claim a comment, which follows and is no part of the archive; whatever stands
behind it is neither. So the end is found from the front, header by header (`find_end`).

That makes reading safe and short. We take the names, sizes and checksums in the central directory
as a claim, rebuild everything else from it, and compare byte for byte. So no field can lie, and
nothing can overlap, leave a gap, or hide before, between or after the contents.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import IO, NamedTuple

ALIGNMENT = 64
LARGEST_DIRECTORY = 1 << 24
"""Bytes of the central directory, which we read at once: room for 100,000 contents."""
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
"""The parts of a content, one after the other."""


class ArchiveError(Exception):
    """A file that is not an archive of this kind; the message says what is wrong with it."""


class Entry(NamedTuple):
    """One content: its name, its size in bytes, and their CRC-32."""

    name: str
    size: int
    crc: int


class Layout(NamedTuple):
    """Each content's header, right before its start; and what follows from byte `end` on."""

    headers: list[bytes]
    starts: list[int]
    end: int
    ends: bytes


class End(NamedTuple):
    """Where an archive ends, and the length of the comment that follows."""

    place: int
    comment: int


def lay_out(entries: Sequence[Entry], comment: int = 0) -> Layout:
    """The only layout that an archive of these contents can have, before a comment of a length."""
    headers, starts, directory, place = [], [], [], 0
    for entry in entries:
        headers.append(_local_header(entry, place))
        directory.append(_central_header(entry, place))
        starts.append(place + len(headers[-1]))
        place = starts[-1] + entry.size
    central = b"".join(directory)
    return Layout(
        headers, starts, place, central + _ends(len(entries), place, len(central), comment)
    )


def write_archive(
    file: IO[bytes],
    contents: Sequence[tuple[str, Parts]],
    comment: Callable[[int], bytes] = lambda end: b"",
) -> None:
    """Write contents, each a name and its parts; `comment` gets the place where it begins."""
    entries = []
    for name, parts in contents:
        crc = 0
        for part in parts:
            crc = zlib.crc32(part, crc)
        entries.append(Entry(name, sum(memoryview(part).nbytes for part in parts), crc))
    layout = lay_out(entries)
    remark = comment(layout.end + len(layout.ends))
    for header, (_, parts) in zip(layout.headers, contents, strict=True):
        file.write(header)
        for part in parts:
            file.write(part)
    file.write(lay_out(entries, len(remark)).ends + remark)


def find_end(read: Callable[[int, int], bytes], size: int) -> End:
    """Find where the archive ends with which a file of this size begins; it is not verified.

    If it has no such end, that of the file is returned, where `read_archive` finds what is wrong.
    """
    place, length = 0, 0
    while length <= LARGEST_DIRECTORY:
        header = read(place, place + LOCAL.size)
        if header[:4] != b"PK\x03\x04" or len(header) < LOCAL.size:
            break
        *_, n_name, n_extra = LOCAL.unpack(header)
        place += LOCAL.size + n_name
        sizes = read(place, place + LOCAL_SIZES.size)
        if n_name > LONGEST_NAME or len(sizes) < LOCAL_SIZES.size:
            break
        place += n_extra + LOCAL_SIZES.unpack(sizes)[3]
        length += CENTRAL.size + n_name + CENTRAL_SIZES.size
        if place > size:
            break
    end = place + length + LENGTH_OF_ENDS
    record = read(end - END.size, end) if end <= size else b""
    if record[:4] != b"PK\x05\x06":
        return End(size, 0)
    return End(end, END.unpack(record)[-1])


def read_archive(read: Callable[[int, int], bytes], size: int) -> dict[str, slice]:
    """Find the contents of an archive that ends at `size` (see `find_end`).

    `read(start, stop)` is called for headers only.
    """
    entries = _read_directory(read, size)
    if len({entry.name for entry in entries}) != len(entries):
        raise ArchiveError("two of its contents have the same name")
    comment = int.from_bytes(read(size - 2, size), "little")
    layout = lay_out(entries, comment)
    if layout.end + len(layout.ends) != size or read(layout.end, size) != layout.ends:
        raise ArchiveError("its directory is damaged")
    found = {}
    for entry, header, start in zip(entries, layout.headers, layout.starts, strict=True):
        if read(start - len(header), start) != header:
            raise ArchiveError(f"the header of {entry.name} is damaged")
        found[entry.name] = slice(start, start + entry.size)
    return found


def _read_directory(read: Callable[[int, int], bytes], size: int) -> list[Entry]:
    """The unverified claims of the central directory."""
    end = size - LENGTH_OF_ENDS
    if end < 0 or read(0, 4) != b"PK\x03\x04":
        raise ArchiveError("iknow did not write it")
    record = read(end, end + END64.size)
    if len(record) != END64.size:
        raise ArchiveError("it became shorter while being read")
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
        entries.append(Entry(name, sizes[2], crc))
        place = after + CENTRAL_SIZES.size
    longest = max((len(entry.name) for entry in entries), default=0)
    if longest > LONGEST_NAME or sum(entry.size for entry in entries) > size:
        raise ArchiveError("its directory is damaged")
    return entries


def _local_header(entry: Entry, place: int) -> bytes:
    length = LOCAL.size + len(entry.name) + LOCAL_SIZES.size + PADDING.size
    padding = -(place + length) % ALIGNMENT
    extra = LOCAL_SIZES.pack(ZIP64, 16, entry.size, entry.size)
    extra += PADDING.pack(ALIGNED, 2 + padding, ALIGNMENT) + bytes(padding)
    fields = LOCAL.pack(b"PK\x03\x04", *_describe(entry, extra))
    return fields + entry.name.encode("ascii") + extra


def _central_header(entry: Entry, place: int) -> bytes:
    extra = CENTRAL_SIZES.pack(ZIP64, 24, entry.size, entry.size, place)
    attributes = 0, 0, 0, READABLE_FILE, SIZE_IN_EXTRA
    fields = b"PK\x01\x02", UNIX | VERSION, *_describe(entry, extra), *attributes
    return CENTRAL.pack(*fields) + entry.name.encode("ascii") + extra


def _describe(entry: Entry, extra: bytes) -> tuple[int, ...]:
    """The fields that both headers of a content have."""
    sizes = SIZE_IN_EXTRA, SIZE_IN_EXTRA, len(entry.name), len(extra)
    return VERSION, 0, 0, MIDNIGHT, NEW_YEAR_1980, entry.crc, *sizes


def _ends(count: int, start: int, length: int, comment: int) -> bytes:
    record = END64.pack(
        b"PK\x06\x06", END64.size - 12, UNIX | VERSION, VERSION, 0, 0, count, count, length, start
    )
    locator = LOCATOR.pack(b"PK\x06\x07", 0, start + length, 1)
    many, far = 0xFFFF, 0xFFFFFFFF
    return record + locator + END.pack(b"PK\x05\x06", 0, 0, many, many, far, far, comment)
