"""Comma-separated text: values against pandas, labels, and each thing that can be wrong."""

from csv import reader

import numpy as np
import pandas as pd
import pytest

from iknow.errors import InputError
from iknow.tables import read_table
from tests.tables.making import write_table


@pytest.fixture
def csv(tmp_path):
    def write(content, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_features_and_labels_are_told_apart_by_name(csv):
    table = read_table(csv("a,kind,b\n1,cat,2\n-3.5e1,dog,4\n"), label="kind")
    assert table.features.dtype == np.float64
    np.testing.assert_array_equal(table.features, [[1, 2], [-35, 4]])
    assert table.labels.tolist() == ["cat", "dog"]
    assert table.feature_names == ("a", "b")
    assert len(table) == 2
    assert (table.scores, table.activations, table.classes) == (None, {}, None)


def test_without_a_label_every_column_is_a_feature(csv):
    table = read_table(csv("a,b\n1,2\n"))
    assert table.labels is None
    assert table.feature_names == ("a", "b")


def test_integer_cells_give_int_labels(csv):
    labels = read_table(csv("a,y\n1,3\n1,-2\n1,+1\n1, 0\n"), label="y").labels
    assert labels.dtype == np.int64
    assert labels.tolist() == [3, -2, 1, 0]


@pytest.mark.parametrize("odd", ["1.0", "007", "1_0", "x", "99999999999999999999", "9" * 5000])
def test_one_cell_that_is_no_integer_makes_all_labels_strings(csv, odd):
    assert read_table(csv(f"a,y\n1,3\n1,{odd}\n"), label="y").labels.tolist() == ["3", odd]


def test_quoted_cells_may_hold_commas_quotes_and_line_breaks(csv):
    table = read_table(csv('"a,1",y\r\n"1.5","say ""hi"", you"\r\n2,"two\nlines"\r\n'), label="y")
    assert table.feature_names == ("a,1",)
    np.testing.assert_array_equal(table.features, [[1.5], [2]])
    assert table.labels.tolist() == ['say "hi", you', "two\nlines"]


def test_a_byte_order_mark_is_not_part_of_the_first_name(csv):
    assert read_table(csv(b"\xef\xbb\xbfa,b\n1,2\n")).feature_names == ("a", "b")


def test_empty_and_nan_cells_are_nan(csv):
    table = read_table(csv('a,b,y\n,1,p\nnan,2,p\nNaN, ,q\n"",-inf,q\n'), label="y")
    nan = np.nan
    np.testing.assert_array_equal(table.features, [[nan, 1], [nan, 2], [nan, nan], [nan, -np.inf]])


def test_blank_lines_are_not_rows(csv):
    np.testing.assert_array_equal(read_table(csv("a\n1\n\n2\n\n")).features, [[1], [2]])


def test_a_random_table_reads_as_pandas_reads_it(csv, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 7)) * 10.0 ** rng.integers(-300, 300, 7))
    frame.columns = [f'c"{j}", of 7' for j in range(7)]
    frame = frame.mask(rng.random(frame.shape) < 0.1)
    frame.insert(3, "y", rng.choice(["plain", "a,b", 'q"q', "é\n2", " sp "], 200))
    path = tmp_path / "frame.csv"
    frame.to_csv(path, index=False)
    theirs = pd.read_csv(path, engine="python")
    ours = read_table(path, label="y")
    np.testing.assert_array_equal(ours.features, theirs.drop(columns="y").to_numpy())
    np.testing.assert_array_equal(ours.labels, theirs["y"].to_numpy(dtype=str))
    assert ours.feature_names == tuple(theirs.columns.drop("y"))


def test_what_is_written_reads_as_pandas_reads_it(tmp_path):
    rng = np.random.default_rng(1)
    columns = {
        "x, 1": np.where(rng.random(50) < 0.2, np.nan, rng.normal(size=50)),
        "n": rng.integers(-(2**62), 2**62, 50),
        "flag": rng.random(50) < 0.5,
        "y": rng.choice(["a,b", 'q"q', "é\r2", "plain"], 50),
    }
    write_table(tmp_path / "t.csv", columns)
    theirs = pd.read_csv(tmp_path / "t.csv", engine="python")
    assert list(theirs.columns) == list(columns)
    for name, column in columns.items():
        np.testing.assert_array_equal(theirs[name].to_numpy(column.dtype), column)


@pytest.mark.parametrize("cell", ["abc", "1_000", "٣", "1 2", "0x10", "True", "NA", "−5"])
def test_a_cell_that_is_no_number_is_named_with_its_row_and_column(csv, cell):
    path = csv(f'a,y,b\n1,"two\nlines",\n\n1,p,{cell}\n')
    with pytest.raises(
        InputError, match=rf"data\.csv, column 'b', row 3: expected a number, got '{cell}'"
    ):
        read_table(path, label="y")


