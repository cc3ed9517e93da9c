"""Options that say how to search and to read a model, from the command line or from a file."""

import csv
import json
import os
import subprocess
import sys

import joblib
import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator

from iknow import EpistemicClassifier

FIT = ["fit", "train.npz", "--label", "kind", "--validation", "val.npz", "--model", "model.joblib",
       "-o", "new.iknow"]  # fmt: skip
ASSESS = ["assess", "b.iknow", "test.csv", "--label", "kind", "--drop", "id", "--model",
          "model.joblib"]  # fmt: skip
COMMANDS = ("demo", "fit", "assess", "report", "info", "compare")


def load(path="new.iknow"):
    return EpistemicClassifier.load(path, FrozenEstimator(joblib.load("model.joblib")))


def test_a_level_is_where_ik_begins(irises, iknow):
    tuned = load("b.iknow").selection_.level
    for level in (tuned, 0.05, 0.5, 1.0):
        said = " ".join(iknow(*ASSESS, "--level", level, "-o", "out.csv").split())
        with open("out.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        known = [row["assertion"] == "IK" for row in rows]
        assert known == [float(row["level"]) >= level for row in rows]
        assert ("not guaranteed here" in said) == (level != tuned)
    for level in ("0", "-1", "2", "nan"):
        assert "a level must lie in (0, 1]" in iknow.fail(*ASSESS, "--level", level)
    iknow(*FIT, "--paper")
    said = iknow.fail("assess", "new.iknow", *ASSESS[2:], "--level", "0.5")
    assert "--level needs a bundle with levels" in said


def test_a_report_at_another_level_promises_nothing(irises, iknow):
    iknow("report", *ASSESS[1:], "--level", "0.9", "-o", "page.html")
    assert "and not the tuned one" in (irises / "page.html").read_text()


@pytest.mark.parametrize("option", ["--n-neighbors", "--k", "-k"])
def test_the_number_of_neighbors_has_three_names(irises, iknow, option):
    iknow(*FIT, "--rule", "nearest", option, "3")
    assert {rule.k for rule in load().neighborhoods_.values()} == {3}


def test_metrics_are_for_all_layers_or_for_one(irises, iknow):
    layers = ["--layer", "input", "--layer", "standardscaler", "--coverage", "0.5"]
    iknow(*FIT, *layers, "--metric", "cosine")
    assert {str(index.metric) for index in load().indexes_.values()} == {"Cosine()"}
    iknow(*FIT, *layers, "--metric", "input=cosine", "--metric", "standardscaler=euclidean")
    found = {layer: type(index.metric).__name__ for layer, index in load().indexes_.items()}
    assert found["input"] == "Cosine"
    assert found["standardscaler"] != "Cosine"
    assert "--metric" in iknow.fail(*FIT, "--metric", "a", "--metric", "b", code=2)
    assert "metric" in iknow.fail(*FIT, "--metric", "furlongs")


def test_a_premium_buys_budgets_and_confidence_is_always_heard(irises, iknow):
    iknow(*FIT, "--coverage", "0.5")
    usual = load().selection_
    iknow(*FIT, "--coverage", "0.5", "--premium", "0.05")
    assert load().selection_ == usual
    iknow(*FIT, "--coverage", "0.5", "--premium", "0")
    least = load().selection_
    iknow(*FIT, "--coverage", "0.5", "--premium", "100")
    most = load().selection_
    assert [each.goal.premium for each in (least, usual, most)] == [0, 0.05, 100]
    for each in (least, usual, most):
        assert each.levels.hears_model
    spent = [sum(voice.budget for voice in each.levels.voices) for each in (least, most)]
    assert spent[0] < spent[1]
    assert "premium" in iknow.fail(*FIT, "--premium", "-1", code=2)


def test_classes_name_the_scores_of_a_model(irises, iknow):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 3))
    torch.nn.init.zeros_(module[0].weight)  # it always says the same
    torch.save(module, "net.pt")
    words = ["fit", "train.npz", "--label", "kind", "--hold-out", "0.3", "--coverage", "0.5",
             "--model", "net.pt", "-o", "new.iknow", "--layer", "input"]  # fmt: skip
    kinds = ["virginica", "setosa", "versicolor"]
    iknow(*words, *[word for kind in kinds for word in ("--class", kind)], "--batch-size", "7")
    loaded = EpistemicClassifier.load("new.iknow", torch.load("net.pt", weights_only=False))
    assert loaded.classes_.tolist() == kinds
    assert loaded.batch_size == 7
    np.savez("codes.npz", X=np.load("train.npy"), kind=np.arange(80) % 3)
    words[1] = "codes.npz"
    iknow(*words, "--class", "2", "--class", "0", "--class", "1")
    loaded = EpistemicClassifier.load("new.iknow", torch.load("net.pt", weights_only=False))
    assert loaded.classes_.tolist() == [2, 0, 1]


