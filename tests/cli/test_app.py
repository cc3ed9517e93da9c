"""The command line, run as users run it, on files of every kind."""

import csv
import json
import re
import zipfile

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from iknow import EpistemicClassifier
from iknow.cli.app import app
from iknow.cli.report import renderer_by_name
from iknow.version import __version__
from tests.tables.making import write_table


def read_manifest_of(path):
    with zipfile.ZipFile(path) as bundle:
        return json.loads(bundle.read("manifest.json"))


@pytest.fixture(scope="module")
def wine():
    """Features, string labels and feature names, shuffled."""
    bunch = load_wine()
    order = np.random.default_rng(0).permutation(len(bunch.data))
    names = [name.replace("/", "_") for name in bunch.feature_names]
    return bunch.data[order], bunch.target_names[bunch.target][order], names


@pytest.fixture
def folder(tmp_path, wine, monkeypatch):
    """A working folder with wine in all formats and a fitted model."""
    monkeypatch.chdir(tmp_path)
    X, y, names = wine
    parts = {"train": slice(0, 90), "val": slice(90, 130), "test": slice(130, None)}
    for part, rows in parts.items():
        columns = {name: X[rows, i] for i, name in enumerate(names)} | {"kind": y[rows]}
        write_table(tmp_path / f"{part}.csv", columns)
        write_table(tmp_path / f"{part}.parquet", columns)
        np.savez(tmp_path / f"{part}.npz", X=X[rows], y=y[rows])
        np.save(tmp_path / f"{part}.npy", X[rows])
        np.save(tmp_path / f"{part}_labels.npy", y[rows])
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:90], y[:90])
    joblib.dump(model, tmp_path / "model.joblib")
    return tmp_path


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def succeed(*words):
    result = run(*words)
    assert result.exit_code == 0, result.output + result.stderr
    return result.output


def fail(*words):
    result = run(*words)
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output + result.stderr
    return " ".join(result.stderr.split())


FORMATS = {
    "csv": (["--label", "kind"], [], []),
    "parquet": (["--label", "kind"], [], []),
    "npz": ([], [], []),
    "npy": (
        ["--labels", "train_labels.npy"],
        ["--validation-labels", "val_labels.npy"],
        ["--labels", "test_labels.npy"],
    ),
}


@pytest.mark.parametrize("ending", FORMATS)
def test_fit_and_assess_work_on_every_format_as_the_library_does(folder, wine, ending):
    fit_labels, val_labels, test_labels = FORMATS[ending]
    if ending in ("csv", "parquet"):
        test_labels = fit_labels
    model = ["--model", "model.joblib"]
    said = succeed(
        "fit", f"train.{ending}", *fit_labels, "--validation", f"val.{ending}", *val_labels,
        *model, "-o", "wine.iknow",
    )  # fmt: skip
    assert "90 training samples of 3 classes" in said
    out = f"out.{'csv' if ending == 'npy' else ending}"
    said = succeed("assess", "wine.iknow", f"test.{ending}", *test_labels, *model, "-o", out)
    assert "48 samples, accuracy" in said

    X, y, _ = wine
    direct = EpistemicClassifier(FrozenEstimator(joblib.load("model.joblib")))
    direct.fit(X[:90], y[:90]).tune(X[90:130], y[90:130])
    assessment = direct.assess(X[130:])
    columns = _columns(folder / out)
    assert columns["belief"] == assessment.belief.tolist()
    assert columns["assertion"] == [("IDK", "IMK", "IK")[a] for a in assessment.assertion]
    nearest = assessment.evidence["standardscaler"].distances[:, :, 0]  # of each class
    own = nearest[np.arange(48), assessment.belief_codes]
    written = np.array(columns["standardscaler:for"], dtype=float)
    np.testing.assert_allclose(written, own, rtol=1e-12)


def test_a_device_says_the_same(folder):
    succeed(
        "fit", "train.csv", "--label", "kind", "--validation", "val.csv", "--model",
        "model.joblib", "-o", "wine.iknow",
    )  # fmt: skip
    asked = ["assess", "wine.iknow", "test.csv", "--label", "kind", "--model", "model.joblib"]
    assert succeed(*asked) == succeed(*asked, "--device", "cpu")
    succeed(*asked, "-o", "here.csv")
    succeed(*asked, "-o", "there.csv", "--device", "cpu")
    assert (folder / "here.csv").read_bytes() == (folder / "there.csv").read_bytes()
    assert "cannot use device 'abacus'" in fail(*asked, "--device", "abacus")


