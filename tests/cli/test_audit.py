"""`iknow audit`: verify, export and head, on journals of a service's records."""

import base64
import csv
import json
import sqlite3

import numpy as np
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from iknow.serve.audit import Answer, decode_input, encode_inputs, hash_input, now, open_journal
from iknow.storage.info import describe_bundle
from tests.serve.audit.records import make_answer, make_records

NAMES = ("sepal length", "sepal width", "petal length", "petal width")


@pytest.fixture
def answers(irises, iknow):
    """What a service would have recorded about the irises, with the answers of `iknow assess`."""
    iknow("assess", "b.iknow", "test.npy", "--model", "model.joblib", "-o", "said.jsonl")
    said = [json.loads(line) for line in (irises / "said.jsonl").read_text().splitlines()]
    rows, bundle = np.load("test.npy"), describe_bundle("b.iknow").sha256
    return [
        Answer(
            now(), "r", i, "me", "iris", "1", bundle, hash_input(row), json.dumps(told["belief"]),
            told["assertion"], told["reason"], told["level"], input=content,
        )
        for i, (told, row, content) in enumerate(zip(said, rows, encode_inputs(rows), strict=True))
    ]  # fmt: skip


def write(records, where="audit.db"):
    with open_journal(where) as journal:
        journal.append(records)
        return journal.head()


def test_answers_follow_from_their_inputs(iknow, answers):
    write(answers)
    said = iknow("audit", "verify", "audit.db", "--bundle", "b.iknow", "--model", "model.joblib")
    assert f"{len(answers)} of {len(answers)} answers were derived again" in said
    assert "The chain holds" in said


def test_answers_that_do_not_follow_are_named(iknow, answers):
    """The chain is sound: whoever recorded it lied, or the bundle answers differently now."""
    changes = [
        ({"belief": '"tulip"'}, "its belief was recorded as '\"tulip\"'; its input gives"),
        ({"assertion": "no"}, "its assertion was recorded as 'no'; its input gives"),
        ({"reason": "INVALID"}, "its reason was recorded as 'INVALID'; its input gives"),
        ({"level": 0.12345}, "its level was recorded as 0.12345; its input gives"),
        ({"level": None}, "its level was recorded as None; its input gives"),
        ({"input_hash": "00"}, "its input does not have the hash that was recorded"),
    ]
    changed = [
        replace(answer, **fields) for answer, (fields, _) in zip(answers, changes, strict=False)
    ]
    write([*changed, *answers[len(changes) :]])
    done = iknow.run("audit", "verify", "audit.db", "--bundle", "b.iknow", "--model",
                     "model.joblib")  # fmt: skip
    assert done.exit_code == 1
    for seq, (_, told) in enumerate(changes, start=1):
        assert f"record {seq}: {told}" in done.stdout
    assert "6 problems" in done.stdout


def test_levels_within_the_tolerance_are_the_same(iknow, answers):
    write([replace(answers[0], level=answers[0].level + 1e-9)])
    words = ["audit", "verify", "audit.db", "--bundle", "b.iknow", "--model", "model.joblib"]
    assert iknow.run(*words).exit_code == 1
    iknow(*words, "--level-tolerance", "1e-6")


def test_answers_of_an_unknown_bundle_are_not_derived(iknow, answers):
    write([replace(answer, bundle="00" * 32) for answer in answers])
    said = iknow("audit", "verify", "audit.db", "--bundle", "b.iknow", "--model", "model.joblib")
    assert f"0 of {len(answers)} answers were derived again" in said


def test_rows_by_name_are_derived_in_any_order(iknow, answers):
    order = [3, 0, 2, 1]
    names = [NAMES[i] for i in order]
    rows = [dict(zip(names, decode_input(a.input)[order], strict=True)) for a in answers]
    changed = zip(answers, rows, encode_inputs(rows), strict=True)
    write([replace(a, input=content, input_hash=hash_input(row)) for a, row, content in changed])
    said = iknow("audit", "verify", "audit.db", "--bundle", "b.iknow", "--model", "model.joblib")
    assert f"{len(answers)} of {len(answers)} answers were derived again" in said


