"""Standard input and output: a command between other commands."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ASSESS = ["assess", "b.iknow", "--model", "model.joblib"]
COLUMNS = ["--label", "kind", "--id", "id"]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "arrow", "npz", "npy"])
def test_a_pipe_gives_what_a_file_gives(irises, iknow, form):
    columns = ["--labels", "test_labels.npy"] if form == "npy" else COLUMNS
    iknow(*ASSESS, f"test.{form}", *columns, "-o", "out.csv")
    content = (irises / f"test.{form}").read_bytes()
    named = [] if form == "csv" else ["--input-format", form]
    said = iknow(*ASSESS, "-", *columns, *named, "-o", "-", stdin=content)
    assert said == (irises / "out.csv").read_bytes()


def test_nothing_but_the_result_goes_to_standard_output(irises, iknow):
    result = iknow.run(*ASSESS, "test.csv", *COLUMNS, "-o", "-", "--output-format", "jsonl")
    assert result.exit_code == 0
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(rows) == 40
    assert list(rows[0])[:3] == ["id", "belief", "assertion"]
    assert "40 samples, accuracy" in result.stderr
    assert "Written" not in result.stderr


def test_arrow_in_a_pipe_is_a_stream_and_parquet_whole(irises, iknow):
    words = [*ASSESS, "test.csv", *COLUMNS, "-o", "-", "--output-format"]
    stream = iknow.run(*words, "arrow").stdout_bytes
    assert pa.ipc.open_stream(stream).read_all().num_rows == 40
    assert pq.read_table(pa.BufferReader(iknow.run(*words, "parquet").stdout_bytes)).num_rows == 40
    again = iknow(*ASSESS, "-", "--input-format", "arrow", *COLUMNS,
                  stdin=to_stream("test.parquet"))  # fmt: skip
    assert b"40 samples" in again


def to_stream(path):
    table, sink = pq.read_table(path), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("content", "form", "message"),
    [
        (b"", "csv", "Empty CSV"),
        (b"", "jsonl", "is empty: expected an object on each line"),
        (b"\n \n", "jsonl", "is empty"),
        (b"[1]\n", "jsonl", "line 1: expected an object of named values"),
        (b'{"a": 1}\n{"a": [1]}\n', "jsonl", "line 2, 'a': expected a number or text"),
        (
            b'{"a": 1}\n{"a": "x"}\n',
            "jsonl",
            "input, line 2, 'a': expected a number, got",
        ),
        (b'{"a": \xff}\n', "jsonl", "line 1: it is no JSON"),
        (b"[" * 100_000, "jsonl", "line 1: it is no JSON"),
        (b"PAR1", "parquet", "cannot be read"),
        (b"ARROW1", "arrow", "cannot be read"),
        (b"x", "arrow", "cannot be read"),
        (b"x", "npz", "no .npz archive"),
        (b"x", "npy", "cannot be read"),
        (b"a\n1\n", "xlsx", "--input-format must be one of csv, jsonl"),
    ],
)
def test_what_cannot_be_read_from_a_pipe_is_told(irises, iknow, content, form, message):
    said = iknow.fail(*ASSESS, "-", "--input-format", form, stdin=content)
    assert message in said


def test_a_pipe_is_read_once(irises, iknow):
    words = ["fit", "-", "--label", "kind", "--validation", "-", "--model", "model.joblib"]
    assert "'-' can be read once" in iknow.fail(*words, "-o", "c.iknow", stdin=b"x")


def test_numbers_that_json_cannot_say_are_null_and_text_stays_text(irises, iknow):
    X = np.load("test.npy")
    X[0, 0] = np.nan
    lines = [json.dumps(dict(zip("abcd", row, strict=True)) | {"id": "é\u202e"}) for row in X]
    (irises / "odd.jsonl").write_text("\n".join(lines))
    words = [*ASSESS, "odd.jsonl", "--id", "id", "-o", "-", "--output-format", "jsonl"]
    said = iknow.fail(*words)
    assert "missing: 'sepal length'" in said
    iknow("fit", "train.npy", "--labels", "train_labels.npy", "--hold-out", "0.3", "--coverage",
          "0.5", "--model", "model.joblib", "-o", "b.iknow")  # fmt: skip
    rows = [json.loads(line) for line in iknow(*words).splitlines()]
    assert rows[0]["id"] == "é\u202e"
    assert rows[0]["reason"] == "INVALID"
    assert rows[0]["standardscaler:for"] is None