def test_rows_are_counted_across_the_parts_in_which_a_file_is_read(csv, monkeypatch):
    monkeypatch.setattr("iknow.tables.columns.BLOCK", 100)
    rows = [f"{i},{i % 7}" for i in range(1000)]
    table = read_table(csv("\n".join(["a,y", *rows])), label="y")
    np.testing.assert_array_equal(table.features[:, 0], np.arange(1000))
    np.testing.assert_array_equal(table.labels, np.arange(1000) % 7)
    rows[700] = "x,1"
    with pytest.raises(InputError, match="row 702: expected a number, got 'x'"):
        read_table(csv("\n".join(["a,y", *rows])), label="y")
    rows[700] = "700,"
    with pytest.raises(InputError, match="row 702: expected a label"):
        read_table(csv("\n".join(["a,y", *rows])), label="y")
    rows[700] = "700"
    with pytest.raises(InputError, match="Row #702: Expected 2 columns, got 1"):
        read_table(csv("\n".join(["a,y", *rows])), label="y")


@pytest.mark.parametrize("row", ["1", "1,2,3"])
def test_a_ragged_row_is_named(csv, row):
    path = csv(f"a,b\n1,2\n\n{row}\n")
    with pytest.raises(InputError, match=rf"Row #3: Expected 2 columns, got \d: {row}; save"):
        read_table(path)


def test_an_empty_label_is_named(csv):
    with pytest.raises(InputError, match=r"column 'y', row 3: expected a label, got ''"):
        read_table(csv("a,y\n1,2\n1,\n"), label="y")


def test_a_missing_label_column_lists_those_that_exist(csv):
    with pytest.raises(InputError, match=r"no column 'y'; its columns are 'a', ' y'"):
        read_table(csv("a, y\n1,2\n"), label="y")


def test_a_label_alone_has_no_features(csv):
    with pytest.raises(InputError, match="no feature columns; its columns are 'y'"):
        read_table(csv("y\n1\n"), label="y")


def test_two_columns_of_one_name_are_refused(csv):
    with pytest.raises(InputError, match=r"several columns named 'a', 'c'$"):
        read_table(csv("a,b,c,a,c\n1,2,3,4,5\n"))


def test_a_header_without_rows_is_empty(csv):
    with pytest.raises(InputError, match=r"data\.csv is empty: it has a header but no rows"):
        read_table(csv("a,b\n"))


@pytest.mark.parametrize("content", ["", "\n", "\n1,2\n", "a,b", '"a,b\n1,2\n'])
def test_a_file_without_header_and_rows_is_refused(csv, content):
    with pytest.raises(
        InputError, match=r"data\.csv .*(Empty CSV file.*a header and rows|no rows)"
    ):
        read_table(csv(content))


def test_bytes_that_are_not_utf8_are_refused(csv):
    with pytest.raises(InputError, match=r"column #1: Row #2: .*invalid UTF8.*save it as UTF-8"):
        read_table(csv(b"a,b\n1,\xff\n"))


@pytest.mark.parametrize("rest", ["p\n2,q\n", "p", "p\n", 'say ""p""\n2,q', 'p\n2,"q"\n'])
def test_a_quote_that_never_ends_is_refused(csv, rest):
    refused = r"\.csv has an odd number of quotes, \d: one is never closed.* write its own twice"
    with pytest.raises(InputError, match=f"data{refused}"):
        read_table(csv(f'a,y\n1,"{rest}'), label="y")
    with pytest.raises(InputError, match=f"labels{refused}"):
        read_table(csv("a\n1\n"), labels_path=csv(f'y\n"{rest}', "labels.csv"))
    with pytest.raises(InputError, match=r"data\.csv .*(row 2: expected a number|Row #2)"):
        read_table(csv(f'y,a\n"{rest},1\n'), label="y")


@pytest.mark.parametrize("cell", ["p\n2,q\n", "p", "", "\n", 'say "p"\n2,q', 'p\n2,"q"\n', '"'])
@pytest.mark.parametrize("end", ["", "\n", "\r\n\r\n"])
def test_a_quote_that_ends_with_the_file_has_ended(csv, cell, end):
    escaped = cell.replace('"', '""')
    labels = read_table(csv(f'a,y\n1,"x{escaped}"{end}'), label="y").labels
    assert labels.tolist() == [f"x{cell}"]
    if not cell.strip():
        features = read_table(csv(f'a,b\n1,"{cell}"{end}')).features
        np.testing.assert_array_equal(features, [[1, np.nan]])


