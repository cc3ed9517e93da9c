"""Thousands of hostile command lines: each ends well or with one line, and nothing is lost."""

import os
import unicodedata

import numpy as np
import pytest
from typer.testing import CliRunner

from iknow.cli.app import app

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # the command line shows them in a line
]

CASES = 250
SHARDS = 12
HOSTILE = ("h_", "loop", "dangling", "folder", "linked", "[", "e\x1b", "\udcff", "fifo")
NUMBERS = ("nan", "inf", "-inf", "-1", "0", "1", "0.5", "1e400", "1e-400", "2", "x", "", "9" * 30)
MODEL_NAMES = (
    "raises:x", "exits:x", "huge:x", "markup:x", "loops:model", "syntax:x", "makes:odd",
    "makes:text", "makes:nothing", "makes:number", "makes:fails", "makes:absent",
    ":x", "x:", ":", "..:x", ".a:b",
    "makes:", "os:getcwd", "json:loads", "a b:c", "[/red]:x",
)  # fmt: skip


MODEL_FILES = (".joblib", ".pkl", ".pt", ".onnx", ".json", ".txt", ".cbm")
SLOTS = ("data", "model", "output", "words", "numbers", "bundle", "validation")


def make_command(rng, files):
    """Words of a command of which one thing is hostile, rarely none, or several."""

    def one(options):
        return options[int(rng.integers(len(options)))]

    evil = {SLOTS[i] for i in rng.integers(len(SLOTS), size=one((0, 1, 1, 1, 1, 1, 2, 3)))}

    def data(part, slot):
        if slot in evil:
            return one(files["hostile"]), one(([], ["--label", "kind"]))
        ending = one(("csv", "npz", "npz", "npy", "parquet", "jsonl", "arrow"))
        labels = {"npz": [], "npy": ["--labels", f"{part}_labels.npy"]}
        labels = labels.get(ending, ["--label", "kind"])
        return f"{part}.{ending}", labels

    def output(words, *good):
        """Something to write; if hostile, also what the command reads, by whatever name."""
        if "output" not in evil:
            return ["-o", one(good)]
        read = [word for word in words[1:] if word in files["all"]]
        spelled = [f"{prefix}{word}" for word in read for prefix in ("", "./", "out/../")]
        links = ["linked.csv"] if "train.csv" in read else []
        links += ["hard.npz"] if "test.npz" in read else []
        return ["-o", one([*spelled, *links, *files["outputs"]])]

    if rng.random() < 0.1:
        odd = (*files["text"], *NUMBERS, "--k", "--left-out", "--only", "--repeats", "--jobs",
               "--random-states", "--out", "--show", "--random-state", "-o")  # fmt: skip
        command = one(("fit", "assess", "report", "demo", "[/red]", "--random-state"))
        return [
            command,
            *(one(odd) for _ in range(int(rng.integers(1, 4)))),
            "--random-state",
            "-1",
        ]
    command = one(("fit", "assess", "report"))
    model = one((*files["models"], "")) if "model" in evil else "model.joblib"
    more = ["--model", model] if model else []
    if "words" in evil:
        more += one([
            ["--label", one(("kind", "y", "X", *files["text"]))],
            ["--layer", one(("output", *files["text"]))],
            ["--labels", one(files["all"])],
            ["--show", one(("image:2x2", "series", "features", *files["text"], "image:-1x-4"))],
            ["--training", one(files["all"])],
            ["--reference", one(files["all"])],
            ["--quorum", one(("3", "1,3", *files["text"]))],
            ["--device", one(("cpu", "abacus", *files["text"]))],
            ["--id", one(("kind", "f0", *files["text"]))],
            ["--drop", one(("kind", "f0", *files["text"]))],
            ["--features", one(("f0,f1", "f0,f0", "kind", ",", *files["text"]))],
            ["--text", one(("f0", *files["text"]))],
            ["--input-format", one(("csv", "jsonl", "arrow", "parquet", "npz", "npy", "x"))],
            ["--config", one((*files["all"], *files["text"]))],
            ["--metric", one(("cosine", "a=b", *files["text"]))],
            ["--pool", one(("mean", "a=b", *files["text"]))],
            ["--scores", one(("0", "logits", *files["text"]))],
            ["--class", one(("0", *files["text"]))],
            ["--level", one(NUMBERS)],
            ["--batch-size", one(NUMBERS)],
        ])  # fmt: skip
    if command == "fit":
        path, labels = data("train", "data")
        words = ["fit", path, *labels, *more]
        words += output(words, "out/new.iknow", "out/b2.iknow")
        validation, held_out = data("val", "validation")[0], one(("0.3", "0.5"))
        suits = validation.split(".")[-1] == path.split(".")[-1] != "npy" or "validation" in evil
        words += ["--validation", validation] if suits else ["--hold-out", held_out]
        if "numbers" in evil:
            names = (
                "--k",
                "--accuracy",
                "--confidence",
                "--coverage",
                "--false-alarm",
                "--quorum",
                "--random-state",
                "--hold-out",
            )
            words += [one(names), one(NUMBERS)]
            words += [
                "--rule",
                one(("ball", "nearest", "relative-ball", "ball-else-nearest", "[/x]")),
            ]
        return words + (["--train"] if rng.random() < 0.1 else [])
    path, labels = data("test", "data")
    words = [
        command,
        one(files["bundles"]) if "bundle" in evil else "b.iknow",
        path,
        *labels,
        *more,
    ]
    if command == "assess":
        return words + (output(words, "out/a.csv", "out/a.npz") if rng.random() < 0.7 else [])
    return words + output(words, "out/r.html")