def test_a_head_that_was_noted_is_found_or_missed(iknow, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seq, last = write(make_records(5))
    assert iknow("audit", "head", "audit.db") == f"{seq}:{last}\n"
    write(make_records(5))
    assert "holds" in iknow("audit", "verify", "audit.db", "--head", f"{seq}:{last}")
    other = iknow.run("audit", "verify", "audit.db", "--head", f"{seq + 1}:{last}")
    assert other.exit_code == 1
    assert "its hash is not that of the head that was noted" in other.stdout


def test_a_changed_record_exits_with_one(iknow, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(make_records(150))
    with sqlite3.connect("audit.db") as connection:
        connection.execute("UPDATE iknow_audit_records SET body = x'00'")
    connection.close()
    done = iknow.run("audit", "verify", "audit.db")
    assert done.exit_code == 1
    assert "record 1: " in done.stdout
    assert "more problems" in done.stdout


def test_a_journal_in_use_is_verified_and_exported(iknow, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open_journal("audit.db") as journal:
        journal.append(make_records(5))
        assert "7 records" in iknow("audit", "verify", "audit.db")
        assert "7 records" in iknow("audit", "export", "audit.db", "-o", "a.jsonl")
        journal.append(make_records(5))


def test_exports_hold_every_record(iknow, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("iknow.cli.audit.PART", 4)
    records = make_records(10, "a\0\ud800", keep=True)
    write(records)
    for name in ("a.parquet", "a.csv", "a.jsonl", "a.arrow"):
        iknow("audit", "export", "audit.db", "-o", name)
    rows = pq.read_table("a.parquet").to_pylist()
    assert [row["seq"] for row in rows] == list(range(1, 13))
    assert [row["kind"] for row in rows].count("answer") == 10
    answer, label, event = rows[0], rows[5], rows[6]
    assert (answer["row"], answer["level"], answer["label"]) == (0, 0.25, None)
    assert json.loads(answer["exemplars"]) == {"relu": 0, "logits": 0}
    assert (label["label"], label["request"], label["level"]) == ('"seven"', r"a\x00\ud800", None)
    assert json.loads(event["details"]) == {"from": "2", "counts": [1, 2.5, None]}
    with open("a.jsonl") as file:
        assert [json.loads(line) for line in file] == rows
    with open("a.csv", newline="") as file:
        assert [row["kind"] for row in csv.DictReader(file)] == [row["kind"] for row in rows]


def test_an_export_of_a_time_and_a_model(iknow, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hour = 3600
    write([make_answer(i, seconds=i * hour, model="ab"[i % 2], keep=True) for i in range(48)])
    words = ["--since", "2026-01-01T12:00:00+01:00", "--until", "2026-01-02", "--model", "b"]
    iknow("audit", "export", "audit.db", "-o", "a.parquet", "--inputs", *words)
    rows = pq.read_table("a.parquet").to_pylist()
    assert [row["row"] for row in rows] == list(range(11, 24, 2))
    assert base64.b64decode(rows[0]["input"]) == make_answer(11, keep=True).input
    iknow("audit", "export", "audit.db", "-o", "none.parquet", "--model", "c")
    assert pq.read_table("none.parquet").num_rows == 0


def test_mistakes_are_told_in_one_line(iknow, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(make_records(1))
    assert "no journal 'absent.db'" in iknow.fail("audit", "verify", "absent.db")
    assert "SEQ:HASH" in iknow.fail("audit", "verify", "audit.db", "--head", "1:x")
    assert "--since must be a date" in iknow.fail(
        "audit", "export", "audit.db", "-o", "a.csv", "--since", "monday"
    )
    assert "expected a file ending in" in iknow.fail("audit", "export", "audit.db", "-o", "a.db")
    assert "Missing command" in iknow.fail("audit", code=2)
    said = iknow.fail("audit", "verify", "postgresql://me:secret@127.0.0.1:1/db")
    assert "secret" not in said
    assert "127.0.0.1:1/db cannot be read" in said
