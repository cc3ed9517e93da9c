"""`iknow compare`, run as users run it."""

import json

import joblib
import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from typer.testing import CliRunner

from iknow.cli.app import app
from tests.tables.making import write_table

FILES = ("model.joblib", "train.npz", "val.npz", "test.npz")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made")
    bunch = load_wine()
    order = np.random.default_rng(0).permutation(len(bunch.data))
    X, y = bunch.data[order], bunch.target_names[bunch.target][order]
    names = [name.replace("/", "_") for name in bunch.feature_names]
    for part, rows in {"train": slice(80), "val": slice(80, 130), "test": slice(130, None)}.items():
        np.savez(root / f"{part}.npz", X=X[rows], y=y[rows])
        np.save(root / f"{part}.npy", X[rows])
        np.save(root / f"{part}_labels.npy", y[rows])
        columns = {name: X[rows, i] for i, name in reversed(list(enumerate(names)))}
        write_table(root / f"{part}.csv", columns | {"kind": y[rows]})
    np.savez(root / "zeros.npz", X=np.zeros((9, X.shape[1])))
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:80], y[:80])
    joblib.dump(model, root / "model.joblib")
    return root


@pytest.fixture
def folder(made, monkeypatch):
    monkeypatch.chdir(made)
    return made


def run(*words):
    return CliRunner().invoke(app, ["compare", *map(str, words)])


def fail(*words):
    result = run(*words)
    assert result.exit_code == 1, result.output
    return " ".join(result.stderr.split())


def test_the_table_the_json_and_the_page(folder):
    result = run(
        *FILES, "--set", "again=test.npz", "--foreign", "nothing=zeros.npz", "--coverage", 0.5,
        "--accuracy", 0.8, "--json", "all.json", "--html", "page.html",
    )  # fmt: skip
    assert result.exit_code == 0, result.output + result.stderr
    found = json.loads((folder / "all.json").read_text())
    assert found["sets"][0] == "test"
    assert found["sets"][-2:] == ["again", "nothing"]
    assert found["coverages"] == [0.5]
    place = found["sets"].index("again")
    assert [each[place] for each in found["wrong"]] == [each[0] for each in found["wrong"]]
    assert found["errors"][-1] == 1
    assert "Set by set, at coverage 0.5" in result.output
    assert "Trust Score (input)" in result.output
    assert "Written to all.json" in result.output
    page = (folder / "page.html").read_text()
    assert "<title>model and its peers on test.npz</title>" in page
    assert page.count('id="comparison"') == 1


def test_labels_from_files_of_their_own_and_from_columns(folder):
    labels = [f"--{part}-labels={file}_labels.npy" for part, file in
              (("training", "train"), ("validation", "val"), ("test", "test"))]  # fmt: skip
    plain = run(*FILES)
    assert plain.exit_code == 0, plain.output + plain.stderr
    assert run("model.joblib", "train.npy", "val.npy", "test.npy", *labels).output == plain.output


def test_columns_come_in_the_models_order(folder):
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv("train.csv")
    model = make_pipeline(StandardScaler(), LogisticRegression())
    joblib.dump(model.fit(table.drop(columns="kind")[sorted(table)[:5]], table["kind"]), "few.pkl")
    said = fail("few.pkl", "train.csv", "val.csv", "test.csv", "--label", "kind")
    assert "missing: none; unknown: 'proline'" in said
    joblib.dump(model.fit(table.drop(columns="kind"), table["kind"]), "all.pkl")
    result = run("all.pkl", "train.csv", "val.csv", "test.csv", "--label", "kind")
    assert result.exit_code == 0, result.output + result.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--set", "test.npz"], "--set must be NAME=FILE"),
        (["--set", "a=test.npz", "--set", "a=val.npz"], "'a' twice"),
        (["--set", "test=test.npz"], "different names"),
        (["--set", "a=zeros.npz"], "zeros.npz has no labels"),
        (["--foreign", "a=missing.npz"], "missing.npz"),
        (["--json", "test.npz"], "is an input and would be lost"),
        (["--html", "page.csv"], "must end in .html"),
        (["--accuracy", "1.5"], "accuracy must lie between"),
        (["--coverage", "1.5"], "coverage"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(folder, words, expected):
    assert expected in fail(*FILES, *words)


def test_a_table_of_strings_dates_and_gaps_is_compared(folder, tmp_path):
    pandas = pytest.importorskip("pandas")
    rng, n = np.random.default_rng(0), 600
    kind = rng.choice(["good", "bad"], n)
    age = np.where(rng.random(n) < 0.2, np.nan, rng.normal(40, 9, n) + 15 * (kind == "good"))
    city = np.where(rng.random(n) < 0.1, "", rng.choice(["Bern", "Rome"], n))
    when = np.datetime64("2024-01-01") + rng.integers(300, size=n)
    frame = pandas.DataFrame({"age": age, "city": city, "when": when.astype(str), "kind": kind})
    for part, rows in {"train": slice(300), "val": slice(300, 450), "test": slice(450, n)}.items():
        frame[rows].to_csv(tmp_path / f"{part}.csv", index=False)
    steps = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age"]),
        (OneHotEncoder(handle_unknown="ignore"), ["city"]),
    )
    model = make_pipeline(steps, LogisticRegression())
    train = pandas.read_csv(tmp_path / "train.csv")
    joblib.dump(model.fit(train.drop(columns="kind"), train["kind"]), tmp_path / "m.joblib")
    files = [tmp_path / each for each in ("m.joblib", "train.csv", "val.csv", "test.csv")]
    result = run(*files, "--label", "kind", "--json", tmp_path / "all.json")
    assert result.exit_code == 0, result.output + result.stderr
    test = pandas.read_csv(tmp_path / "test.csv")
    wrong = (model.predict(test.drop(columns="kind")) != test["kind"]).mean()
    assert json.loads((tmp_path / "all.json").read_text())["errors"][0] == pytest.approx(wrong)
