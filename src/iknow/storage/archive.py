"""The file of a bundle: two marks, an ordinary ZIP, and the changes that were appended to it.

    mark | mark | ZIP | change 1 | change 2 | ...

**The ZIP** never changes. `zipfile` writes it, and any tool can open it: contents are stored, not
compressed, each at a multiple of 64 bytes so that an array can be used in place. What is no content
(headers, padding, directory) is its *frame*. The marks hold the sha256 of the frame and of the
manifest, the manifest those of all other contents: so every byte of the file is under a checksum.
`zipfile` reads the directory too, and believes it, so we compare it with where things can lie.

**Changes** are segments behind it: a header and a payload, itself such a ZIP. A header holds the
digest of what came before: of the manifest, or of the segment before it. So the last digest seals
the whole file, and is the bundle's sha256.

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
LOCAL_HEADER = struct.Struct("<26x2H")  # of which only the lengths of name and extra fields matter

SECTOR = 512
START = 2 * SECTOR
MARK = struct.Struct("<24s2Q32s32s2Q32s")
MARKED = MARK.size + 32
MAGIC = b"iknow bundle %d\n" % FORMAT
ANY_MAGIC = re.compile(rb"iknow bundle ([0-9]{1,9})\n")
HEADER = struct.Struct("<8s2Q32s32s")
HEADER_SIZE = HEADER.size + 32
HEADER_MAGIC = b"IKNOW\x00S\x02"
LARGEST_PAYLOAD = 1 << 36
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
        name = entry.orig_filename
        if name in found:
            raise BundleError(f"two of its contents have the same name, {name[:80]!r}")
        header = read(entry.header_offset, entry.header_offset + 30)
        if entry.header_offset < place or len(header) < 30 or len(name) > LONGEST_NAME:
            raise BundleError("its directory is damaged")
        begin = entry.header_offset + 30 + sum(LOCAL_HEADER.unpack(header))
        end = begin + entry.file_size
        is_plain = entry.compress_type == zipfile.ZIP_STORED and not entry.flag_bits
        is_plain &= entry.compress_size == entry.file_size
        if not is_plain or begin % ALIGNMENT or end > stop:
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


class Base(NamedTuple):
    """The ZIP: where it ends, and the sha256 of its frame and of its manifest."""

    end: int
    frame: bytes
    manifest: bytes


class Head(NamedTuple):
    """The number of segments up to a place, that place, and the digest of the last of them."""

    number: int
    end: int
    digest: bytes


class Mark(NamedTuple):
    """What was committed by the writer whose turn it was."""

    turn: int
    base: Base
    head: Head


class Marks(NamedTuple):
    """What the marks say: the last one, and whether the other one can be read too."""

    last: Mark
    both: bool


def encode_mark(mark: Mark) -> bytes:
    """The sector of a mark."""
    body = MARK.pack(MAGIC, mark.turn, *mark.base, *mark.head)
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
    if len(known) == 2 and (first.base != last.base or not in_turn):
        raise BundleError("its marks contradict each other")
    return Marks(last, len(known) == 2)


def _decode_mark(sector: bytes, place: int) -> Mark | None:
    """The mark in a sector; None if it was not written completely, or damaged."""
    body, seal, rest = sector[: MARK.size], sector[MARK.size : MARKED], sector[MARKED:]
    if len(sector) != SECTOR or seal != hashlib.sha256(body).digest() or any(rest):
        return None
    magic, turn, *values = MARK.unpack(body)
    if magic.rstrip(b"\0") != MAGIC or (turn and turn % 2 != place):
        return None
    return Mark(turn, Base(*values[:3]), Head(*values[3:]))


# The whole file


class Segment(NamedTuple):
    """A committed segment: its number from 1, its digest, and where its payload lies."""

    number: int
    digest: bytes
    payload: slice


@dataclass(frozen=True, eq=False)
class Opened:
    """The open file of a bundle.

    manifest: its text, compared with its checksum. places: where its contents lie. torn: bytes
    behind the last segment that an interrupted writer left.
    """

    file: SealedFile
    manifest: bytes
    places: dict[str, slice]
    marks: Marks
    segments: tuple[Segment, ...]
    torn: int

    def head(self) -> Head:
        """The head after the last segment; its digest seals the whole file."""
        if not self.segments:
            base = self.marks.last.base
            return Head(0, base.end, base.manifest)
        last = self.segments[-1]
        return Head(last.number, last.payload.stop, last.digest)

    @property
    def sha256(self) -> str:
        return self.head().digest.hex()

    def payloads(self) -> Iterator[tuple[int, bytes]]:
        """The number and the payload of each segment, in order."""
        for number, _, place in self.segments:
            yield number, self.file.read(place.start, place.stop)

    def as_of(self, sha256: str) -> Opened:
        """The same file as it was when its sha256 was this one: later changes do not count.

        Raises:
            BundleError: It never was, or not since it was compacted.
        """
        for count in range(len(self.segments) + 1):
            then = replace(self, segments=self.segments[:count])
            if then.sha256 == sha256:
                return then
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
    mark = encode_mark(Mark(0, Base(end, frame, digest), Head(0, end, digest)))
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
        base, size = marks.last.base, file.opened.size
        if not START <= base.end <= size:
            raise BundleError("it is cut short")
        places, frame = read_zip(file.read, START, base.end)
        if frame != base.frame:
            raise BundleError("what lies around its contents does not match its checksum")
        if MANIFEST not in places:
            raise BundleError(f"{MANIFEST} is missing")
        place = places[MANIFEST]
        text = file.read(place.start, min(place.stop, place.start + LARGEST + 1))
        if len(text) <= LARGEST and hashlib.sha256(text).digest() != base.manifest:
            raise BundleError(f"{MANIFEST} does not match its checksum")
        return Opened(file, text, places, marks, *_follow(file.read, size, marks))


def _follow(read: Read, size: int, marks: Marks) -> tuple[tuple[Segment, ...], int]:
    """The committed segments of a file of this size, and how many bytes are torn.

    Raises:
        BundleError: Something that was committed is missing or wrong.
    """
    base, head = marks.last.base, marks.last.head
    segments: list[Segment] = []
    heads = [Head(0, base.end, base.manifest)]
    while len(segments) < head.number or not marks.both:
        found = _read_segment(read, size, heads[-1])
        if isinstance(found, str):
            if len(segments) < head.number or heads[-1].end < size:
                raise BundleError(f"its change {len(segments) + 1} {found}")
            break
        segments.append(found)
        heads.append(Head(found.number, found.payload.stop, found.digest))
    if heads[head.number] != head:
        raise BundleError("its changes do not match its marks")
    return tuple(segments), size - heads[-1].end


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
    if magic != HEADER_MAGIC or number != before.number + 1 or link != before.digest:
        return "does not continue what comes before"
    if length > LARGEST_PAYLOAD or start + length > size:
        return "is cut short"
    if hashlib.sha256(read(start, start + length)).digest() != digest:
        return "does not match its checksum"
    return Segment(number, own, slice(start, start + length))


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
    before, turn, base = opened.head(), opened.marks.last.turn, opened.marks.last.base
    head, parts = before, []
    for payload in payloads:
        digest = hashlib.sha256(payload).digest()
        body = HEADER.pack(HEADER_MAGIC, head.number + 1, len(payload), head.digest, digest)
        own = hashlib.sha256(body).digest()
        parts += [body + own, payload]
        head = Head(head.number + 1, head.end + HEADER_SIZE + len(payload), own)
    if announce is not None:
        announce(head.digest.hex())
    if not opened.marks.both:  # else an interruption while a mark cannot be read would be damage
        turn += 1
        _write(descriptor, turn % 2 * SECTOR, encode_mark(Mark(turn, base, before)))
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
        _write(descriptor, sector, encode_mark(Mark(turn + 1, base, head)))
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
