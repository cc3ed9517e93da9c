"""The file of a bundle: two marks, an ordinary ZIP, and the changes that were appended to it.

    mark | mark | ZIP | change 1 | change 2 | ...

**The ZIP** never changes. `zipfile` writes it, and any tool can open it: contents are stored, not
compressed, each at a multiple of 64 bytes so that an array can be used in place. What is no content
(headers, padding, directory) is its *frame*. The marks hold the sha256 of the frame and of the
manifest, the manifest those of all other contents: so every byte of the file is under a checksum.
`zipfile` reads the directory too, and believes it, so we compare it with where things can lie.

**Changes** are segments behind it: a header and a payload, itself such a ZIP. A header holds the
length of the payload and a digest of it and of what came before: of the segment before, or of the
manifest. So the last digest seals the whole file, and is the bundle's sha256.

**The marks** say how far the file is committed. Each has a sector of the disk for itself, as a disk
writes a sector whole or not at all. A writer holds the lock, appends, waits for the disk, writes
the mark, waits for the disk again, and only then says that it is done. The mark of turn n lies in
sector n % 2, so writing it leaves the one before as it is. From that follows what a reader may
conclude:

- What lies within the mark was acknowledged. If it is missing or wrong, the file is damaged, and
  that is an error, also at its very end: no flipped bit and no shortened copy undoes a removal.
- What lies beyond was never acknowledged: a writer was interrupted. Readers ignore it, and the next
  writer cuts it off.
- An interrupted writing spoils one mark at most, and only after its segment was on disk. So while
  one is unreadable, all complete segments count, and an incomplete one is damage.

A writer may append, or cut off what another left, while we read. Then what we saw at different
moments may not belong together. So damage counts only if the file stayed as it was meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, NamedTuple

from iknow.errors import BundleError
from iknow.storage.manifest import FORMAT, LARGEST
from iknow.storage.sealed import SealedFile

MANIFEST = "manifest.json"
ALIGNMENT = 64
LARGEST_FRAME = 1 << 24
LONGEST_NAME = 1000
FIRST_DAY = (1980, 1, 1, 0, 0, 0)
PADDING = 0xD935  # an extra field known from Android's packages
LOCAL_HEADER = struct.Struct("<4s2x2H4xI8x2H")  # flags, method, CRC-32, lengths of name and extra

SECTOR = 512
START = 2 * SECTOR
MARK = struct.Struct("<24s2Q32s32s2Q32s")
MAGIC = b"iknow bundle %d\n" % FORMAT
ANY_MAGIC = re.compile(rb"iknow bundle ([0-9]{1,9})\n")
HEADER = struct.Struct("<Q32s")
MOST_LOOKS = 1_000

Read = Callable[[int, int], bytes]
Contents = Sequence[tuple[str, Iterable[bytes | memoryview]]]
"""The contents of an archive, each a name and its parts."""


@contextmanager
def prefixed(prefix: str) -> Iterator[None]:
    """Say where an error is."""
    try:
        yield
    except (BundleError, ValueError) as error:
        raise BundleError(f"{prefix}{error}") from error


# The ZIP


def write_zip(file: IO[bytes], contents: Contents) -> None:
    """Write contents from where the file stands; the same ones always make the same ZIP."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, parts in contents:
            entry = zipfile.ZipInfo(name, FIRST_DAY)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16  # a file of Unix
            start = file.tell() + 30 + len(name) + 6 + 20  # the sizes take 20 behind the padding
            padding = -start % ALIGNMENT
            entry.extra = struct.pack("<3H", PADDING, 2 + padding, ALIGNMENT) + bytes(padding)
            with archive.open(entry, "w", force_zip64=True) as content:
                for part in parts:
                    content.write(part)


def read_zip(read: Read, start: int, stop: int) -> tuple[dict[str, slice], bytes]:
    """Where the contents of a ZIP lie, in order, and the sha256 of its frame.

    `read(start, stop)` is called for the frame only.
    """
    try:
        with zipfile.ZipFile(_Directory(read, stop)) as archive:
            entries = archive.infolist()
    except Exception as error:  # zipfile may raise anything about a file that lies
        raise BundleError(f"its directory is damaged ({str(error)[:100]})") from error
    found: dict[str, slice] = {}
    frame, place, size = hashlib.sha256(), start, 0
    for entry in sorted(entries, key=lambda each: each.header_offset):
        name, begin = entry.orig_filename, entry.header_offset + LOCAL_HEADER.size
        header = read(entry.header_offset, begin)
        if name in found:
            raise BundleError(f"two of its contents have the same name, {name[:80]!r}")
        if entry.header_offset < place or len(header) < LOCAL_HEADER.size:
            raise BundleError("its directory is damaged")
        _, flags, method, crc, n_name, n_extra = LOCAL_HEADER.unpack(header)
        same_name = read(begin, begin + n_name) == name.encode("utf-8", "replace")
        begin += n_name + n_extra
        end = begin + entry.file_size
        plain = entry.flag_bits == entry.compress_type == flags == method == 0  # stored
        plain &= entry.file_size == entry.compress_size and crc == entry.CRC and same_name
        if not plain or begin % ALIGNMENT or end > stop:
            raise BundleError(f"{name[:80]!r} is not stored as it must be")
        size += begin - place
        if size > LARGEST_FRAME:
            break
        frame.update(read(place, begin))
        found[name], place = slice(begin, end), end
    if size + stop - place > LARGEST_FRAME:
        raise BundleError(f"there are more than {LARGEST_FRAME:,} bytes around its contents")
    frame.update(read(place, stop))
    return found, frame.digest()


