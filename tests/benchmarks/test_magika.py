"""The case of file types, without magika itself: names, deals, spoiled files, and a tiny run."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from benchmarks.magika import table
from benchmarks.magika.collecting import MOST, OTHER, File, Types, collect
from benchmarks.magika.measuring import FOREIGN, UNSEEN, measure
from benchmarks.magika.methods import named_by_magika
from benchmarks.magika.naming import promised_type, type_by_extension
from benchmarks.magika.parsing import as_text, keeps_promise
from benchmarks.magika.said import Said
from benchmarks.magika.splitting import split
from benchmarks.magika.spoiling import JOINED, PIECES, RANDOM, UTF16, spoil

KINDS = {
    "python": {"extensions": ["py"], "is_text": True},
    "perl": {"extensions": ["pl"], "is_text": True},
    "prolog": {"extensions": ["pl"], "is_text": True},
    "verilog": {"extensions": ["v"], "is_text": True},
    "gleam": {"extensions": ["gleam"], "is_text": True},
}
LABELS = ("python", "json", "png", "shell", "randombytes")
CONFIG = {
    "target_labels_space": list(LABELS),
    "thresholds": {"json": 0.9},
    "medium_confidence_threshold": 0.5,
    "overwrite_map": {"randombytes": "unknown"},
}


class Fake:
    """Tells the types of files that begin with the code of theirs, if it has seen enough."""

    config, labels = CONFIG, np.array(LABELS)

    def ask(self, contents: list[bytes]) -> Said:
        hidden = np.stack([self._see(content) for content in contents]).astype(np.float32)
        return Said(5 * hidden[:, : len(LABELS)], hidden)

    def _see(self, content: bytes) -> np.ndarray:
        seed = int.from_bytes(hashlib.sha256(content).digest()[:4], "big")
        noise = np.random.default_rng(seed).normal(size=10)
        return 2 * np.eye(10)[content[0] % len(LABELS)] + 0.7 * noise


def make_files(n_projects: int = 12, each: int = 60) -> list[File]:
    rng = np.random.default_rng(0)
    files = []
    for project in range(n_projects):
        for code in rng.integers(0, 4, each):
            text = rng.integers(97, 123, 3000).astype(np.uint8).tobytes()
            files.append(File(f"project {project}", LABELS[code], bytes([50 + code]) + text))
        files.append(File(f"project {project}", OTHER + "Nim", b"0" + rng.bytes(40)))
    return files


def test_an_extension_counts_if_it_means_one_type_that_the_model_has():
    known = ["python", "perl", "prolog", "verilog"]
    extensions = type_by_extension(KINDS, known)
    assert extensions["py"] == "python"
    assert not {"pl", "v", "gleam"} & set(extensions)  # of two types; in doubt; not the model's
    assert promised_type(Path("a/B.PY"), extensions) == "python"
    assert promised_type(Path("CMakeLists.txt"), extensions) == "cmake"
    assert promised_type(Path("notes.txt"), extensions) is None


@pytest.mark.parametrize(
    ("content", "kind", "is_text", "kept"),
    [
        (b"x = 1\n", "python", True, True),
        (b"print 'old'\n", "python", True, False),
        (b'{"a": [1]}', "json", True, True),
        (b"{'a': 1}", "json", True, False),
        (b'{"cells": []}', "ipynb", True, True),
        (b"5", "ipynb", True, False),  # JSON, but no notebook
        (b"\x89PNG\r\n\x1a\n\0\xff", "png", False, True),
        (b"version https://git-lfs.github.com/spec/v1\n", "png", False, False),
        (b"\xff\xd8\xff\xe0", "png", False, False),
        (b"a\0b", "shell", True, False),
        (b"<TS></TS>", "typescript", True, False),
        (b"<p>{{ name }}</p>", "html", True, False),
        (b"<a><b/></a>", "xml", True, True),
        (b"<a><b></a>", "xml", True, False),
        (b"PK\x03\x04\xff", "zip", False, False),
    ],
)
def test_content_must_keep_what_the_name_promises(content, kind, is_text, kept):
    assert keeps_promise(content, kind, is_text) is kept


def test_collecting_takes_each_content_once_and_few_files_of_a_project(tmp_path):
    for project, n in {"a": 3, "b": MOST + 7}.items():
        (tmp_path / project / "src").mkdir(parents=True)
        for i in range(n):
            (tmp_path / project / "src" / f"{i}.py").write_text(f"x = {i}\n")
    (tmp_path / "b" / "image.png").write_bytes(b"no image")
    (tmp_path / "b" / "main.nim").write_bytes(b"echo 1")
    (tmp_path / "stray.py").write_text("x = 'of no project'\n")
    types = Types({"py": "python", "png": "png"}, frozenset(["python"]))
    files = collect([tmp_path], types, lambda content: content)
    assert sum(file.project == "a" for file in files) == 3
    assert sum(file.kind == "python" and file.project == "b" for file in files) == MOST
    assert [file.kind for file in files if file.kind != "python"] == [OTHER + "Nim"]
    assert len({file.content for file in files}) == len(files)
    assert files == collect([tmp_path], types, lambda content: content)


@pytest.mark.parametrize("seed", range(20))
def test_no_project_is_in_two_parts_and_withheld_types_are_in_test_alone(seed):
    rng = np.random.default_rng(seed)
    files = [
        File(f"{rng.integers(9)}", rng.choice(["a", "b", "c", "d", "e", OTHER + "x"]), b"")
        for _ in range(150)
    ]
    parts = split(files, seed)
    of = {name: {files[row].project for row in rows} for name, rows in vars(parts).items()}
    test = of["test"] | of["unseen"] | of["foreign"]
    assert not of["evidence"] & of["validation"]
    assert not (of["evidence"] | of["validation"]) & test
    kinds = {name: {files[row].kind for row in rows} for name, rows in vars(parts).items()}
    assert kinds["validation"] | kinds["test"] <= kinds["evidence"]
    assert not kinds["unseen"] & kinds["evidence"]
    assert kinds["foreign"] <= {OTHER + "x"}


def test_spoiled_files_are_what_they_say():
    files = make_files(2)
    known = [file for file in files if not file.kind.startswith(OTHER)]
    spoiled = spoil(known, 0)
    contents = {file.content: file for file in known}
    for content in spoiled[JOINED][0]:
        first, second = contents[content[:3001]], contents[content[3001:]]
        assert first.kind != second.kind
    for content, kind in zip(*spoiled[PIECES], strict=True):
        (whole,) = (file for file in known if content in file.content[512:])
        assert (len(content), whole.kind) == (512, kind)
    for content, kind in zip(*spoiled[UTF16], strict=True):
        assert as_text(content) is None
        assert contents[content.decode("utf-16").encode()].kind == kind
    assert set(spoiled[RANDOM][1]) == {"randombytes"}


@pytest.mark.parametrize("mode", ["high", "medium"])
def test_modes_of_magika_are_thresholds_by_type(mode):
    logits = np.random.default_rng(0).normal(scale=3, size=(300, len(LABELS))).astype(np.float32)
    named = named_by_magika(Said(logits, logits), CONFIG, mode)
    for row, is_named in zip(logits, named, strict=True):
        chances = np.exp(row) / np.exp(row).sum()
        label = LABELS[row.argmax()]
        least = 0.9 if (label, mode) == ("json", "high") else 0.5
        assert is_named == (chances.max() >= least and label != "randombytes")


def test_a_tiny_run_from_files_to_tables(monkeypatch):
    files, network = make_files(), Fake()
    said = network.ask([file.content for file in files])
    run = measure(network, files, said, seed=1)
    assert set(run["n"]) >= {"test", FOREIGN, JOINED, PIECES, UTF16, RANDOM}
    assert run["error"][FOREIGN] == run["error"][JOINED] == 1
    for sets in run["equal_coverage"].values():
        for name, row in sets.items():
            for cell in row.values():
                assert cell is None or cell["wrong"] <= min(cell["asserted"], run["error"][name])
    ours = run["equal_coverage"]["iknow"]
    assert abs(ours["test"]["0.75"]["asserted"] - 0.75) < 0.15  # chosen on validation files
    assert ours["test"]["0.6"]["asserted"] < ours["test"]["0.9"]["asserted"]
    assert UNSEEN not in run["n"] or ours[UNSEEN]["0.75"]["asserted"] < 0.5
    record = {
        "magika": "0", "projects": ["a+b"], "files": 1, "types": 4, "classes": 5,
        "foreign_files": 1, "foreign_types": ["Nim"], "accuracy": 0.5, "runs": [run, run],
    }  # fmt: skip
    monkeypatch.setattr(table, "record", lambda: record)
    for make in (table.data, lambda: table.at(0.75), lambda: table.outside("wrong")):
        assert "nan" not in make()
    assert "| iknow |" in table.at(0.6)


def test_accuracies_follow_from_shares():
    rng = np.random.default_rng(0)
    wrong, known = rng.random(500) < 0.2, rng.random(500) < 0.6
    cell = {"asserted": known.mean(), "wrong": (known & wrong).mean()}
    found = table._accuracies([cell], [{"error": {"test": wrong.mean()}}])
    shares = (known, ~wrong[known], ~wrong[~known])
    assert found == [f"{100 * each.mean():.1f}" for each in shares]