def _columns(path):
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: arrays[name].tolist() for name in arrays.files}
    if path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow.parquet")
        return pyarrow.read_table(path).to_pydict()
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_train_makes_a_model_holds_a_part_out_and_names_samples_by_their_row_in_the_file(folder):
    succeed(
        "fit", "train.csv", "--label", "kind", "--train", "--model", "new.joblib", "-o", "b.iknow",
        "--quorum", "1,3",
    )  # fmt: skip
    succeed(
        "assess",
        "b.iknow",
        "train.csv",
        "--label",
        "kind",
        "--model",
        "new.joblib",
        "-o",
        "out.csv",
    )
    columns = _columns(folder / "out.csv")
    at_zero = [
        (i, int(row))
        for i, (row, distance) in enumerate(
            zip(columns["hidden2:for_row"], columns["hidden2:for"], strict=True)
        )
        if float(distance) == 0
    ]
    # Every sample that was trained on finds itself, under its own number, at distance 0.
    assert len(at_zero) >= 0.7 * len(columns["belief"])
    assert len(at_zero) < len(columns["belief"])
    assert all(i == row for i, row in at_zero)


def test_columns_in_another_order_are_put_right(folder, wine):
    succeed(
        "fit", "train.csv", "--label", "kind", "--train", "--model", "m.joblib", "-o", "b.iknow"
    )
    X, y, names = wine
    backwards = {name: X[130:, i] for i, name in reversed(list(enumerate(names)))}
    write_table(folder / "back.csv", {"kind": y[130:]} | backwards)
    for name in ("test", "back"):
        succeed(
            "assess", "b.iknow", f"{name}.csv", "--label", "kind", "--model", "m.joblib",
            "-o", f"{name}_out.csv",
        )  # fmt: skip
    assert (folder / "test_out.csv").read_text() == (folder / "back_out.csv").read_text()


def test_precomputed_outputs_need_no_model(folder, wine):
    X, y, _ = wine
    model = joblib.load("model.joblib")
    for part, rows in {
        "train": slice(0, 90),
        "val": slice(90, 130),
        "test": slice(130, 178),
    }.items():
        arrays = {
            "scores": model.predict_proba(X[rows]),
            "layer:scaled": model[0].transform(X[rows]),
            "y": y[rows],
            "classes": model.classes_,
        }
        np.savez(folder / f"{part}_outputs.npz", **arrays)
    succeed("fit", "train_outputs.npz", "--validation", "val_outputs.npz", "-o", "b.iknow")
    assert "48 samples" in succeed("assess", "b.iknow", "test_outputs.npz")


def test_without_labels_the_accuracy_is_estimated_and_the_first_rows_shown(folder):
    succeed(
        "fit", "train.npz", "--validation", "val.npz", "--model", "model.joblib", "-o", "b.iknow"
    )
    said = succeed("assess", "b.iknow", "test.npy", "--model", "model.joblib")
    assert "48 samples without labels, estimated accuracy" in said
    assert "unlike anything seen before" in said
    assert "... and 38 more" in said
    for word in ("IK", "IMK", "IDK", "belief", "reason"):
        assert word in said


@pytest.mark.parametrize("rule", ["nearest", "ball-else-nearest", "ball-with-nearest"])
def test_rules_and_layers_can_be_chosen(folder, rule):
    said = succeed(
        "fit", "train.npz", "--validation", "val.npz", "--model", "model.joblib", "-o", "b.iknow",
        "--rule", rule, "--k", "3", "--layer", "standardscaler",
    )  # fmt: skip
    assert "standardscaler" in said
    assert "k=3" in said
    manifest = read_manifest_of(folder / "b.iknow")
    assert list(manifest["layers"]) == ["standardscaler"]
    assert manifest["layers"]["standardscaler"]["neighborhood"]["k"] == 3