def test_labels_from_another_file_replace_the_column_and_its_gaps(csv):
    table = read_table(
        csv("a,y\n1,\n2,q\n"), label="y", labels_path=csv('kind\n"a,b"\nc\n', "labels.csv")
    )
    np.testing.assert_array_equal(table.features, [[1], [2]])
    assert table.labels.tolist() == ["a,b", "c"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", r"labels\.csv must have one column, the labels; it has 'a', 'b'"),
        ("y\n", r"labels\.csv is empty"),
        ('y\n1\n""\n', r"labels\.csv, row 3: expected a label, got ''"),
        ("y\n1\n2\n3\n", r"samples differ: .*data\.csv has 2, .*labels\.csv has 3"),
    ],
)
def test_a_file_of_labels_that_does_not_fit_is_refused(csv, content, message):
    with pytest.raises(InputError, match=message):
        read_table(csv("a\n1\n2\n"), labels_path=csv(content, "labels.csv"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,y\n\0,x\n", r"row 2: expected a number, got '\\x00'"),
        (b"a\0,y\n1,x\n", "the name of a column holds NUL"),
        (b"a,y\n1,x\0\n", "it holds NUL"),
        (bytes(99), "save it as UTF-8"),
    ],
)
def test_nul_bytes_are_no_text(csv, content, message):
    with pytest.raises(InputError, match=message):
        read_table(csv(content), label="y")


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_text_of_another_encoding_is_told_to_be_saved_as_utf8(csv, encoding):
    with pytest.raises(InputError, match="save it as UTF-8"):
        read_table(csv("ä,b\n1,2\n".encode(encoding)))


def test_a_row_without_end_is_refused_before_it_fills_the_memory(csv, monkeypatch):
    monkeypatch.setattr("iknow.tables.columns.BLOCK", 1000)
    wide = ",".join(f"c{i}" for i in range(150))
    assert len(wide) < 1000
    with pytest.raises(InputError, match="has a header but no rows"):
        read_table(csv(f"{wide}\n"))
    for content in ("a" * 1001, "a" * 5000 + "\n1\n", "a,b\n1," + "2" * 5000, 'a\n"' + "2" * 5000):
        with pytest.raises(InputError, match="block"):
            read_table(csv(content))


def test_errors_name_no_more_than_anybody_reads(csv):
    header = ",".join(f"column{i}" for i in range(100_000))
    with pytest.raises(InputError) as caught:
        read_table(csv(f"{header}\n"), label="kind")
    assert len(str(caught.value)) < 1000
    assert "'column9', … (100,000 in all)" in str(caught.value)
    with pytest.raises(InputError) as caught:
        read_table(csv("a\n" + "x" * 100_000 + "\n"))
    assert len(str(caught.value)) < 1000


def test_one_long_label_does_not_take_its_length_for_every_row(csv, monkeypatch):
    monkeypatch.setattr("iknow.tables.table.free_memory", lambda: 10_000_000)
    rows = "1,short\n" * 1000
    assert len(read_table(csv(f"a,y\n{rows}"), label="y")) == 1000
    with pytest.raises(InputError, match=r"longest label has 5,000 letters.*GB of memory"):
        read_table(csv(f"a,y\n{rows}1,{'x' * 5000}\n"), label="y")


@pytest.mark.parametrize(
    "cell", ["=1+1", "+cmd", "-x", "@SUM(A1)", "\t=1", "\r=1", "-", "-1_0", "+"]
)
def test_a_text_that_a_spreadsheet_would_run_is_written_with_an_apostrophe(tmp_path, cell):
    write_table(tmp_path / "out.csv", {"a": [cell, "b"], cell: [1, 2]})
    with (tmp_path / "out.csv").open(newline="") as file:
        assert list(reader(file)) == [["a", f"'{cell}"], [f"'{cell}", "1"], ["b", "2"]]


def test_numbers_are_never_taken_for_formulas(tmp_path):
    numbers = ["-1.5", "+3", "-.5e-3", "-inf", "-nan", "1", "-0"]
    write_table(tmp_path / "out.csv", {"a": numbers, "b": np.arange(-3.5, 3), "c": ["x"] * 7})
    frame = pd.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False)
    assert frame["a"].tolist() == numbers
    assert [float(cell) for cell in frame["b"]] == np.arange(-3.5, 3).tolist()


def test_a_file_is_written_byte_for_byte_as_spreadsheets_expect_it(tmp_path):
    write_table(tmp_path / "plain.csv", {"a": [1, 2], "y": ["p", "=q"]})
    assert (tmp_path / "plain.csv").read_bytes() == b"a,y\r\n1,p\r\n2,'=q\r\n"
