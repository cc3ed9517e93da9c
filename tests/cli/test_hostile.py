"""The faults of the command line that were found from outside, one by one."""

import csv
import os
import subprocess
import sys
import zipfile

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from iknow import EpistemicClassifier
from iknow.cli.app import app
from iknow.cli.errors import BUG, describe
from tests.tables.making import write_table

MAIN = "from iknow.cli.app import app; app()"
ASSESS = ["assess", "b.iknow", "test.npz", "--model", "model.joblib"]
FIT = ["fit", "train.npz", "--hold-out", "0.3", "--model", "model.joblib", "-o", "new.iknow"]
TRAIN = ["fit", "train.npz", "--train", "-o", "new.iknow", "--model"]
REPORT = ["report", "b.iknow", "test.npz", "--model", "model.joblib"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with data, a model and a bundle."""
    root = tmp_path_factory.mktemp("made")
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], load_iris().target_names[y[order]]
    model = LogisticRegression(max_iter=1000).fit(X[:80], y[:80])
    joblib.dump(model, root / "model.joblib")
    for part, rows in {
        "train": slice(0, 80),
        "val": slice(80, 120),
        "test": slice(120, 150),
    }.items():
        np.savez(root / f"{part}.npz", X=X[rows], y=y[rows])
        np.savez(root / f"{part}_made.npz", scores=model.predict_proba(X[rows]), y=y[rows],
                 classes=model.classes_, **{"layer:a": X[rows]})  # fmt: skip
    classifier = EpistemicClassifier(FrozenEstimator(model), progress=False)
    classifier.fit(X[:80], y[:80]).save(root / "untuned.iknow")
    classifier.tune(X[80:120], y[80:120]).save(root / "b.iknow")
    return root


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A copy of it, as the working folder."""
    subprocess.run(["cp", "-a", f"{made}/.", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fail(*words, code=1):
    """The one line that a command fails with."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output + result.stderr
    assert "Traceback" not in result.output + result.stderr
    lines = result.stderr.strip().split("\n")
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert len(lines[0]) <= 2000
    assert lines[0].isprintable()
    return lines[0]


def succeed(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output + result.stderr
    return result.output


def process(*words, **how):
    environment = {**os.environ, "NO_COLOR": "1", **how.pop("environment", {})}
    return subprocess.run(
        [sys.executable, "-c", MAIN, *words], env=environment, text=True, timeout=120, **how
    )


def test_another_number_of_features_is_told_with_both(folder):
    np.save("wide.npy", np.zeros((3, 7)))
    said = fail("assess", "b.iknow", "wide.npy", "--model", "model.joblib")
    assert "takes 4 features; the file has 7" in said
    np.savez("wide.npz", X=np.zeros((30, 7)), y=np.arange(30) % 2)
    fit = ["fit", "wide.npz", "--hold-out", "0.3", "--model", "model.joblib", "-o", "c.iknow"]
    assert "4 features" in fail(*fit)


def test_a_models_outputs_and_its_inputs_are_not_mixed_up(folder):
    words = ["assess", "b.iknow", "test_made.npz", "--model", "model.joblib"]
    assert "leave out --model" in fail(*words)
    fit = ["fit", "train.npz", "--model", "model.joblib", "-o", "c.iknow"]
    assert "both files must hold the model's inputs" in fail(*fit, "--validation", "val_made.npz")
    assert "both files must hold the model's inputs" in fail(
        "fit", "train_made.npz", "--validation", "val.npz", "-o", "c.iknow"
    )


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        (":x", "", "package.module:name"),
        ("theirs:", "", "package.module:name"),
        ("..theirs:x", "", "package.module:name"),
        ("theirs:x", "1 / 0", "ZeroDivisionError: division by zero"),
        ("theirs:x", "import sys; sys.exit(5)", "SystemExit: 5"),
        ("theirs:x", "def x(): return x()", "RecursionError"),
        ("theirs:x", "def x(): raise OSError(5, 'odd')", "odd"),
        ("theirs:x", "raise ValueError('x' * 9_000_000)", "… (9,000,0"),
        ("theirs:x", "raise ValueError('[/red] \\x1b[31m \\u202e')", "[/red] \\x1b[31m \\u202e"),
    ],
)  # fmt: skip
def test_a_module_without_a_model_is_told(folder, name, code, message):
    sys.modules.pop("theirs", None)
    (folder / "theirs.py").write_text(code)
    assert message in fail(
        "fit", "train.npz", "--hold-out", "0.3", "--model", name, "-o", "c.iknow"
    )
    sys.modules.pop("theirs", None)


class Moody(LogisticRegression):
    """A fitted classifier that fails when it is asked."""

    def predict(self, X):
        raise KeyError("[/red]\x1b[31m" * 1000)


def test_what_a_model_raises_is_told_as_the_models(folder):
    with np.load("train.npz") as arrays:
        joblib.dump(Moody(max_iter=1000).fit(arrays["X"], arrays["y"]), "moody.joblib")
    words = ["fit", "train.npz", "--hold-out", "0.3", "--model", "moody.joblib", "-o", "c.iknow"]
    said = fail(*words)
    assert said.startswith("error: the model raised KeyError: ")
    assert "IKNOW_DEBUG=1" in said


def test_a_bug_is_not_blamed_on_the_user_and_debugging_shows_where(folder, monkeypatch):
    def broken(*_, **__):
        raise KeyError("of iknow's own")

    assert describe(KeyError("x"))[1] == BUG
    monkeypatch.setattr("iknow.cli.assess.assess_table", broken)
    said = fail(*ASSESS, code=BUG)
    assert "Please report it" in said
    monkeypatch.setenv("IKNOW_DEBUG", "1")
    shown = CliRunner().invoke(app, ASSESS)
    assert "Traceback" in shown.stderr
    assert "in broken" in shown.stderr


def test_seeds_are_numbers_that_there_is_a_generator_for(folder):
    for seed in ("-1", str(2**32)):
        assert "--random-state" in fail(*FIT, "--random-state", seed, code=2)


def test_markup_and_control_characters_in_names_are_shown_as_they_are(folder):
    (folder / "[").mkdir()
    for name in ("[/red].npz", "\x1b[31m\u202e.npz", os.fsdecode(b"\xff.npz")):
        os.link("test.npz", name)
        succeed("assess", "b.iknow", name, "--model", "model.joblib")
        shown = succeed("report", "b.iknow", name, "--model", "model.joblib", "-o", f"{name}.html")
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        os.unlink(name)
        fail("assess", "b.iknow", name, "--model", "model.joblib")
    assert "[/red].html" in shown or "\\udcff.npz.html" in shown


def test_labels_do_not_reach_the_terminal_raw_and_csv_holds_no_formulas(folder):
    evil = np.array(["=cmd|' /C calc'!A0", "\x1b[31mred\u202e[/red]", "-1.5"])
    with np.load("train.npz") as arrays:
        X, y = arrays["X"], evil[np.unique(arrays["y"], return_inverse=True)[1]]
    np.savez("evil.npz", X=X, y=y)
    joblib.dump(LogisticRegression(max_iter=1000).fit(X, y), "evil.joblib")
    words = ["evil.npz", "--model", "evil.joblib"]
    succeed("fit", *words, "-o", "evil.iknow", "--hold-out", "0.3")
    shown = succeed("assess", "evil.iknow", *words)
    assert "\\x1b[31mred\\u202e[/red]" in shown
    assert "\x1b" not in shown
    succeed("assess", "evil.iknow", *words, "-o", "out.csv")
    with open("out.csv", newline="", encoding="utf-8") as file:
        beliefs = {row["belief"] for row in csv.DictReader(file)}
    assert beliefs == {"'=cmd|' /C calc'!A0", "\x1b[31mred\u202e[/red]", "-1.5"}
    succeed("assess", "evil.iknow", *words, "-o", "out.npz")
    with np.load("out.npz") as arrays:
        assert set(arrays["belief"].tolist()) == set(evil.tolist())


def test_an_untuned_bundle_says_what_it_lacks(folder):
    words = ["assess", "untuned.iknow", "test.npz", "--model", "model.joblib"]
    assert "the bundle has no neighborhoods: tune before saving" in fail(*words)


@pytest.mark.parametrize("command", [ASSESS, REPORT], ids=["assess", "report"])
def test_loops_of_links_folders_and_pipes_are_told(folder, command):
    os.symlink("two.npz", "one.npz")
    os.symlink("one.npz", "two.npz")
    os.mkfifo("pipe.npz")
    for name in ("one.npz", "pipe.npz", "absent.npz"):
        fail(*[name if word == "test.npz" else word for word in command])
    os.symlink("loop.html", "loop.html")
    os.symlink("loop.csv", "loop.csv")
    fail(*command, "-o", "loop.csv" if command is ASSESS else "loop.html")
    for output in ("/", ".", ""):
        line = fail(*command, "-o", output)
        assert "is a folder" in line or command is ASSESS


def test_a_report_is_not_written_over_a_table(folder):
    before = (folder / "train.npz").read_bytes()
    assert "must end in .html" in fail(*REPORT, "-o", "train.npz")
    assert (folder / "train.npz").read_bytes() == before


def bomb(path, n_values):
    """An archive of a few kilobytes that claims, and unpacks into, so many zeros."""
    head = repr({"descr": "<f8", "fortran_order": False, "shape": (n_values,)}).encode() + b"\n"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("X.npy", "w", force_zip64=True) as member,
    ):
        member.write(b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head)
        for _ in range(n_values // 10**6):
            member.write(bytes(8 * 10**6))


def test_what_does_not_fit_into_memory_is_refused_before_it_is_read(folder, monkeypatch):
    bomb("bomb.npz", 10**7)
    assert os.path.getsize("bomb.npz") < 200_000
    monkeypatch.setattr("iknow.tables.table.free_memory", lambda: 100_000_000)
    said = fail("report", "b.iknow", "bomb.npz", "--model", "model.joblib")
    assert "would take 0.2 GB of memory, and 0.1 GB are free" in said
    head = repr({"descr": "<f8", "fortran_order": False, "shape": (10**9, 4)}).encode() + b"\n"
    with open("sparse.npy", "wb") as file:
        file.write(b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head)
        file.truncate(32 * 10**9)
    assert "GB of memory" in fail("report", "b.iknow", "sparse.npy", "--model", "model.joblib")


def test_files_of_nul_bytes_are_told(folder):
    for ending in ("csv", "npy", "npz", "parquet"):
        (folder / f"nul.{ending}").write_bytes(bytes(5000))
        fail("assess", "b.iknow", f"nul.{ending}", "--model", "model.joblib")
    (folder / "nul.joblib").write_bytes(bytes(5000))
    assert "cannot be loaded" in fail(*ASSESS[:3], "--model", "nul.joblib")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is full")
def test_a_full_or_closed_stdout_is_told_in_a_line(folder):
    with open("/dev/full", "w") as full:
        for words in (["--version"], ASSESS):
            ended = process(*words, stdout=full, stderr=subprocess.PIPE)
            assert ended.returncode == 1
            assert ended.stderr.count("\n") == 1, ended.stderr
            assert ended.stderr.startswith("error: ")
        assert process("--version", stdout=full, stderr=full).returncode == 1
    piped = f"{sys.executable} -c '{MAIN}' --help | true"
    ended = subprocess.run(piped, shell=True, capture_output=True, text=True, timeout=120)
    assert ended.stderr == ""
    closed = f"{sys.executable} -c '{MAIN}' --version >&-"
    ended = subprocess.run(closed, shell=True, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_terminal_of_another_language_is_shown_what_it_can_show():
    ended = process("--help", capture_output=True, environment={"PYTHONIOENCODING": "ascii"})
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("output", ["{}", "./{}", "other/../{}", "link{}", "hard{}"])
@pytest.mark.parametrize("read", ["data.npz", "labels.csv", "validation.npz"])
def test_nothing_that_is_read_is_written_over(folder, output, read):
    (folder / "other").mkdir()
    os.rename("train.npz", "data.npz")
    os.rename("val.npz", "validation.npz")
    with np.load("data.npz") as arrays:
        write_table("labels.csv", {"y": arrays["y"]})
    os.symlink(read, f"link{read}")
    os.link(read, f"hard{read}")
    before = (folder / read).read_bytes()
    words = ["fit", "data.npz", "--labels", "labels.csv", "--validation", "validation.npz"]
    said = fail(*words, "--model", "model.joblib", "-o", output.format(read))
    assert "is an input and would be lost" in said
    assess = ["assess", "b.iknow", read if read != "labels.csv" else "data.npz"]
    assess += ["--labels", "labels.csv"] if read == "labels.csv" else []
    said = fail(*assess, "--model", "model.joblib", "-o", output.format(read))
    assert "is an input and would be lost" in said
    assert (folder / read).read_bytes() == before


def test_neither_the_model_nor_the_bundle_is_written_over(folder):
    def content():
        return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    before = content()
    assert "would be lost" in fail(*FIT[:-1], "model.joblib")
    assert "would be lost" in fail(*FIT[:-1], "./model.joblib")
    fail(*ASSESS, "-o", "b.iknow/new.csv")
    fail(*REPORT, "-o", "b.iknow/new.html")
    assert "would be lost" in fail(*TRAIN, "new.iknow/model.joblib")
    (folder / "theirs.py").write_text("def build(): ...")
    assert "would be lost" in fail(*FIT[:5], "theirs:build", "-o", "theirs.py")
    (folder / "theirs.py").unlink()
    assert content() == before


def test_training_writes_over_a_model_only_when_told_to(folder):
    before = (folder / "model.joblib").read_bytes()
    said = fail(*TRAIN, "model.joblib")
    assert "the model model.joblib already exists" in said
    assert "--force" in said
    assert (folder / "model.joblib").read_bytes() == before
    assert not (folder / "new.iknow").exists()
    succeed(*TRAIN, "model.joblib", "--force")
    assert (folder / "model.joblib").read_bytes() != before
    succeed("assess", "new.iknow", "test.npz", "--model", "model.joblib")


def test_a_model_that_led_to_no_bundle_is_not_kept(folder):
    fail(*TRAIN, "fresh.joblib", "--accuracy", "0.9999")
    assert not (folder / "fresh.joblib").exists()


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="there are no devices")
def test_devices_and_pipes_are_written_into(folder):
    ended = process(*ASSESS, "-o", "/dev/stdout", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert ended.returncode == 0, ended.stderr
    written = folder / "there.csv"
    succeed(*ASSESS, "-o", written)
    assert ended.stdout == written.read_text()
    succeed(*ASSESS, "-o", "/dev/null")
    succeed(*REPORT, "-o", "/dev/null")
    assert not os.path.isfile("/dev/null")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="there are no devices")
def test_what_people_are_told_stays_out_of_the_stream_that_the_result_goes_to(folder):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    assessed = process(*ASSESS, "-o", "/dev/stdout", **pipes)
    assert len(list(csv.DictReader(assessed.stdout.splitlines()))) == 30
    assert "accuracy" in assessed.stderr
    assert "Written to /dev/stdout" in assessed.stderr
    reported = process(*REPORT, "-o", "/dev/stdout", **pipes)
    assert reported.stdout.lstrip().lower().startswith("<!doctype html>")
    assert reported.stdout.rstrip().endswith("</html>")
    assert "accuracy" in reported.stderr
    assert "browser" not in reported.stderr
    words = [sys.executable, "-c", MAIN, *FIT[:-1], "/dev/stdout"]
    (folder / "piped.iknow").write_bytes(subprocess.run(words, capture_output=True).stdout)
    succeed("assess", "piped.iknow", "test.npz", "--model", "model.joblib")


def test_a_model_that_answers_otherwise_is_taken_if_one_insists(folder):
    X, y = np.load("train.npz")["X"], np.load("train.npz")["y"]
    joblib.dump(LogisticRegression(C=0.01, max_iter=1000).fit(X, y), "other.joblib")
    for command in ("assess", "report"):
        words = [command, "b.iknow", "test.npz", "--model", "other.joblib"]
        assert "--no-check-model" in fail(*words)
        succeed(*words, "--no-check-model")
