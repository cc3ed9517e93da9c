"""Comma-separated text by pyarrow, against Python's own writer and reader."""

import csv
import io

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from iknow.explain.answers import Coded
from iknow.tables.columns import harmless, to_csv

SPECIAL = st.sampled_from("ab=+-@\t\r\n,\"' 0123.é€\U0001f600")
ANY = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
TEXT = st.text(SPECIAL | ANY, max_size=6)


def rows_of(content):
    return list(csv.reader(io.StringIO(bytes(content).decode("utf-8"), newline="")))


def plain(columns):
    """What Python's own writer makes of texts and numbers."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows(
        [harmless(cell) if isinstance(cell, str) else cell for cell in row]
        for row in zip(*(column.tolist() for column in columns.values()), strict=True)
    )
    return text.getvalue().encode()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(TEXT, st.integers(-(2**62), 2**62)), min_size=1, max_size=8))
def test_text_is_written_as_the_plain_writer_writes_it(rows):
    texts, numbers = map(list, zip(*rows, strict=True))
    values, codes = np.unique(np.array([*texts, ""])[:-1], return_inverse=True)
    columns = {"text": np.array(texts, dtype=object).astype(str), "n": np.array(numbers)}
    assert bytes(to_csv(columns)) == plain(columns)
    assert bytes(to_csv({"text": Coded(values, codes), "n": np.array(numbers)})) == plain(columns)
    assert bytes(to_csv({"text": columns["text"]})) == plain({"text": columns["text"]})
    read = {"text": pa.array(columns["text"].tolist()), "n": pa.array(numbers)}
    assert bytes(to_csv(read)) == plain(columns)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.floats(), min_size=1, max_size=20))
def test_numbers_come_back_exactly(numbers):
    columns = {"x": np.array(numbers), "kind": np.array(["number"] * len(numbers))}
    found = [float(cell) for cell, _ in rows_of(to_csv(columns))]
    np.testing.assert_array_equal(np.array(found), np.array(numbers))
    assert np.signbit(found)[~np.isnan(numbers)].tolist() == (
        np.signbit(numbers)[~np.isnan(numbers)].tolist()
    )


def test_missing_values_are_blank():
    columns = {"a": Coded(np.array([5, 7]), np.array([0, -1, 1])), "b": pa.array([1, None, 3])}
    assert rows_of(to_csv(columns)) == [["5", "1"], ["", ""], ["7", "3"]]
    for flags in (np.array([True, False]), pa.array([True, False])):
        assert rows_of(to_csv({"t": flags, "u": flags})) == [["True"] * 2, ["False"] * 2]