class _Directory:
    """What `zipfile` reads to find the directory of an archive: a file that ends at `stop`."""

    def __init__(self, read: Read, stop: int) -> None:
        self._read, self._stop, self._place = read, stop, 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = 0) -> int:
        self._place = offset + (0, self._place, self._stop)[whence]
        if self._place < 0:
            raise OSError("nothing lies before the file")
        return self._place

    def read(self, size: int = -1) -> bytes:
        stop = self._stop if size < 0 else min(self._stop, self._place + size)
        if stop - self._place > LARGEST_FRAME:
            raise OSError(f"it is larger than {LARGEST_FRAME:,} bytes")
        content = self._read(self._place, stop)
        self._place += len(content)
        return content


# Marks


class Head(NamedTuple):
    """The number of segments up to a place, that place, and the digest of the last of them."""

    number: int
    end: int
    digest: bytes


class Mark(NamedTuple):
    """What was committed by the writer whose turn it was.

    zip_end: where the ZIP ends. frame, manifest: their sha256.
    """

    turn: int
    zip_end: int
    frame: bytes
    manifest: bytes
    head: Head

    @property
    def start(self) -> Head:
        """The head before the first segment."""
        return Head(0, self.zip_end, self.manifest)


class Marks(NamedTuple):
    """What the marks say: the last one, and whether the other one can be read too."""

    last: Mark
    both: bool


def encode_mark(mark: Mark) -> bytes:
    """The sector of a mark."""
    body = MARK.pack(MAGIC, *mark[:4], *mark.head)
    return (body + hashlib.sha256(body).digest()).ljust(SECTOR, b"\0")


def read_marks(read: Read) -> Marks:
    """The marks of a file.

    Raises:
        BundleError: They cannot be read, or do not belong together.
    """
    sectors = [read(place, place + SECTOR) for place in (0, SECTOR)]
    known = sorted(m for m in map(_decode_mark, sectors, (0, 1)) if m is not None)
    if not known:
        # The format comes before the checksum: another format may compute it differently.
        formats = [int(found[1]) for found in map(ANY_MAGIC.match, sectors) if found]
        if other := [each for each in formats if each != FORMAT]:
            raise BundleError(
                f"it has format {other[0]}; this version of iknow reads format {FORMAT}: load it "
                "with the version that wrote it, or fit and save again with this one"
            )
        raise BundleError("its marks are damaged" if formats else "iknow did not write it")
    first, last = known[0], known[-1]
    in_turn = last.turn == first.turn + (last.turn > 0)
    if len(known) == 2 and (first[1:4] != last[1:4] or not in_turn):
        raise BundleError("its marks contradict each other")
    return Marks(last, len(known) == 2)


def _decode_mark(sector: bytes, place: int) -> Mark | None:
    """The mark in a sector; None if it was not written completely, or damaged."""
    if len(sector) != SECTOR:
        return None
    _, turn, zip_end, frame, manifest, *head = MARK.unpack(sector[: MARK.size])
    mark = Mark(turn, zip_end, frame, manifest, Head(*head))
    in_place = not turn or turn % 2 == place
    return mark if in_place and encode_mark(mark) == sector else None


# The whole file


@dataclass(frozen=True, eq=False)
class Opened:
    """The open file of a bundle.

    manifest: its text, compared with its checksum. places: where its contents lie. heads: before
    the first segment, and after each. torn: bytes behind the last that an interrupted writer left.
    """

    file: SealedFile
    manifest: bytes
    places: dict[str, slice]
    marks: Marks
    heads: tuple[Head, ...]
    torn: int

    @property
    def sha256(self) -> str:
        """The digest that seals the whole file."""
        return self.heads[-1].digest.hex()

    def payloads(self) -> Iterator[bytes]:
        """The payload of each segment, in order."""
        for before, after in pairwise(self.heads):
            yield self.file.read(before.end + HEADER.size, after.end)

    def as_of(self, sha256: str) -> Opened:
        """The same file as it was when its sha256 was this one: later changes do not count.

        Raises:
            BundleError: It never was, or not since it was compacted.
        """
        for head in self.heads:
            if head.digest.hex() == sha256:
                return replace(self, heads=self.heads[: head.number + 1])
        raise BundleError(f"it was replaced, and does not hold the state {sha256[:12]} any more")

    def find_turn(self) -> int:
        """How often changes were committed to the file by now."""
        try:
            return read_marks(self.file.read).last.turn
        except BundleError:  # it is being written, or damaged
            return self.marks.last.turn


