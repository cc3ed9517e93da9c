"""`iknow export`, `iknow fit --onnx` and `iknow warm-up`: bundles that need no model's file."""

import csv
import json

import numpy as np
import onnx
import pytest

from iknow.storage.info import describe_bundle
from tests.models.onnx.graphs import mlp

NAMES = ["length", "width", "height", "weight"]
FIT = ["fit", "train.csv", "--label", "kind", "--model", "m.onnx", "--validation", "val.csv"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with an ONNX model, its data and a bundle without the model."""
    monkeypatch.chdir(tmp_path)
    onnx.save(mlp(), "m.onnx")
    rng = np.random.default_rng(0)
    for name, n in (("train", 90), ("val", 60), ("test", 30)):
        y = rng.integers(3, size=n)
        X = 2.0 * y[:, None] + rng.normal(size=(n, 4))
        with open(f"{name}.csv", "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow([*NAMES, "kind"])
            rows.writerows([*map(repr, map(float, x)), int(k)] for x, k in zip(X, y, strict=True))
    return tmp_path


@pytest.fixture
def bundle(folder, iknow):
    iknow(*FIT, "--coverage", "0.6", "-o", "b.iknow", "--name", "things", "--version", "7")
    return "b.iknow"


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_an_exported_bundle_needs_no_model_and_says_the_same(bundle, iknow):
    said = iknow("export", bundle, "--model", "m.onnx", "--samples", "test.csv", "--label", "kind",
               "-o", "p.iknow")  # fmt: skip
    assert "answers alike on 62 samples" in said
    iknow("assess", bundle, "test.csv", "--label", "kind", "--model", "m.onnx", "-o", "1.csv")
    iknow("assess", "p.iknow", "test.csv", "--label", "kind", "-o", "2.csv")
    assert read("1.csv") == read("2.csv")
    assert len(read("1.csv")) == 30


def test_columns_are_matched_by_name(bundle, iknow):
    iknow("export", bundle, "--model", "m.onnx", "-o", "p.iknow")
    iknow("assess", "p.iknow", "test.csv", "--label", "kind", "-o", "1.csv")
    rows = [dict(reversed(row.items())) for row in read("test.csv")]
    with open("moved.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    iknow("assess", "p.iknow", "moved.csv", "--label", "kind", "-o", "2.csv")
    assert read("1.csv") == read("2.csv")


def test_what_is_said_about_a_bundle_is_kept_or_given(bundle, iknow):
    iknow("export", bundle, "--model", "m.onnx", "-o", "p.iknow")
    info = describe_bundle("p.iknow")
    assert (info.name, info.version, info.is_portable) == ("things", "7", True)
    iknow(
        "export", bundle, "--model", "m.onnx", "-o", "q.iknow", "--version", "8", "--note", "New."
    )
    info = describe_bundle("q.iknow")
    assert (info.name, info.version, info.note) == ("things", "8", "New.")
    assert "in the bundle as ONNX" in iknow("info", "q.iknow")
    said = json.loads(iknow("info", "q.iknow", "--json"))
    assert (said["version"], said["exported"]["samples"]) == ("8", 32)
    assert said["sha256"] == info.sha256


def test_fit_writes_a_portable_bundle(folder, iknow):
    iknow(*FIT, "--coverage", "0.6", "--onnx", "--version", "1.0", "-o", "b.iknow")
    assert describe_bundle("b.iknow").is_portable
    assert "30 samples" in iknow("assess", "b.iknow", "test.csv", "--label", "kind")


def test_errors_say_what_to_do(bundle, iknow):
    assert "name that with --model" in iknow.fail("export", bundle, "-o", "p.iknow")
    assert "would be lost" in iknow.fail("export", bundle, "--model", "m.onnx", "-o", bundle)
    said = iknow.fail("export", bundle, "--model", "m.onnx", "-o", "p.iknow", "--version", "a b")
    assert "version must be" in said


def test_warm_up_asks_bundles_once(bundle, iknow, folder):
    iknow("export", bundle, "--model", "m.onnx", "-o", "p.iknow")
    said = iknow("warm-up", "p.iknow", bundle)
    assert "p.iknow answers" in said
    assert "b.iknow is whole; its model is not in it" in said
    content = bytearray((folder / "p.iknow").read_bytes())
    content[len(content) // 2] ^= 255
    (folder / "p.iknow").write_bytes(content)
    assert "damaged" in iknow.fail("warm-up", "p.iknow")
