"""Which columns are features, and in what form a model gets them."""

import csv

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from iknow import EpistemicClassifier
from iknow.errors import InputError
from iknow.tables import Roles, read_table


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Sales with a city, a size that is missing at times, and a code; and a pipeline for them."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    n = 200
    city = rng.choice(["Bern", "Genf, West", "Ulm"], n)
    size = rng.normal(size=n) + 3 * (city == "Ulm")
    frame = pd.DataFrame(
        {
            "number": [f"{i:04d}" for i in range(n)],
            "city": city,
            "size": np.where(rng.random(n) < 0.1, np.nan, size),
            "comment": "nothing",
            "bought": np.where(city == "Ulm", "yes", np.where(size > 0, "yes", "no")),
        }
    )
    frame.loc[3, "city"] = None
    frame.to_csv("all.csv", index=False)
    frame.to_parquet("all.parquet")
    chosen = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["size"]),
        (OneHotEncoder(handle_unknown="ignore"), ["city"]),
        sparse_threshold=0,
    )
    model = make_pipeline(chosen, LogisticRegression())
    train = frame.iloc[:140]
    joblib.dump(model.fit(train[["city", "size"]], train["bought"]), "model.joblib")
    for ending, write in {"csv": pd.DataFrame.to_csv, "parquet": pd.DataFrame.to_parquet}.items():
        write(train, f"train.{ending}", index=False)
        write(frame.iloc[140:], f"test.{ending}", index=False)
    return frame


COLUMNS = ["--label", "bought", "--id", "number", "--drop", "comment"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_text_and_categories_go_to_a_pipeline_as_they_are(shop, iknow, ending):
    model = ["--model", "model.joblib"]
    iknow("fit", f"train.{ending}", *COLUMNS, *model, "--hold-out", "0.3", "--coverage", "0.7",
          "-o", "b.iknow")  # fmt: skip
    iknow("assess", "b.iknow", f"test.{ending}", *COLUMNS, *model, "-o", "out.csv")
    rows = rows_of("out.csv")
    assert next(iter(rows[0])) == "number"
    assert [row["number"] for row in rows] == shop["number"][140:].tolist()
    loaded = EpistemicClassifier.load("b.iknow", FrozenEstimator(joblib.load("model.joblib")))
    direct = loaded.assess(shop[["city", "size"]][140:])
    assert [row["belief"] for row in rows] == direct.belief.tolist()
    assert [row["assertion"] for row in rows] == [a.name for a in direct.assertion]


def test_the_order_of_columns_does_not_matter_and_others_are_named(shop, iknow):
    model = ["--model", "model.joblib"]
    fit = ["--hold-out", "0.3", "--coverage", "0.7", "-o", "b.iknow"]
    iknow("fit", "train.csv", *COLUMNS, *model, *fit)
    shop[140:][["size", "number", "city"]].to_csv("turned.csv", index=False)
    iknow("assess", "b.iknow", "test.csv", *COLUMNS, *model, "-o", "straight.csv")
    iknow("assess", "b.iknow", "turned.csv", "--id", "number", *model, "-o", "turned_out.csv")
    assert rows_of("straight.csv") == rows_of("turned_out.csv")
    said = iknow.fail("assess", "b.iknow", "test.csv", "--label", "bought", *model)
    assert "unknown: 'number', 'comment'" in said
    assert "--drop" in said
    words = ["assess", "b.iknow", "test.csv", *model, "--features", "size,city"]
    assert "IK" in iknow(*words)
    assert "missing: 'size'" in iknow.fail(*words[:-1], "city")


def test_texts_go_to_a_vectorizer(tmp_path, monkeypatch, iknow):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    words = {"cat": ["purr", "milk", "claw"], "dog": ["bark", "bone", "walk"]}
    kinds = rng.choice(list(words), 120)
    texts = [" ".join(rng.choice([*words[kind], "the", "is"], 6)) for kind in kinds]
    pd.DataFrame({"text": texts, "kind": kinds}).to_csv("t.csv", index=False)
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, kinds)
    joblib.dump(model, "m.joblib")
    words = ["t.csv", "--label", "kind", "--model", "m.joblib"]
    iknow("fit", *words, "--hold-out", "0.3", "--coverage", "0.7", "-o", "b.iknow")
    right = model.score(texts, kinds)
    assert f"120 samples, accuracy {100 * right:.1f}%" in iknow("assess", "b.iknow", *words)