def write_file(file: IO[bytes], contents: Contents) -> None:
    """Write the file of a bundle without changes; the first content is the manifest.

    It is read back before it counts: the marks come last.
    """
    file.write(bytes(START))
    write_zip(file, contents)
    end = file.tell()

    def read(start: int, stop: int) -> bytes:
        file.seek(start)
        return file.read(stop - start)

    places, frame = read_zip(read, START, end)
    place = places[contents[0][0]]
    digest = hashlib.sha256(read(place.start, place.stop)).digest()
    mark = encode_mark(Mark(0, end, frame, digest, Head(0, end, digest)))
    file.seek(0)
    file.write(mark + mark)


def open_file(source: Path, copied_up_to: int | None = None) -> Opened:
    """Open the file of a bundle, its manifest compared with its checksum.

    copied_up_to: see `SealedFile`.

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


def _look(source: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(source)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _open(source: Path, copied_up_to: int | None) -> Opened:
    file = SealedFile(source, copied_up_to)
    with prefixed(f"{source} is not a bundle, or damaged: "):
        marks = read_marks(file.read)
    with prefixed(f"{source} is damaged: "):
        mark, size = marks.last, file.opened.size
        if not START <= mark.zip_end <= size:
            raise BundleError("it is cut short")
        places, frame = read_zip(file.read, START, mark.zip_end)
        if frame != mark.frame:
            raise BundleError("what lies around its contents does not match its checksum")
        if MANIFEST not in places:
            raise BundleError(f"{MANIFEST} is missing")
        place = places[MANIFEST]
        text = file.read(place.start, min(place.stop, place.start + LARGEST + 1))
        if len(text) <= LARGEST and hashlib.sha256(text).digest() != mark.manifest:
            raise BundleError(f"{MANIFEST} does not match its checksum")
        return Opened(file, text, places, marks, *_follow(file.read, size, marks))


def _follow(read: Read, size: int, marks: Marks) -> tuple[tuple[Head, ...], int]:
    """The heads of the committed segments of a file of this size, and how many bytes are torn.

    Raises:
        BundleError: Something that was committed is missing or wrong.
    """
    committed, heads = marks.last.head, [marks.last.start]
    while len(heads) <= committed.number or not marks.both:
        before = heads[-1]
        header = read(before.end, min(size, before.end + HEADER.size))
        length, digest = HEADER.unpack(header.ljust(HEADER.size))
        start, wrong = before.end + HEADER.size, "is cut short or missing"
        if start + length <= size:
            after = _next_head(before, read(start, start + length))
            wrong = "" if after.digest == digest else "does not match its checksum"
        if wrong:
            if len(heads) <= committed.number or before.end < size:
                raise BundleError(f"its change {len(heads)} {wrong}")
            break
        heads.append(after)
    if heads[committed.number] != committed:
        raise BundleError("its changes do not match its marks")
    return tuple(heads), size - heads[-1].end


def _next_head(before: Head, payload: bytes) -> Head:
    """The head after a segment with this payload."""
    digest = hashlib.sha256(before.digest + len(payload).to_bytes(8, "little"))
    digest.update(payload)
    return Head(before.number + 1, before.end + HEADER.size + len(payload), digest.digest())


# Appending


def append(
    descriptor: int,
    opened: Opened,
    payloads: Iterable[bytes],
    announce: Callable[[str], None] | None = None,
) -> str:
    """Append payloads as segments, commit them together, and return the new sha256.

    The lock is held. When this returns, they survive a power failure. If it raises, none of them
    happened: what was written is taken back, the mark first, so that at no moment does a mark
    promise what is not there. announce: is called with the new sha256 before anything is appended.
    """
    last, before = opened.marks.last, opened.heads[-1]
    turn, head, parts = last.turn, before, []
    for payload in payloads:
        head = _next_head(head, payload)
        parts += [HEADER.pack(len(payload), head.digest), payload]
    if announce is not None:
        announce(head.digest.hex())
    if not opened.marks.both:  # else an interruption while a mark cannot be read would be damage
        turn += 1
        _write(descriptor, turn % 2 * SECTOR, encode_mark(last._replace(turn=turn, head=before)))
        os.fsync(descriptor)
    sector = (turn + 1) % 2 * SECTOR
    other = opened.file.read(sector, sector + SECTOR)
    try:
        if opened.torn:
            os.ftruncate(descriptor, before.end)
        place = before.end
        for part in parts:
            _write(descriptor, place, part)
            place += len(part)
        os.fsync(descriptor)
        _write(descriptor, sector, encode_mark(last._replace(turn=turn + 1, head=head)))
        os.fsync(descriptor)
    except BaseException:
        _take_back(descriptor, sector, other, before.end)
        raise
    return head.digest.hex()


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
