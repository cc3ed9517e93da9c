"""A working folder with a model, its data in every format, and ways to run commands."""

import json

import joblib
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from iknow import EpistemicClassifier
from iknow.cli.app import app

NAMES = ("sepal length", "sepal width", "petal length", "petal width")


@pytest.fixture(scope="session")
def made_irises(tmp_path_factory):
    """A folder with irises in every format, a model and a bundle."""
    root = tmp_path_factory.mktemp("irises")
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], load_iris().target_names[y[order]]
    parts = {"train": slice(0, 80), "val": slice(80, 110), "test": slice(110, None)}
    for part, rows in parts.items():
        write_all(root / part, X[rows], y[rows])
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:80], y[:80])
    joblib.dump(model, root / "model.joblib")
    classifier = EpistemicClassifier(model, progress=False).fit(X[:80], y[:80])
    classifier.tune(X[80:110], coverage=0.6)
    classifier.feature_names_in_ = np.array(NAMES, dtype=object)
    classifier.save(root / "b.iknow")
    return root


def write_all(stem, X, y):
    """Samples in every format, with an id that is a number in some rows and text in others."""
    ids = [f"{i:03d}" if i % 2 else f"n{i}" for i in range(len(X))]
    columns = {name: X[:, j] for j, name in enumerate(NAMES)} | {"id": ids, "kind": y.tolist()}
    table = pa.table(columns)
    table.to_pandas().to_csv(f"{stem}.csv", index=False)
    pq.write_table(table, f"{stem}.parquet", row_group_size=11)
    with pa.OSFile(f"{stem}.arrow", "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    pyarrow.feather.write_feather(table, f"{stem}.feather")
    with open(f"{stem}.jsonl", "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in table.to_pylist())
    np.savez_compressed(f"{stem}.npz", X=X, kind=y, id=np.array(ids), feature_names=NAMES)
    np.save(f"{stem}.npy", X)
    np.save(f"{stem}_labels.npy", y)


@pytest.fixture
def irises(made_irises, tmp_path, monkeypatch):
    """A copy of that folder, as the working folder."""
    for path in made_irises.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def iknow():
    """Run a command: `iknow(...)` must succeed; `.fail(...)` must fail with one line."""

    def run(*words, stdin=None):
        return CliRunner().invoke(app, [str(word) for word in words], input=stdin)

    def succeed(*words, stdin=None):
        result = run(*words, stdin=stdin)
        assert result.exit_code == 0, result.stderr
        return result.stdout_bytes if isinstance(stdin, bytes) else result.stdout

    def fail(*words, code=1, stdin=None):
        result = run(*words, stdin=stdin)
        assert result.exit_code == code, result.output + result.stderr
        lines = result.stderr.strip().split("\n")
        assert len(lines) == 1, lines
        assert lines[0].startswith("error: ")
        return lines[0]

    succeed.fail, succeed.run = fail, run
    return succeed