def state_of(root, within):
    """Identity and size of every file, links not followed; `within`: of those in `out` or not."""
    found = {}
    for folder, _, names in os.walk(root):
        inside = os.path.relpath(folder, root).split(os.sep)[0] == "out"
        for name in names if inside == within and "__pycache__" not in folder else ():
            path = os.path.join(folder, name)
            status = os.lstat(path)
            found[path] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode)
    return found


def assert_fit_to_be_shown(text):
    for character in text.replace("\n", ""):
        assert unicodedata.category(character) not in ("Cc", "Cf", "Cs") or character in "\u200d"


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_command_line_ends_well_or_with_one_line_and_nothing_is_lost(
    world, evil_text, shard, monkeypatch
):
    monkeypatch.setattr("iknow.tables.table.free_memory", lambda: 200_000_000)
    rng = np.random.default_rng(shard)
    names = sorted(os.listdir(world))
    files = {
        "hostile": ["[/red].npz", "absent.csv"]
        + [n for n in names if n.startswith(HOSTILE) or n.endswith("_made.npz")],
        "models": [n for n in names if n.endswith(MODEL_FILES)] + list(MODEL_NAMES),
        "bundles": [n for n in names if n.endswith(".iknow")] + ["absent.iknow", "train.csv", ""],
        "text": evil_text,
        "all": [*names, "absent.npy"],
        "outputs": ["/", ".", "..", "", "out", "out/old.csv", "out/old.html", "out/no/such/a.csv",
                    "b.iknow/manifest.json",
                    "out/[/red].csv", "out/\x1b[31m.csv", "out/a.xyz", "out/b.npy", "x" * 300],
    }  # fmt: skip
    inputs, codes = state_of(world, within=False), []
    for case in range(CASES):
        words = make_command(rng, files)
        outputs = state_of(world, within=True)
        result = CliRunner().invoke(app, words)
        told = (
            f"shard {shard}, case {case}: {words}\n{result.stdout[-500:]}\n{result.stderr[-3000:]}"
        )
        codes.append(result.exit_code)
        assert result.exit_code in (0, 1, 2), told
        assert result.exception is None or isinstance(result.exception, SystemExit), told
        assert "Traceback" not in result.output + result.stderr, told
        errors = [line for line in result.stderr.split("\n") if line.startswith("error:")]
        assert len(errors) == (result.exit_code != 0) or not result.stderr, told
        assert all(len(line) <= 2000 for line in result.stderr.split("\n")), told
        assert_fit_to_be_shown(result.stdout + result.stderr)
        assert state_of(world, within=False) == inputs, told
        if result.exit_code:
            after = state_of(world, within=True)
            assert {path: after.get(path) for path in outputs} == outputs, told
    assert {0, 1, 2} == set(codes)
    assert codes.count(0) > CASES / 5, "the good ones are too few to tell anything"
