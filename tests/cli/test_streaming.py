"""Files larger than memory: parts give what the whole gives, and take no more room than a part."""

import csv
import json
import os
import subprocess
import sys
import warnings

import joblib
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from iknow import EpistemicClassifier, evaluate

ENDINGS = ("csv", "parquet", "arrow", "feather", "jsonl", "npz", "npy")
ASSESS = ["assess", "b.iknow", "--model", "model.joblib"]


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of a few rows, whatever the format."""
    monkeypatch.setattr("iknow.tables.columns.BLOCK", 300)
    monkeypatch.setattr("iknow.tables.table.MOST_ROWS", 4)
    monkeypatch.setattr("iknow.tables.columns.JSON_PART", 400)


def columns_of(ending):
    if ending == "npy":
        return ["--labels", "test_labels.npy"]
    return ["--label", "kind", "--id", "id"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_parts_say_what_the_whole_says(irises, iknow, ending, request):
    words = [*ASSESS, f"test.{ending}", *columns_of(ending)]
    whole = iknow(*words, "-o", "whole.csv")
    request.getfixturevalue("small_parts")
    parts = iknow(*words, "-o", "parts.csv")
    assert parts.replace("parts.csv", "whole.csv") == whole
    assert (irises / "parts.csv").read_bytes() == (irises / "whole.csv").read_bytes()
    loaded = EpistemicClassifier.load("b.iknow", FrozenEstimator(joblib.load("model.joblib")))
    X, y = np.load("test.npy"), np.load("test_labels.npy")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        assert str(evaluate(loaded.assess(X), y)) in parts


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow", "jsonl", "npz"])
def test_every_format_that_is_written_says_the_same(irises, iknow, ending, small_parts):
    words = [*ASSESS, "test.csv", "--label", "kind", "--id", "id"]
    iknow(*words, "-o", "said.csv")
    iknow(*words, "-o", f"other.{ending}")
    expected, found = read_columns("said.csv"), read_columns(f"other.{ending}")
    assert list(found) == list(expected)
    for name, column in expected.items():
        assert list(map(as_text, found[name])) == list(map(as_text, column))


def as_text(cell):
    """A cell as text; numbers are compared as such, and what JSON cannot say is nothing."""
    try:
        number = float(cell)
    except (TypeError, ValueError):
        return cell or ""
    return repr(number) if np.isfinite(number) else ""


def read_columns(path):
    if path.endswith(".npz"):
        with np.load(path) as arrays:
            return {name: arrays[name].tolist() for name in arrays.files}
    if path.endswith(".jsonl"):
        with open(path) as file:
            rows = [json.loads(line) for line in file]
        return {name: [row[name] for row in rows] for name in rows[0]}
    if path.endswith(".csv"):
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        return {name: [row[name] for row in rows] for name in rows[0]}
    if path.endswith(".arrow"):
        with pa.OSFile(path) as file:
            return pa.ipc.open_file(file).read_all().to_pydict()
    return pq.read_table(path).to_pydict()


def test_an_error_in_a_late_part_names_its_row_and_leaves_no_file(irises, iknow, small_parts):
    lines = (irises / "test.csv").read_text().splitlines()
    lines[31] = "five" + lines[31]
    (irises / "test.csv").write_text("\n".join(lines))
    said = iknow.fail(*ASSESS, "test.csv", "--label", "kind", "--id", "id", "-o", "out.csv")
    assert "column 'sepal length', row 32: expected a number" in said
    assert not list(irises.glob("*out.csv*"))
    lines = (irises / "test.jsonl").read_text().splitlines()
    lines[30] = lines[30].replace('"sepal width": ', '"sepal width": "x", "y": ')
    (irises / "test.jsonl").write_text("\n".join(lines))
    said = iknow.fail(*ASSESS, "test.jsonl", "--label", "kind", "--id", "id", "-o", "out.csv")
    assert "test.jsonl, line 31: 'y' is unknown" in said


def test_labels_of_another_length_are_told_and_leave_no_file(irises, iknow, small_parts):
    words = [*ASSESS, "test.npy", "--labels", "labels.npy", "-o", "out.csv"]
    for n in (39, 41, 3):
        np.save("labels.npy", np.resize(np.load("test_labels.npy"), n))
        assert f"test.npy has 40, labels.npy has {n}" in iknow.fail(*words)
        assert not (irises / "out.csv").exists()


def test_integer_labels_are_integers_in_every_part(tmp_path, iknow, monkeypatch, small_parts):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    X = np.eye(3)[y] + 0.3 * rng.normal(size=(120, 3))
    joblib.dump(LogisticRegression().fit(X, y), "m.joblib")
    rows = [f"{a},{b},{c},{k}" for (a, b, c), k in zip(X, y, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,y", *rows]))
    words = ["t.csv", "--label", "y", "--model", "m.joblib"]
    iknow("fit", *words, "--hold-out", "0.3", "--coverage", "0.5", "-o", "b.iknow")
    right = LogisticRegression().fit(X, y).score(X, y)
    assert f"120 samples, accuracy {100 * right:.1f}%" in iknow("assess", "b.iknow", *words)
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,y", *rows, "1,2,3,other"]))
    said = iknow.fail("assess", "b.iknow", *words)
    assert "label 'other' is no integer, as those of the classifier are" in said


def test_what_a_model_raises_is_told_as_the_models_and_not_as_the_files(irises, iknow):
    class Late(LogisticRegression):
        def predict(self, X):
            if len(X) == 40:
                raise KeyError("not today")
            return super().predict(X)

    sys.modules["late"] = type(sys)("late")
    sys.modules["late"].model = Late().fit(np.load("train.npy"), np.load("train_labels.npy"))
    fit = ["--hold-out", "0.3", "--coverage", "0.5", "-o", "late.iknow"]
    labels = ["--labels", "train_labels.npy"]
    iknow("fit", "train.npy", *labels, "--model", "late:model", *fit)
    said = iknow.fail("assess", "late.iknow", "test.csv", "--model", "late:model",
                      "--drop", "kind", "--drop", "id")  # fmt: skip
    assert said.startswith("error: the model raised KeyError: 'not today'")


MEASURE = """
import sys
from iknow.cli.app import app
try:
    app(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
with open("/proc/self/status") as status:  # getrusage would count the parent too
    print([int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM")][0])
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="Linux tells the peak there")
@pytest.mark.slow
@pytest.mark.parametrize("ending", ["npy", "parquet"])
def test_memory_is_that_of_a_part(tmp_path, ending):
    """A file of 240 MB takes little more than one of 15 MB."""
    rng = np.random.default_rng(0)
    n_features, y = 3000, np.arange(40) % 2
    X = rng.normal(size=(40, n_features)) + y[:, None]
    model = LogisticRegression().fit(X, y)
    joblib.dump(model, tmp_path / "m.joblib")
    classifier = EpistemicClassifier(model, progress=False).fit(X, y)
    classifier.tune(X + 0.1, coverage=0.5)
    classifier.save(tmp_path / "b.iknow")
    peaks = []
    for n in (625, 10_000):
        Z = np.broadcast_to(X[:1], (n, n_features))
        if ending == "npy":
            np.save(tmp_path / f"{n}.npy", Z)
        else:
            names = [f"c{i}" for i in range(n_features)]
            table = pa.table(dict(zip(names, Z.T, strict=True)))
            pq.write_table(table, tmp_path / f"{n}.parquet", row_group_size=500)
        words = ["assess", "b.iknow", f"{n}.{ending}", "--model", "m.joblib", "-o", "out.csv"]
        ended = subprocess.run(
            [sys.executable, "-c", MEASURE, *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stderr
        peaks.append(int(ended.stdout.splitlines()[-1]))
    assert (tmp_path / "out.csv").read_text().count("\n") == 10_001
    assert peaks[1] - peaks[0] < 150
