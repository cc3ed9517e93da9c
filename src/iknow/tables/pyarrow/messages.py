"""Messages: what the batches of an Arrow stream unpack to, told by their heads alone.

A batch announces its rows, and each of its compressed buffers begins with its size when unpacked,
which Arrow allocates as announced. A few bytes can announce terabytes, so this is read first.

The head is a flatbuffer: a table points back to a list of the places of its fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

FILE_MAGIC = b"ARROW1\0\0"
HEADER_KIND, HEADER = 1, 2  # fields of a message
DICTIONARY, BATCH = 2, 3  # kinds of its header
DATA = 1  # field of a dictionary
LENGTH, BUFFERS, COMPRESSION = 0, 2, 3  # fields of a batch
NOT_COMPRESSED = -1


class Announced(NamedTuple):
    """A batch, or a dictionary, as its head announces it. rows: 0 for a dictionary."""

    rows: int
    n_bytes: int


def as_stream(content: bytes) -> Any:
    """Arrow's bytes as a stream. A file is one, between its magic bytes and its footer.

    The footer, which may name a batch many times, or one that is hidden in another, is not used.
    """
    found = pa.py_buffer(content)
    return found.slice(len(FILE_MAGIC)) if content.startswith(FILE_MAGIC) else found


def announced(stream: Any) -> Iterator[Announced]:
    """What each batch of a stream announces; ValueError if its head is damaged."""
    for message in pa.ipc.MessageReader.open_stream(stream):
        try:
            yield _read(memoryview(message.metadata), memoryview(message.body or b""))
        except (struct.error, IndexError) as error:
            raise ValueError("the head of a batch is damaged") from error


def _read(head: memoryview, body: memoryview) -> Announced:
    (root,) = struct.unpack_from("<I", head)
    kind_at, header_at = _field(head, root, HEADER_KIND), _field(head, root, HEADER)
    kind = head[kind_at] if kind_at else 0
    if kind not in (DICTIONARY, BATCH) or not header_at:
        return Announced(0, 0)
    batch = _follow(head, header_at)
    if kind == DICTIONARY:
        data_at = _field(head, batch, DATA)
        if not data_at:
            return Announced(0, 0)
        batch = _follow(head, data_at)
    length_at = _field(head, batch, LENGTH)
    rows = struct.unpack_from("<q", head, length_at)[0] if length_at else 0
    if rows < 0:
        raise ValueError(f"a batch announces {rows} rows")
    size = len(body)
    if _field(head, batch, COMPRESSION):
        size = sum(_unpacked(body, *each) for each in _buffers(head, batch))
    return Announced(rows if kind == BATCH else 0, size)


def _buffers(head: memoryview, batch: int) -> Iterator[tuple[int, int]]:
    """The offset and the length of each buffer of a batch."""
    place = _field(head, batch, BUFFERS)
    if not place:
        return
    vector = _follow(head, place)
    (count,) = struct.unpack_from("<I", head, vector)
    for i in range(count):
        yield struct.unpack_from("<qq", head, vector + 4 + 16 * i)


def _unpacked(body: memoryview, offset: int, length: int) -> int:
    if length == 0:
        return 0
    if offset < 0 or length < 8:
        raise ValueError("a compressed buffer has no size")
    size: int = struct.unpack_from("<q", body, offset)[0]
    if size < NOT_COMPRESSED:
        raise ValueError(f"a buffer announces {size} bytes")
    return length - 8 if size == NOT_COMPRESSED else size


def _field(head: memoryview, table: int, number: int) -> int:
    """The place of a field of a table; 0 if it is not there."""
    places = table - struct.unpack_from("<i", head, table)[0]
    if places < 0:
        raise ValueError("the head of a batch is damaged")
    (size,) = struct.unpack_from("<H", head, places)
    if 4 + 2 * number + 2 > size:
        return 0
    (offset,) = struct.unpack_from("<H", head, places + 4 + 2 * number)
    return table + offset if offset else 0


def _follow(head: memoryview, place: int) -> int:
    return int(place + struct.unpack_from("<I", head, place)[0])
