"""Tables of polars and Arrow against the same tables of pandas."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from iknow import EpistemicClassifier
from iknow.errors import InputError, MissingExtraError
from iknow.models.inputs import as_numbers, as_pandas

RNG = np.random.default_rng(0)
N = 120
LABELS = RNG.integers(2, size=N)
COLUMNS = {
    "size": [None if i % 9 == 0 else float(x) for i, x in enumerate(RNG.normal(size=N) + LABELS)],
    "count": [None if i % 11 == 0 else int(x) for i, x in enumerate(RNG.integers(9, size=N))],
    "color": [None if i % 13 == 0 else ["red", "green", "blue"][i % 3] for i in range(N)],
    "note": [f"word{i % 5} word{label}" for i, label in enumerate(LABELS)],
}
FORMS = {
    "pandas": lambda columns: pd.DataFrame(columns),
    "polars": lambda columns: pl.DataFrame(columns, schema_overrides={"color": pl.Categorical}),
    "Arrow": pa.table,
    "Arrow in parts": lambda columns: pa.concat_tables([pa.table(columns)] * 2).slice(0, N),
    "a batch": lambda columns: pa.record_batch(columns),
    "what Arrow can read": lambda columns: Capsule(pa.table(columns)),
}


class Capsule:
    """A table of some other package, which shares its memory as Arrow does."""

    def __init__(self, table):
        self.table, self.schema = table, table.schema

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def make_model():
    columns = ColumnTransformer(
        [
            ("number", make_pipeline(SimpleImputer(), StandardScaler()), ["size", "count"]),
            ("kind", OneHotEncoder(handle_unknown="ignore"), ["color"]),
            ("words", TfidfVectorizer(), "note"),
        ]
    )
    return make_pipeline(columns, LogisticRegression())


@pytest.fixture(scope="module")
def fitted():
    model = make_model().fit(FORMS["pandas"](COLUMNS), LABELS)
    ec = EpistemicClassifier(model).fit(FORMS["pandas"](COLUMNS), LABELS)
    shifted = {name: values[7:] + values[:7] for name, values in COLUMNS.items()}
    shifted["size"] = [None if x is None else x + 0.01 for x in shifted["size"]]
    return ec.tune(FORMS["pandas"](shifted), np.roll(LABELS, -7), coverage=0.7)


@pytest.mark.parametrize("form", FORMS)
def test_a_table_of_any_kind_is_assessed_like_that_of_pandas(form, fitted):
    table, expected = FORMS[form](COLUMNS), fitted.assess(FORMS["pandas"](COLUMNS))
    found = fitted.assess(table)
    np.testing.assert_array_equal(found.assertion, expected.assertion)
    np.testing.assert_array_equal(found.level, expected.level)
    trained = EpistemicClassifier(make_model()).fit(table, pl.Series(LABELS))
    own = EpistemicClassifier(make_model()).fit(FORMS["pandas"](COLUMNS), LABELS)
    np.testing.assert_array_equal(trained.assess(table).level, own.assess(table).level)
    assert trained.feature_names_in_.tolist() == list(COLUMNS)


@pytest.mark.parametrize("form", ["polars", "Arrow"])
def test_a_feature_order_that_changed_is_refused(form):
    numbers = {name: COLUMNS[name] for name in ("count", "size")}
    filled = FORMS["pandas"](numbers).fillna(0)
    ec = EpistemicClassifier(LogisticRegression().fit(filled, LABELS)).fit(filled, LABELS)
    moved = {name: filled[name].tolist() for name in ("size", "count")}
    with pytest.raises(InputError, match=r"(?s)order of the training.*feature_names_in_"):
        ec.predict({"polars": pl.DataFrame, "Arrow": pa.table}[form](moved))


@settings(max_examples=30)
@given(
    st.lists(st.none() | st.integers(-5, 5), min_size=1, max_size=8),
    st.lists(st.none() | st.sampled_from(["a", "b", ""]), min_size=8, max_size=8),
)
def test_values_categories_and_gaps_are_kept(numbers, words):
    columns = {"n": numbers, "w": words[: len(numbers)]}
    types = {"n": pl.Int64, "w": pl.Enum(["b", "a", ""])}
    table = pl.DataFrame(columns, schema_overrides=types)
    for found in (as_pandas(table), as_pandas(table.to_arrow())):
        assert found["w"].cat.categories.tolist() == ["b", "a", ""]
        assert [None if pd.isna(x) else x for x in found["w"]] == columns["w"]
        assert [None if pd.isna(x) else int(x) for x in found["n"]] == numbers


def test_numbers_are_read_from_any_table():
    columns = {"a": [1, 2, None], "b": [0.5, float("nan"), 3.0]}
    expected = [[1, 0.5], [2, np.nan], [np.nan, 3]]
    for table in (pl.DataFrame(columns), pa.table(columns), pa.record_batch(columns)):
        np.testing.assert_array_equal(as_numbers(table, "X"), expected)


def test_what_is_no_foreign_table_is_left_alone():
    for values in (np.ones(3), pd.Series([1]), pd.DataFrame(), [1], None, "text", pl.DataFrame, {}):
        assert as_pandas(values) is values


def test_a_table_that_cannot_be_read_is_named():
    class Broken:
        def __arrow_c_stream__(self, requested_schema=None):
            raise RuntimeError("no memory to share")

    with pytest.raises(InputError, match="Broken that cannot be read as a table"):
        as_pandas(Broken())


def test_without_narwhals_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'iknow\[tables\]'"):
        as_pandas(pl.DataFrame({"a": [1]}))


def test_without_pandas_the_error_says_what_to_install(run_without):
    said = run_without(
        ["pandas"],
        "import polars as pl\n"
        "from iknow.models.inputs import as_pandas\n"
        "try:\n"
        "    as_pandas(pl.DataFrame({'a': [1]}))\n"
        "except ImportError as error:\n"
        "    print(error)\n",
    )
    assert "pip install 'iknow[pandas]'" in said