def test_a_function_in_the_working_folder_can_make_the_model(folder):
    (folder / "mine.py").write_text(
        "import joblib\n\ndef build():\n    return joblib.load('model.joblib')\n"
    )
    succeed("fit", "train.npz", "--validation", "val.npz", "--model", "mine:build", "-o", "b.iknow")
    assert "48 samples" in succeed("assess", "b.iknow", "test.npz", "--model", "model.joblib")


def test_a_torch_module_can_be_wrapped(folder, wine):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(13, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    torch.nn.init.zeros_(module[2].weight)  # it always says the same
    torch.save(module, folder / "net.pt")
    codes = np.unique(wine[1], return_inverse=True)[1]
    np.savez(folder / "t.npz", X=wine[0][:130], y=codes[:130])
    said = succeed(
        "fit", "t.npz", "--hold-out", "0.3", "--model", "net.pt", "-o", "b.iknow", "--layer", "0"
    )
    assert "Ball" in said
    assert "130 samples" in succeed("assess", "b.iknow", "t.npz", "--model", "net.pt")


def test_nan_in_the_data_to_assess_is_invalid_and_in_training_an_error(folder, wine):
    X, y, _ = wine
    broken = X[130:].copy()
    broken[2, 5] = np.nan
    np.savez(folder / "broken.npz", X=broken)
    succeed(
        "fit", "train.npz", "--validation", "val.npz", "--model", "model.joblib", "-o", "b.iknow"
    )
    succeed("assess", "b.iknow", "broken.npz", "--model", "model.joblib", "-o", "out.csv")
    columns = _columns(folder / "out.csv")
    assert [i for i, reason in enumerate(columns["reason"]) if reason == "INVALID"] == [2]
    np.savez(folder / "broken.npz", X=broken, y=y[130:])
    said = fail(
        "fit", "broken.npz", "--validation", "val.npz", "--model", "model.joblib", "-o", "c.iknow"
    )
    assert "row 2" in said
    assert not (folder / "c.iknow").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "train.csv", "-o", "b.iknow", "--model", "model.joblib"], "has no labels"),
        (["fit", "train.npy", "-o", "b.iknow", "--model", "model.joblib"], "has no labels"),
        (["fit", "absent.csv", "-o", "b.iknow", "--model", "model.joblib"], "absent.csv"),
        (["fit", "train.npz", "-o", "b.iknow"], "--hold-out"),
        (["fit", "train.npz", "-o", "b.iknow", "--hold-out", "0.2"], "--model"),
        (["fit", "train.npz", "-o", "b", "--hold-out", "2", "--model", "model.joblib"], "between"),
        (["fit", "train.npz", "-o", "b", "--hold-out", "0.2", "--model", "no.joblib"], "no.joblib"),
        (["fit", "train.npz", "-o", "b", "--hold-out", "0.2", "--model", "train.npy"], "expected"),
        (["fit", "train.npz", "-o", "b", "--hold-out", "0.2", "--model", "no_such:x"], "ModuleNot"),
        (["fit", "train.npz", "-o", "b", "--train", "--model", "model.onnx"], "must end in"),
        (
            ["fit", "train.npz", "-o", "b", "--hold-out", "0.2", "--model", "model.joblib",
             "--layer", "hidden9"],
            "no layer 'hidden9'",
        ),
        (["assess", "absent.iknow", "test.npz"], "not a bundle"),
        (["demo", "--left-out", "12"], "0 to 9"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_a_line(folder, words, message):
    assert message in fail(*words)


def test_a_file_that_is_no_model_is_refused(folder):
    (folder / "junk.joblib").write_bytes(b"junk")
    words = ["fit", "train.npz", "-o", "b", "--hold-out", "0.2", "--model", "junk.joblib"]
    assert "cannot be loaded" in fail(*words)


def test_inputs_without_their_model_are_refused(folder):
    succeed(
        "fit", "train.npz", "--validation", "val.npz", "--model", "model.joblib", "-o", "b.iknow"
    )
    assert "--model" in fail("assess", "b.iknow", "test.npz")


def test_another_model_is_refused(folder, wine):
    succeed(
        "fit", "train.npz", "--validation", "val.npz", "--model", "model.joblib", "-o", "b.iknow"
    )
    X, y, _ = wine
    joblib.dump(LogisticRegression(C=0.1).fit(X[:60] / 100, y[:60]), folder / "other.joblib")
    assert "another model" in fail("assess", "b.iknow", "test.npz", "--model", "other.joblib")


def test_columns_unknown_to_the_model_are_named(folder, wine):
    succeed(
        "fit", "train.csv", "--label", "kind", "--train", "--model", "m.joblib", "-o", "b.iknow"
    )
    X, _, names = wine
    renamed = {("acid" if i == 0 else name): X[130:, i] for i, name in enumerate(names)}
    write_table(folder / "renamed.csv", renamed)
    said = fail("assess", "b.iknow", "renamed.csv", "--model", "m.joblib")
    assert f"missing: {names[0]!r}" in said
    assert "unknown: 'acid'" in said


def test_demo_prints_the_table_and_three_explanations_and_writes_a_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = succeed("demo")
    assert said.rstrip().endswith("iknow-demo.html")
    page = (tmp_path / "iknow-demo.html").read_text("utf-8")
    assert "<title>A digit reader that has never seen a 4</title>" in page
    assert "404 clean digits that were held out, and 181 images of the digit 4" in page
    for method in ("softmax", "Nearest", "Ball", "BallElseNearest", "BallWithNearest", "levels"):
        assert method in said
    for condition in ("clean", "Gaussian noise", "large noise", "unseen digit"):
        assert condition in said
    assert "IK begins at level 0." in flat(said)
    told = flat(said.replace("│", ""))
    assert (
        len(re.findall(r"\((?:confidence|\w+ in \w+) (?:decides|is closest to failing)\)", told))
        == 3
    )
    for word in (" IK ", " IMK ", " IDK ", "asked about", "nearest other", "Extrapolation"):
        assert word in said


def test_version_and_help():
    assert succeed("--version").strip() == f"iknow {__version__}"
    said = succeed("--help")
    assert all(command in said for command in ("demo", "fit", "assess", "report"))


def fit_wine(*more, ending="csv"):
    label = ["--label", "kind"] if ending == "csv" else []
    return succeed(
        "fit", f"train.{ending}", "--validation", f"val.{ending}", *label,
        "--model", "model.joblib", "-o", "wine.iknow", *more,
    )  # fmt: skip


def facts_of(page):
    """What a report's script is told."""
    text = re.search(r'<script type="application/json" id="facts">(.*?)</script>', page, re.S)[1]
    return json.loads(text)


@pytest.mark.parametrize("training", [[], ["--training", "train.csv"]], ids=["stored", "given"])
def test_a_report_shows_samples_beside_exemplars(folder, wine, training):
    fit_wine("--layer", "input", "--layer", "output")
    words = ["report", "wine.iknow", "test.csv", "--label", "kind", "--model", "model.joblib"]
    said = succeed(*words, *training)
    assert "48 samples" in said
    assert said.rstrip().endswith("report.html")
    facts = facts_of((folder / "report.html").read_text("utf-8"))
    assert facts["n"] == 48
    assert [layer["name"] for layer in facts["layers"]] == ["input", "output"]
    assert facts["names"] == [wine[2]]
    assert facts["arrays"]["trainingRows"]["length"] > 10


def test_a_report_can_be_by_some_layers_and_without_labels(folder):
    fit_wine("--layer", "input", "--layer", "output", ending="npz")
    succeed(
        "report", "wine.iknow", "test.npy", "--model", "model.joblib", "--layer", "output",
        "-o", "some/where.html",
    )  # fmt: skip
    page = (folder / "some" / "where.html").read_text("utf-8")
    assert [layer["name"] for layer in facts_of(page)["layers"]] == ["output"]
    assert "The true labels were not given" in page


def test_layers_that_a_bundle_has_no_evidence_for_are_refused(folder):
    fit_wine("--layer", "input", ending="npz")
    words = ["report", "wine.iknow", "test.npz", "--model", "model.joblib"]
    said = fail(*words, "--layer", "hidden1")
    assert "there is evidence for the layers 'input'; asked for 'hidden1'" in said
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize(
    "show", ["picture", "image", "image:8", "image:axb", "image:0x0", "features:3", "series:x"]
)
def test_what_samples_cannot_look_like_is_refused(folder, show):
    words = ["report", "wine.iknow", "test.npz", "--model", "model.joblib"]
    said = fail(*words, "--show", show)
    assert "--show must be image:HxW" in said
    assert repr(show) in said


@pytest.mark.parametrize("show", ["image:13x1", "image:1x13x1", "series", "series:1", "features"])
def test_samples_look_as_they_are_said_to(show):
    picture = renderer_by_name(show)(np.linspace(0, 1, 13))
    assert type(picture).__name__.lower() == show.partition(":")[0]


def test_a_report_on_precomputed_outputs_has_distances_and_no_pictures(folder, wine):
    X, y, _ = wine
    np.savez(folder / "t.npz", scores=np.eye(3)[np.unique(y, return_inverse=True)[1]][:90],
             **{"layer:body": X[:90]}, y=y[:90], classes=np.unique(y))  # fmt: skip
    succeed("fit", "t.npz", "--hold-out", "0.3", "-o", "b.iknow")
    succeed("report", "b.iknow", "t.npz")
    page = (folder / "report.html").read_text("utf-8")
    assert "No robustness against changed inputs is certified." in page


def flat(text):
    """A text without the line breaks of the terminal."""
    return " ".join(text.split())


def test_a_coverage_can_be_matched_and_an_accuracy_guaranteed(folder):
    words = ["fit", "train.npz", "--validation", "val.npz", "--model", "model.joblib"]
    said = flat(succeed(*words, "-o", "b.iknow", "--coverage", "0.5"))
    assert "RelativeBall" in said
    assert "coverage 50.0%" in said
    assert "Nothing is guaranteed: ask for that with --accuracy or --false-alarm" in said
    said = flat(succeed(*words, "-o", "b.iknow", "--accuracy", "0.5"))
    assert "Guaranteed with confidence 0.95: accuracy on IK at least 0.5" in said
    assert "Nothing is guaranteed" not in said
    manifest = read_manifest_of(folder / "b.iknow")
    assert manifest["selection"]["certificate"]["accuracy"] == 0.5
    assert "takes at least 299 IK samples" in fail(*words, "-o", "c.iknow", "--accuracy", "0.99")
    assert not (folder / "c.iknow").exists()


def coverage_in(said):
    return float(re.search(r"coverage ([\d.]+)%", said)[1])


def test_without_a_goal_it_says_what_could_not_be_guaranteed(folder):
    said = flat(fit_wine())
    assert coverage_in(said) == pytest.approx(75, abs=2.5)  # levels tie: one sample of 40
    assert "Nothing is guaranteed: too few samples" in said


def test_false_alarms_can_be_bounded_without_labels(folder, wine):
    X, _, _ = wine
    np.save(folder / "unlabeled.npy", X[90:])
    words = ["fit", "train.npz", "--model", "model.joblib", "-o", "b.iknow"]
    words += ["--validation", "unlabeled.npy"]
    said = flat(succeed(*words, "--false-alarm", "0.1"))
    assert "Guaranteed: an ordinary sample is not IK with probability 0.1 at most" in said
    assert "accuracy on it" not in said
    assert coverage_in(succeed(*words, "--coverage", "0.8")) == pytest.approx(80, abs=2.5)
    assert "has no labels" in fail(*words)
    assert "has no labels" in fail(*words, "--accuracy", "0.5")
    assert "has no labels" in fail(*words, "--coverage", "0.8", "--rule", "nearest")


def test_reference_samples_lay_the_path(folder, wine):
    X, y, _ = wine
    np.save(folder / "ordinary.npy", X[130:170])
    said = fit_wine("--coverage", "0.5", "--reference", "ordinary.npy", ending="npz")
    assert coverage_in(said) == pytest.approx(50, abs=2.5)
    made = EpistemicClassifier.load("wine.iknow", joblib.load("model.joblib"))
    direct = EpistemicClassifier(FrozenEstimator(joblib.load("model.joblib")))
    direct.fit(X[:90], y[:90]).tune(X[90:130], coverage=0.5, reference=X[130:170])
    assert made.neighborhoods_ == direct.neighborhoods_
    pairs = zip(made.selection_.levels.voices, direct.selection_.levels.voices, strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(one.reference, other.reference)
    words = ["fit", "train.npz", "--validation", "val.npz", "--model", "model.joblib"]
    said = fail(*words, "-o", "c.iknow", "--paper", "--reference", "ordinary.npy")
    assert "reference need a rule with levels" in said
    assert "is an input and would be lost" in fail(
        *words, "-o", "ordinary.npy", "--reference", "ordinary.npy"
    )


@pytest.mark.parametrize(
    ("given", "stored"), [("3", [3, 3]), ("1,3", [1, 3]), (" 2, 5 ", [2, 5]), ("1", None)]
)
def test_a_quorum_can_be_chosen(folder, given, stored):
    fit_wine("--quorum", given, "--layer", "standardscaler")
    manifest = read_manifest_of(folder / "wine.iknow")
    rule = manifest["layers"]["standardscaler"]["neighborhood"]
    assert rule.get("quorum") == stored


@pytest.mark.parametrize("quorum", ["", "x", "1,2,3", "-1", "1.5", "1,", ",3", "9" * 50, "²"])
def test_what_is_no_quorum_is_refused(folder, quorum):
    result = run("fit", "train.npz", "--quorum", quorum, "-o", "b.iknow", "--train", "--model", "m")
    assert result.exit_code == 2
    assert "--quorum" in result.stderr


def test_a_quorum_of_none_is_refused(folder):
    words = ["fit", "train.npz", "--hold-out", "0.3", "--model", "model.joblib", "-o", "b.iknow"]
    assert "a quorum must be a whole number >= 1" in fail(*words, "--quorum", "0")
    assert "a quorum must be a whole number >= 1" in fail(*words, "--quorum", "1,0")


def test_the_papers_method_is_a_preset(folder, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")  # bundles say when they were made
    fit_wine("--paper", "--layer", "standardscaler")
    published = read_manifest_of(folder / "wine.iknow")
    fit_wine("--rule", "ball", "--layer", "standardscaler")
    assert read_manifest_of(folder / "wine.iknow") == published
    assert published["settings"]["rule"] == "Ball"
    fit_wine("--layer", "standardscaler")
    assert read_manifest_of(folder / "wine.iknow")["settings"]["rule"] == "RelativeBall"
    result = run("fit", "train.npz", "--paper", "--rule", "nearest", "-o", "b.iknow")
    assert result.exit_code == 2
    assert "leave one out" in flat(result.stderr)


def test_levels_are_written_and_shown_where_there_are_levels(folder, wine):
    fit_wine(ending="npz")
    words = ["assess", "wine.iknow", "test.npz", "--model", "model.joblib"]
    assert re.search(r"reason +level +probability", succeed(*words))
    succeed(*words, "-o", "out.csv")
    columns = _columns(folder / "out.csv")
    loaded = EpistemicClassifier.load("wine.iknow", joblib.load("model.joblib"))
    assessment = loaded.assess(wine[0][130:])
    for name in ("level", "probability"):
        np.testing.assert_array_equal(
            np.array(columns[name], dtype=float), getattr(assessment, name)
        )
    assert columns["weakest"] == assessment.weakest.tolist()
    known = np.array(columns["level"], dtype=float) >= loaded.selection_.level
    assert [each == "IK" for each in columns["assertion"]] == known.tolist()
    fit_wine("--paper", ending="npz")
    assert "level" not in succeed(*words)
    succeed(*words, "-o", "out.csv")
    assert not {"level", "weakest", "probability"} & set(_columns(folder / "out.csv"))


def test_a_layer_is_named_as_it_is_and_not_as_markup(folder, wine):
    """Names of layers come from files: they must not style or control the terminal."""
    codes = np.unique(wine[1], return_inverse=True)[1]
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(len(codes), 2))
    place = np.eye(3)[codes] + 0.01 * rng.normal(size=(len(codes), 3))
    for part, rows in {"t": slice(0, 90), "v": slice(90, None)}.items():
        layers = {"layer:a": place[rows], "layer:[red]b\x1b[/red]": noise[rows]}
        np.savez(folder / f"{part}.npz", scores=np.eye(3)[codes][rows], y=codes[rows], **layers)
    said = succeed("fit", "t.npz", "--validation", "v.npz", "--coverage", "0.5", "-o", "b.iknow")
    assert "in [red]b\\x1b[/red]: " in flat(said)
    assert "\x1b" not in said
    assert "90 samples" in succeed("assess", "b.iknow", "t.npz")