def test_an_index_of_pandas_is_no_feature(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    frame.index = [10, 20]
    frame.to_parquet(tmp_path / "t.parquet")
    assert "__index_level_0__" in pq.read_schema(tmp_path / "t.parquet").names
    assert read_table(tmp_path / "t.parquet").feature_names == ("a", "b")
    frame.rename_axis("a row").to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").feature_names == ("a", "b")
    named = read_table(tmp_path / "t.parquet", roles=Roles(id="a row"))
    assert named.ids.to_pylist() == [10, 20]
    chosen = read_table(tmp_path / "t.parquet", roles=Roles(features=("a row", "b")))
    assert chosen.features.tolist() == [[10, 3], [20, 4]]


def test_categories_stay_categories_and_joined_parts_have_all_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr("iknow.tables.table.MOST_ROWS", 2)
    column = pa.array(["x", "y", "x", None, "z"]).dictionary_encode()
    pq.write_table(pa.table({"a": column, "n": range(5)}), tmp_path / "t.parquet")
    frame = read_table(tmp_path / "t.parquet", mixed=True).features
    assert frame["a"].dtype == "category"
    assert frame["a"].tolist()[:3] == ["x", "y", "x"]
    assert frame["a"].isna().tolist() == [False, False, False, True, False]
    assert frame["n"].tolist() == [0, 1, 2, 3, 4]


def test_a_column_is_text_if_no_cell_is_a_number_or_if_it_is_named_so(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c\nx,1,007\n,2,008\ny,,009\n")
    frame = read_table(tmp_path / "t.csv", mixed=True).features
    assert frame["a"].isna().tolist() == [False, True, False]
    assert frame[["b", "c"]].dtypes.tolist() == [float, float]
    frame = read_table(tmp_path / "t.csv", roles=Roles(text=("c",)), mixed=True).features
    assert frame["c"].tolist() == ["007", "008", "009"]
    with pytest.raises(InputError, match="column 'a', row 2: expected a number, got 'x'"):
        read_table(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("a\n1\nx\n")
    with pytest.raises(InputError, match="column 'a', row 3: expected a number, got 'x'"):
        read_table(tmp_path / "t.csv", mixed=True)


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (Roles(id="x"), "no column 'x'; its columns are 'a', 'b', 'y'"),
        (Roles(drop=("x",)), "no column 'x'"),
        (Roles(features=("a", "x")), "no column 'x'"),
        (Roles(label="y", id="y"), "both the label and the id"),
        (Roles(label="y", features=("a", "y")), "'y' is named as a feature"),
        (Roles(features=("a", "a")), "twice"),
        (Roles(drop=("a", "b", "y")), "no feature columns"),
    ],
)
def test_roles_that_contradict_are_refused(tmp_path, roles, message):
    (tmp_path / "t.csv").write_text("a,b,y\n1,2,3\n")
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / "t.csv", roles=roles)


def test_ids_in_a_csv_hold_no_formulas_and_may_not_be_called_as_a_column(irises, iknow):
    frame = pd.read_csv("test.csv")
    frame["id"] = ["=1+1", 'say "hi"', "a,b", "-5", "-x", *frame["id"][5:]]
    frame.to_csv("test.csv", index=False)
    words = ["assess", "b.iknow", "--model", "model.joblib", "-o", "out.csv"]
    iknow(*words, "test.csv", "--label", "kind", "--id", "id")
    ids = [row["id"] for row in rows_of("out.csv")]
    assert ids[:5] == ["'=1+1", 'say "hi"', "a,b", "-5", "'-x"]
    frame.rename(columns={"id": "belief"}).to_csv("test.csv", index=False)
    said = iknow.fail(*words, "test.csv", "--label", "kind", "--id", "belief")
    assert "rename it" in said
