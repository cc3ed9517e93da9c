r"""The chain: each record's hash depends on all records before it.

    hash_0 = 32 random bytes, the journal's genesis
    hash_i = sha256(hash_{i-1} || canonical bytes of record i)
    with a key: hash_i = HMAC(key, sha256(hash_{i-1} || canonical bytes of record i))

The canonical bytes are JSON in ASCII without spaces or line breaks, then, if the input is kept, a
line break and the input. JSON states how long the input is, and a hash always has 32 bytes, so no
two records, and no two places to divide them, have the same bytes.

What this shows: a changed, removed, inserted or moved record breaks the chain at its place, for
anybody who cannot compute the chain anew from there. Without a key, everybody with write access
can. With one, nobody can who lacks it. The end of a chain is shorter but unbroken: the journal also
keeps a sealed note of its head, so records that are simply deleted are missed, but whoever puts
back an older copy of the whole journal is seen only by a head that was noted elsewhere (`iknow
audit head`, and `iknow audit verify --head`).
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from json.encoder import encode_basestring_ascii as _quote
from math import isfinite
from typing import Any, NamedTuple

from iknow.core.text import shown
from iknow.errors import AuditError
from iknow.serve.audit.record import Answer, Event, Label, Record

SIZE = 32
"""Bytes of a hash."""
KINDS: dict[str, type[Record]] = {"answer": Answer, "label": Label, "event": Event}
CHECK = b"iknow audit key check"


class Entry(NamedTuple):
    """A record as it is stored: the columns to search by, its canonical JSON, and its input."""

    kind: str
    time: str
    request: str | None
    row: int | None
    body: bytes
    input: bytes | None


def encode(record: Record) -> Entry:
    """A record as it is stored.

    Raises:
        AuditError: It holds something that JSON cannot express.
    """
    try:
        if isinstance(record, Answer):
            return _encode_answer(record)
        if isinstance(record, Label):
            texts = _texts(record, ("caller", "label", "request", "time"))
            body = _to_json({"kind": "label", "row": record.row, **texts})
            return Entry("label", record.time, to_key(record.request), record.row, body, None)
        if isinstance(record, Event):
            texts = _texts(record, ("model", "time", "what"))
            body = _to_json({"kind": "event", "details": record.details, **texts})
            return Entry("event", record.time, None, None, body, None)
    except (TypeError, ValueError, RecursionError) as error:
        raise AuditError(
            f"the {type(record).__name__} cannot be recorded: expected texts, finite numbers and "
            f"mappings of them, as its fields say: {error}"
        ) from error
    raise AuditError(f"expected an Answer, a Label or an Event to record; got {shown(record)}")


def decode(body: bytes, content: bytes | None = None) -> Record:
    """The record of canonical JSON and its input.

    Raises:
        AuditError: These are no such bytes.
    """
    try:
        fields = json.loads(body)
        kind = KINDS[fields.pop("kind")]
        if kind is Answer:
            del fields["input_size"]
            return Answer(**fields, input=content)
        return kind(**fields)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AuditError(f"a record cannot be read: {type(error).__name__}: {error}") from error


def columns_of(record: Record) -> tuple[str, str, str | None, int | None]:
    """The kind, the time, the request and the row of a record, as they are stored."""
    if isinstance(record, Event):
        return "event", record.time, None, None
    kind = "answer" if isinstance(record, Answer) else "label"
    return kind, record.time, to_key(record.request), record.row


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

    def seal(self, seq: int, last: bytes) -> bytes:
        """What vouches for the head: that there are records up to number `seq`."""
        return self._sealed(sha256(b"head" + seq.to_bytes(8, "big") + last).digest())

    def check_of(self, genesis: bytes) -> bytes:
        """What tells a wrong key from a broken chain; empty without a key."""
        return self._sealed(sha256(CHECK + genesis).digest()) if self.is_keyed else b""

    def _sealed(self, digest: bytes) -> bytes:
        if self._mac is None:
            return digest
        mac = self._mac.copy()
        mac.update(digest)
        return mac.digest()


def _encode_answer(record: Answer) -> Entry:
    """An answer is written out by hand, in the order of its keys: most records are answers."""
    content, level = record.input, record.level
    if not (content is None or isinstance(content, bytes)):
        raise TypeError(f"the input must be bytes or None, not {shown(content)}")
    request = _quote(record.request)
    exemplars = record.exemplars.items()
    nearest = ",".join([f"{_quote(layer)}:{int(row)}" for layer, row in sorted(exemplars)])
    body = (
        f'{{"assertion":{_quote(record.assertion)},"belief":{_quote(record.belief)},'
        f'"bundle":{_quote(record.bundle)},"caller":{_quote(record.caller)},'
        f'"exemplars":{{{nearest}}},"input_hash":{_quote(record.input_hash)},'
        f'"input_size":{"null" if content is None else len(content)},"kind":"answer",'
        f'"level":{"null" if level is None else _number(level)},"model":{_quote(record.model)},'
        f'"reason":{_quote(record.reason)},"request":{request},"row":{record.row},'
        f'"time":"{record.time}","version":{_quote(record.version)}}}'
    )
    return Entry("answer", record.time, request[1:-1], record.row, body.encode("ascii"), content)


def _number(level: Any) -> str:
    value = float(level)
    if not isfinite(value):
        raise ValueError(f"the level must be finite or None, not {value}")
    return float.__repr__(value)


def _texts(record: Record, names: Sequence[str]) -> dict[str, str]:
    found = {name: getattr(record, name) for name in names}
    for name, value in found.items():
        if not isinstance(value, str):
            raise TypeError(f"its {name} is {shown(value)}, no text")
    return found


def _as_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):  # numpy's numbers and arrays
        return value.tolist()
    raise TypeError(f"{shown(value)} is no value for JSON")


_ENCODER = json.JSONEncoder(
    ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":"), default=_as_plain
)


def _to_json(fields: Mapping[str, Any]) -> bytes:
    return _ENCODER.encode(fields).encode("ascii")