CONFIG = """
[fit]
data = "train.npz"
label = "kind"
validation = "val.npz"
model = "model.joblib"
output = "new.iknow"
rule = "nearest"
n-neighbors = 3
layer = ["input"]

[assess]
bundle = "b.iknow"
data = "test.csv"
label = "kind"
drop = "id"
model = "model.joblib"
no-check-model = true
"""


def test_a_file_gives_the_options_and_the_command_line_wins(irises, iknow):
    (irises / "run.toml").write_text(CONFIG)
    iknow("fit", "--config", "run.toml")
    assert [rule.k for rule in load().neighborhoods_.values()] == [3]
    iknow("fit", "--config", "run.toml", "-k", "4", "--layer", "standardscaler", "-o", "c.iknow")
    assert {layer: rule.k for layer, rule in load("c.iknow").neighborhoods_.items()} == {
        "standardscaler": 4
    }
    assert iknow("assess", "--config", "run.toml") == iknow(*ASSESS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[fit]\nlabl = 'y'", "[fit] has no option 'labl'; it has 'data', 'output'"),
        ("[fit]\nconfig = 'y'", "[fit] has no option 'config'"),
        ("[fits]\nlabel = 'y'", "'fits' is none of 'demo', 'fit'"),
        ("label = 'y'", "must hold a table for each command"),
        ("[fit]\nlabel = ['y']", "fit.label must be text or a number; got ['y']"),
        ("[fit]\nlabel = true", "fit.label must be text or a number; got True"),
        ("[fit]\ntrain = 'yes'", "fit.train must be true or false; got 'yes'"),
        ("[fit]\nlayer = [['a']]", "fit.layer must be texts or numbers; got ['a']"),
        ("[fit]\nlabel = 2026-01-01", "fit.label must be text or a number"),
        ("[fit", "cannot be read as TOML"),
        ("a = " + "[" * 5000, "cannot be read as TOML"),
        ("#" * (2 << 20), "larger than"),
    ],
)
def test_a_file_that_is_wrong_says_how(irises, iknow, text, message):
    (irises / "run.toml").write_text(text)
    assert message in iknow.fail("fit", "--config", "run.toml")


def test_names_with_a_line_break_are_an_invalid_command_line(irises, iknow):
    words = ["assess", "b.iknow", "test.csv", "--features", "a\nb"]
    assert "no list of names" in iknow.fail(*words, code=2)


def test_a_file_with_values_out_of_range_is_an_invalid_command_line(irises, iknow):
    (irises / "run.toml").write_text("[fit]\nn-neighbors = 0\ndata = 'a'\noutput = 'b'")
    assert "--n-neighbors" in iknow.fail("fit", "--config", "run.toml", code=2)
    (irises / "run.toml").write_bytes(b"\xff")
    assert "cannot be read as TOML" in iknow.fail("fit", "--config", "run.toml")
    assert "no file absent.toml" in iknow.fail("fit", "--config", "absent.toml")
    assert "no file ." in iknow.fail("fit", "--config", ".")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example(iknow, command):
    said = iknow(command, "--help")
    assert f" iknow {command} " in said.partition("example")[2]


def test_the_exit_codes_are_in_the_help(iknow):
    said = " ".join(iknow("--help").split())
    assert "0 success" in said
    assert "130 interrupted" in said
    assert all(f" {command} " in said for command in COMMANDS)


def complete(words, shell="bash"):
    code = "from iknow.cli.app import app; app(prog_name='iknow')"
    asked = {"_IKNOW_COMPLETE": f"complete_{shell}", "COMP_WORDS": words,
             "COMP_CWORD": str(len(words.split()) - 1)}  # fmt: skip
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True
    )


@pytest.mark.slow
def test_a_shell_completes_commands_and_options():
    ended = complete("iknow a")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split() == ["assess", "add", "audit"]
    ended = complete("iknow fit --false")
    assert ended.stdout.split() == ["--false-alarm"]


def test_info_says_what_a_bundle_is_and_needs_no_model(irises, iknow):
    pytest.importorskip("iknow.storage.info")
    iknow(*FIT, "--accuracy", "0.5", "--name", "irises", "--note", "for a test")
    said = " ".join(iknow("info", "new.iknow").split())
    for word in ("irises", "for a test", "LogisticRegression", "standardscaler", "3",
                 "IK begins at", "Guaranteed with confidence 0.95", "80 of training"):  # fmt: skip
        assert word in said
    told = json.loads(iknow("info", "new.iknow", "--json"))
    assert told["name"] == "irises"
    assert told["selection"]["certificate"]["accuracy"] == 0.5
    assert "not a bundle" in iknow.fail("info", "train.npz")
    assert "not a bundle" in iknow.fail("info", "absent.iknow")
