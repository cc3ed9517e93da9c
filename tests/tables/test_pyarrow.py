"""Parquet files: the column types, against pandas, and a machine without pyarrow."""

import sys
from decimal import Decimal
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import iknow.tables
from iknow.errors import InputError, MissingExtraError
from iknow.tables import read_table
from iknow.tables.columns import open_arrow, open_parquet
from tests.tables.making import write_table


@pytest.fixture
def parquet(tmp_path):
    def write(columns, path=None):
        path = path or tmp_path / "data.parquet"
        pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path)
        return path

    return write


def test_numbers_and_bools_are_features_and_nulls_are_nan(parquet):
    table = read_table(
        parquet(
            {
                "f": [1.5, None, float("nan")],
                "i": [None, 2, 2**53 + 1],
                "b": [True, False, None],
                "h": pa.array(np.array([1, 2, 3], dtype=np.float16)),
                "d": [Decimal("1.25"), None, Decimal("2.50")],
                "nothing": pa.nulls(3),
                "coded": pa.array([7, 8, None]).dictionary_encode(),
            }
        )
    )
    nan = np.nan
    expected = [
        [1.5, nan, 1, 1, 1.25, nan, 7],
        [nan, 2, 0, 2, nan, nan, 8],
        [nan, 2.0**53, nan, 3, 2.5, nan, nan],
    ]
    np.testing.assert_array_equal(table.features, expected)
    assert table.features.dtype == np.float64
    assert table.feature_names == ("f", "i", "b", "h", "d", "nothing", "coded")
    assert table.labels is None


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["cat", "dog", "cat"]), ["cat", "dog", "cat"]),
        (pa.array(["cat", "dog", "cat"]).dictionary_encode(), ["cat", "dog", "cat"]),
        (pa.array(["1", "2", "3"], pa.large_string()), ["1", "2", "3"]),
        (pa.array([3, 1, 3], pa.uint8()), [3, 1, 3]),
        (pa.array([3, 1, 3]).dictionary_encode(), [3, 1, 3]),
        (pa.array([True, False, True]), [1, 0, 1]),
    ],
)
def test_labels_may_be_strings_ints_or_categories(parquet, column, expected):
    table = read_table(parquet({"y": column, "a": [1, 2, 3]}), label="y")
    assert table.labels.tolist() == expected
    assert table.labels.dtype.kind == ("U" if isinstance(expected[0], str) else "i")
    assert table.feature_names == ("a",)


def test_a_random_table_reads_as_pandas_reads_it(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(100, 5)), columns=list("abcde"))
    frame = frame.mask(rng.random(frame.shape) < 0.1)
    frame["y"] = pd.Categorical(rng.choice(["p", "q", "é"], 100))
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=30)
    theirs = pd.read_parquet(tmp_path / "t.parquet")
    ours = read_table(tmp_path / "t.parquet", label="y")
    np.testing.assert_array_equal(ours.features, theirs[list("abcde")].to_numpy())
    np.testing.assert_array_equal(ours.labels, theirs["y"].to_numpy(dtype=str))


def test_a_folder_named_like_a_partition_is_no_column(parquet, tmp_path):
    (tmp_path / "y=3").mkdir()
    table = read_table(parquet({"a": [1]}, tmp_path / "y=3" / "data.parquet"))
    assert table.feature_names == ("a",)


def test_labels_from_another_file_replace_the_column_and_its_gaps(parquet, tmp_path):
    np.save(tmp_path / "y.npy", [5, 6])
    path = parquet({"a": [1, 2], "y": ["p", None]})
    table = read_table(path, label="y", labels_path=tmp_path / "y.npy")
    assert table.labels.tolist() == [5, 6]
    assert table.feature_names == ("a",)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [1], "s": ["x"], "y": [1]}, r"column 's' of .* must hold numbers or bools; got str"),
        ({"a": [1], "b": [2]}, "no column 'y'; its columns are 'a', 'b'"),
        ({"y": [1]}, "no feature columns; its columns are 'y'"),
        ({"a": pa.array([], pa.int64()), "y": pa.array([], pa.int64())}, "is empty: .* no rows"),
        ({"a": [1, 2], "y": ["p", None]}, "column 'y' of .* has no label for 1 of 2 samples"),
        ({"a": [1, 2], "y": [0.5, 1]}, "column 'y' of .* must be ints or strings; got 0.5"),
        ({"a": [1], "y": [Decimal(1)]}, "must be ints or strings; got an array of object"),
        (pa.table([[1], [2], [3]], names=["a", "a", "y"]), "several columns named 'a'"),
    ],
)
def test_a_table_that_cannot_be_used_says_why(parquet, columns, message):
    with pytest.raises(InputError, match=message):
        read_table(parquet(columns), label="y")


