"""The chain: canonical bytes, and hashes as its definition has them."""

import hashlib
import hmac
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from iknow.errors import AuditError
from iknow.serve.audit import Answer, Event, Label
from iknow.serve.audit.journal import read_key
from iknow.serve.audit.records import Chain, decode, encode
from tests.serve.audit.records import make_answer, make_records

TEXT = st.text(st.characters(codec=None), max_size=8)  # any, halves of surrogate pairs too
TIME = st.datetimes().map(lambda t: t.isoformat(timespec="microseconds").zfill(26) + "Z")
ROW = st.integers(0, 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner),
    max_leaves=3,
)  # fmt: skip
RECORDS = (
    st.builds(
        Answer, TIME, TEXT, ROW, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT,
        st.none() | st.floats(0, 1), st.dictionaries(TEXT, ROW), st.none() | st.binary(),
    )
    | st.builds(Label, TIME, TEXT, ROW, TEXT, TEXT)
    | st.builds(Event, TIME, TEXT, TEXT, st.dictionaries(TEXT, JSON))
)  # fmt: skip


@settings(max_examples=40)
@given(RECORDS)
def test_a_record_comes_back_from_its_canonical_bytes(record):
    entry = encode(record)
    assert decode(entry.body, entry.input) == record
    kind = type(record).__name__.lower()
    named = (None, None) if kind == "event" else (json.dumps(record.request)[1:-1], record.row)
    assert entry[2:6] == (kind, record.time, *named)
    fields = json.loads(entry.body)
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    assert entry.body == canonical.encode()
    assert b"\n" not in entry.body


@settings(max_examples=40)
@given(RECORDS, RECORDS)
def test_different_records_have_different_bytes(one, other):
    first, second = encode(one), encode(other)
    same = (first.body, first.input) == (second.body, second.input)
    assert same == (one == other)


def test_hashes_are_as_defined():
    last, body, content = b"\1" * 32, b"{}", b"xyz"
    digest = hashlib.sha256(last + body + b"\n" + content).digest()
    assert Chain().next(last, body, content) == digest
    assert Chain().next(last, body, None) == hashlib.sha256(last + body).digest()
    key = b"k" * 20
    assert Chain(key).next(last, body, content) == hmac.digest(key, digest, "sha256")


def test_every_field_counts():
    answer = make_answer(1, keep=True)
    changed = [
        replace(answer, **{name: value})
        for name, value in {
            "time": "2027-01-01T00:00:00.000000Z", "request": "x", "row": 2, "caller": "x",
            "model": "x", "version": "x", "bundle": "x", "input_hash": "x", "belief": "x",
            "assertion": "x", "reason": "x", "level": None, "exemplars": {}, "input": None,
        }.items()
    ]  # fmt: skip
    hashes = {Chain().next(b"", e.body, e.input) for e in map(encode, [answer, *changed])}
    assert len(hashes) == len(changed) + 1


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b"null", b'{"kind":"x"}', b'{"kind":[]}', b'{"kind":"event"}', b"\xff"],
)
def test_bytes_that_are_no_record_are_told(body):
    with pytest.raises(AuditError, match="a record cannot be read"):
        decode(body)


@pytest.mark.parametrize("time", ["", "2026-01-01", "2026-01-01T00:00:00Z", None, 5])
def test_a_time_has_one_form(time):
    with pytest.raises(AuditError, match="the time of a record must be like"):
        encode(make_answer(time=time))
    with pytest.raises(AuditError, match="the time of a record must be like"):
        encode(Event(time, "x"))


@pytest.mark.parametrize("row", [-1, 2**63, 1.0, True, "1"])
def test_a_row_is_a_number_that_a_database_holds(row):
    with pytest.raises(AuditError, match="its row must be an int"):
        encode(Label(make_records(0)[0].time, "r", row, "me", "1"))


def test_keys_come_from_the_environment_or_a_file(tmp_path):
    assert read_key({}) is None
    assert read_key({"IKNOW_AUDIT_KEY": ""}) is None
    assert read_key({"IKNOW_AUDIT_KEY": " " + "k" * 16}) == b"k" * 16
    file = tmp_path / "key"
    file.write_text("k" * 16 + "\n")
    assert read_key({"IKNOW_AUDIT_KEY_FILE": str(file)}) == b"k" * 16


def test_bad_keys_are_refused_and_not_quoted(tmp_path):
    for environment in (
        {"IKNOW_AUDIT_KEY": "short-secret"},
        {"IKNOW_AUDIT_KEY": "k" * 20, "IKNOW_AUDIT_KEY_FILE": "x"},
        {"IKNOW_AUDIT_KEY_FILE": str(tmp_path / "absent")},
        {"IKNOW_AUDIT_KEY_FILE": str(tmp_path)},
        {"IKNOW_AUDIT_KEY_FILE": "a\0b"},
    ):
        with pytest.raises(AuditError) as error:
            read_key(environment)
        assert "short-secret" not in str(error.value)
