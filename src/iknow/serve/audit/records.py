r"""Records: what the audit trail remembers, one kind for each thing that can happen, in one chain.

An `Answer` is one row of one request, as it was answered. A `Label` is the truth about such a row,
which may come days later. An `Event` is anything else that explains the answers: a start, another
bundle, an alarm, records that were removed because of their age.

    hash_0 = 32 random bytes, the journal's genesis
    hash_i = sha256(hash_{i-1} || canonical bytes of record i)
    with a key: hash_i = HMAC(key, sha256(hash_{i-1} || canonical bytes of record i))

The canonical bytes are JSON in ASCII with sorted keys and without spaces or line breaks, then, if
the input is kept, a line break and the input. JSON states how long the input is, and a hash always
has 32 bytes, so no two records, and no two places to divide them, have the same bytes.

What this shows: a changed, removed, inserted or moved record breaks the chain at its place, for
anybody who cannot compute the chain anew from there. Without a key, everybody with write access
can. With one, nobody can who lacks it. The end of a chain is shorter but unbroken: the journal also
keeps a sealed note of its head, so records that are simply deleted are missed, but whoever puts
back an older copy of the whole journal is seen only by a head that was noted elsewhere (`iknow
audit head`, and `iknow audit verify --head`).

Times are texts of one width, `2026-01-31T09:30:00.000000Z`, so that their order as text is their
order in time.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from json.encoder import encode_basestring_ascii as _quote
from math import isfinite
from typing import Any, NamedTuple, Protocol

import msgspec

from iknow.core.text import shown
from iknow.errors import AuditError
from iknow.serve.audit.inputs import as_plain

TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
LARGEST = 2**63 - 1  # the largest row number, which a database must hold
HASH_SIZE = 32
OVERHEAD = 200
KEY_CHECK = b"iknow audit key check"

Columns = tuple[Sequence[str], Sequence[str], Sequence[str], Sequence[float | None]]
"""Beliefs as JSON, assertions, reasons and levels of some rows: `Answers.records()`."""


def now() -> str:
    """The time, as records hold it."""
    return as_time(datetime.now(UTC))


def as_time(moment: datetime) -> str:
    """A moment as records hold it; one without a time zone is in UTC.

    Examples:
        >>> as_time(datetime(2026, 1, 31, 9, 30))
        '2026-01-31T09:30:00.000000Z'
    """
    known = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return known.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


class Answer(msgspec.Struct, frozen=True, tag="answer", tag_field="kind"):
    """What was said about one row of one request.

    Attributes:
        time: When, in UTC: `2026-01-31T09:30:00.000000Z`.
        request: The request's identifier.
        row: The row's position in the request.
        caller: Who asked.
        model: The name of the model.
        version: Its version.
        bundle: The sha256 of the bundle, in hexadecimal.
        input_hash: The sha256 of the row, in hexadecimal, by `hash_input`.
        belief: The label as JSON; "null" if there is none.
        assertion: IK, IMK or IDK.
        reason: The reason's name.
        level: From 0 to 1, if there are levels.
        exemplars: By layer, the nearest training row of the believed class.
        input: The row itself, by `encode_input`, if inputs are kept.

    Examples:
        >>> answer = Answer(now(), "r1", 0, "me", "digits", "1", "ab", "cd", "7", "IK", "KNOWN", .5)
        >>> decode(encode(answer).body) == answer
        True
    """

    time: str
    request: str
    row: int
    caller: str
    model: str
    version: str
    bundle: str
    input_hash: str
    belief: str
    assertion: str
    reason: str
    level: float | None
    exemplars: dict[str, int] = {}
    input: bytes | None = None


class Label(msgspec.Struct, frozen=True, tag="label", tag_field="kind"):
    """The truth about one row of an earlier request.

    Attributes:
        time: When it came, in UTC.
        request: The identifier of the request that was answered.
        row: The row's position in that request.
        caller: Who said so.
        label: The label as JSON.
    """

    time: str
    request: str
    row: int
    caller: str
    label: str


class Event(msgspec.Struct, frozen=True, tag="event", tag_field="kind"):
    """Anything else that explains the answers.

    Attributes:
        time: When it happened, in UTC.
        what: Its kind, such as "start", "reload", "alarm" or "pruned".
        model: The name of the model that it is about; "" for all.
        details: What else there is to say, as values for JSON.
    """

    time: str
    what: str
    model: str = ""
    details: dict[str, Any] = {}


Record = Answer | Label | Event


class Subject(Protocol):
    """The model that a record is about. sha256: of its bundle."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def sha256(self) -> str: ...


def make_event(what: str, subject: Subject, **details: Any) -> Event:
    """An event about a model as it is now."""
    about = {"version": subject.version, "bundle": subject.sha256}
    return Event(now(), what, subject.name, {**about, **details})