@pytest.mark.parametrize("kept", [0, 10, 0.5, 0.99])
def test_a_truncated_file_is_reported(parquet, kept):
    path = parquet({"a": np.arange(100)})
    content = path.read_bytes()
    path.write_bytes(content[: kept if isinstance(kept, int) else int(kept * len(content))])
    with pytest.raises(InputError, match=r"data\.parquet cannot be read: .*Parquet"):
        read_table(path)


def test_without_pyarrow_the_extra_to_install_is_named_and_numpy_files_work(
    parquet, tmp_path, monkeypatch
):
    path = parquet({"a": [1]})
    write_table(tmp_path / "data.csv", {"a": [1], "y": ["p"]})
    monkeypatch.delitem(sys.modules, "iknow.tables.columns")
    monkeypatch.delattr(iknow.tables, "columns")
    for module in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, module, None)
    for there in (path, tmp_path / "data.csv"):
        named = rf"reading \{there.suffix} files .* 'iknow\[tables\]'"
        with pytest.raises(MissingExtraError, match=named):
            read_table(there)
    for ending in (".parquet", ".csv", ".jsonl"):
        named = rf"writing \{ending} files .* 'iknow\[tables\]'"
        with pytest.raises(MissingExtraError, match=named):
            write_table(tmp_path / f"other{ending}", {"a": [1]})
    np.save(tmp_path / "X.npy", [[5.0]])
    with pytest.raises(MissingExtraError, match=r"reading \.csv files .* 'iknow\[tables\]'"):
        read_table(tmp_path / "X.npy", labels_path=tmp_path / "data.csv")
    assert read_table(tmp_path / "X.npy").features.tolist() == [[5.0]]
    write_table(tmp_path / "t.npz", {"X": [1.5], "y": ["p"]})
    assert read_table(tmp_path / "t.npz").labels.tolist() == ["p"]
    assert not list(tmp_path.glob("other*"))


def test_rows_that_would_not_fit_into_memory_are_refused_before_they_are_unpacked(
    tmp_path, monkeypatch
):
    constant = pa.DictionaryArray.from_arrays(np.zeros(10**6, np.int32), [1.0])
    pq.write_table(pa.table({"a": constant}), tmp_path / "small.parquet")
    assert (tmp_path / "small.parquet").stat().st_size < 10_000
    monkeypatch.setattr("iknow.tables.table.free_memory", lambda: 10_000_000)
    with pytest.raises(InputError, match="GB of memory"):
        read_table(tmp_path / "small.parquet")
    label = pa.DictionaryArray.from_arrays(np.zeros(1000, np.int32), ["x" * 5000])
    pq.write_table(pa.table({"a": np.zeros(1000), "y": label}), tmp_path / "long.parquet")
    with pytest.raises(InputError, match="longest label has 5,000 letters"):
        read_table(tmp_path / "long.parquet", label="y")


def to_bytes(table, form):
    sink = pa.BufferOutputStream()
    if form == "parquet":
        pq.write_table(table, sink, store_schema=False)
    else:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_texts_that_lie_outside_of_their_batch_are_refused():
    content = bytearray(to_bytes(pa.table({"a": ["some", "text"]}), "arrow"))
    place = content.index(np.array([0, 4, 8], dtype="<i4").tobytes())
    content[place + 8 : place + 12] = b"\xff\xff\xff\x7f"
    opened = open_arrow(BytesIO(bytes(content)), Path("the file"))
    with pytest.raises(InputError, match="the file cannot be read"):
        list(opened.parts)


@pytest.mark.parametrize(("form", "opener"), [("arrow", open_arrow), ("parquet", open_parquet)])
def test_names_that_are_no_text_are_refused(form, opener):
    content = to_bytes(pa.table({"name": [1.0]}), form).replace(b"name", b"na\xecm")
    with pytest.raises(InputError, match="the file cannot be read"):
        opener(BytesIO(content), Path("the file"))