class Row(NamedTuple):
    """A record as a table holds it: its place in the chain, and the columns to search by.

    seq, hash: its place, which `encode` does not know yet. place: the row of the request. body: its
    canonical JSON.
    """

    seq: int
    hash: bytes
    kind: str
    time: str
    request: str | None
    place: int | None
    body: bytes
    input: bytes | None

    @property
    def size(self) -> int:
        """Bytes that it takes, with its hash, its numbers, and its places in the indexes."""
        return len(self.body) + len(self.input or b"") + OVERHEAD


def encode(record: Record) -> Row:
    """A record as it is stored, without its place in the chain.

    Raises:
        AuditError: A field is not what it must be, or cannot be expressed in JSON.
    """
    if not isinstance(record, (Answer, Label, Event)):
        raise AuditError(f"expected an Answer, a Label or an Event to record; got {shown(record)}")
    if not isinstance(record.time, str) or not TIME.fullmatch(record.time):
        raise AuditError(
            "the time of a record must be like 2026-01-31T09:30:00.000000Z; got "
            f"{shown(record.time)}"
        )
    kind, request, place, content = type(record).__name__.lower(), None, None, None
    try:
        if not isinstance(record, Event):
            if type(record.row) is not int or not 0 <= record.row <= LARGEST:
                raise ValueError(f"its row must be an int from 0 to 2^63 - 1, not {record.row!r}")
            request, place = to_key(record.request), record.row
        if isinstance(record, Answer):
            body, content = _answer_to_json(record), record.input
        else:
            body = _to_json(record)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise AuditError(
            f"the {type(record).__name__} cannot be recorded: expected texts, finite numbers and "
            f"mappings of them, as its fields say: {error}"
        ) from error
    return Row(0, b"", kind, record.time, request, place, body, content)


def decode(body: bytes, content: bytes | None = None) -> Record:
    """The record of canonical JSON and its input.

    Raises:
        AuditError: These are no such bytes.
    """
    try:
        fields = json.loads(body)
        if fields["kind"] == "answer":
            del fields["input_size"]
            fields["input"] = content
        record: Record = msgspec.convert(fields, Record)
    except (ValueError, KeyError, TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise AuditError(f"a record cannot be read: {type(error).__name__}: {error}") from error
    return record


def to_key(request: str) -> str:
    """A request's identifier as ASCII without control characters, which every database takes."""
    return _quote(request)[1:-1]


class Chain:
    """Computes hashes. key: at least 16 secret bytes, or None."""

    def __init__(self, key: bytes | None = None) -> None:
        self.is_keyed = key is not None
        self._mac = None if key is None else hmac.new(key, digestmod=sha256)

    def next(self, last: bytes, body: bytes, content: bytes | None) -> bytes:
        """The hash of a record whose predecessor has the hash `last`."""
        digest = sha256(last)
        digest.update(body)
        if content is not None:
            digest.update(b"\n")
            digest.update(content)
        return self._sealed(digest.digest())

    def holds(self, last: bytes, row: Row) -> bool:
        """Whether a row has the hash that follows from the one before it."""
        return self.next(last, row.body, row.input) == row.hash

    def seal(self, seq: int, last: bytes) -> bytes:
        """What vouches for the head: that there are records up to number `seq`."""
        return self._sealed(sha256(b"head" + seq.to_bytes(8, "big") + last).digest())

    def check_of(self, genesis: bytes) -> bytes:
        """What tells a wrong key from a broken chain; empty without a key."""
        return self._sealed(sha256(KEY_CHECK + genesis).digest()) if self.is_keyed else b""

    def _sealed(self, digest: bytes) -> bytes:
        if self._mac is None:
            return digest
        mac = self._mac.copy()
        mac.update(digest)
        return mac.digest()


def _answer_to_json(record: Answer) -> bytes:
    """An answer is written out by hand, in the order of its keys: most records are answers."""
    content, level = record.input, record.level
    if not (content is None or isinstance(content, bytes)):
        raise TypeError(f"the input must be bytes or None, not {shown(content)}")
    if level is not None and not isfinite(level):
        raise ValueError(f"the level must be finite or None, not {level}")
    exemplars = sorted(record.exemplars.items())
    nearest = ",".join([f"{_quote(layer)}:{int(row)}" for layer, row in exemplars])
    return (
        f'{{"assertion":{_quote(record.assertion)},"belief":{_quote(record.belief)},'
        f'"bundle":{_quote(record.bundle)},"caller":{_quote(record.caller)},'
        f'"exemplars":{{{nearest}}},"input_hash":{_quote(record.input_hash)},'
        f'"input_size":{"null" if content is None else len(content)},"kind":"answer",'
        f'"level":{"null" if level is None else float.__repr__(float(level))},'
        f'"model":{_quote(record.model)},"reason":{_quote(record.reason)},'
        f'"request":{_quote(record.request)},"row":{record.row},'
        f'"time":"{record.time}","version":{_quote(record.version)}}}'
    ).encode("ascii")


_ENCODER = json.JSONEncoder(
    ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":")
)


def _to_json(record: Label | Event) -> bytes:
    fields = msgspec.to_builtins(record, str_keys=True, enc_hook=as_plain)
    msgspec.convert(fields, type(record))  # its fields have their types
    return _ENCODER.encode(fields).encode("ascii")
