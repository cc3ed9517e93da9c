"""Inputs as bytes: each comes back, and its hash is its own, whatever batch it came in."""

import io
from datetime import date
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from iknow.errors import AuditError, InputError
from iknow.serve.audit import decode_input, encode_input, encode_inputs, hash_input

NUMBERS = (
    hnp.boolean_dtypes() | hnp.integer_dtypes(endianness="?") | hnp.floating_dtypes(endianness="?")
    | hnp.complex_number_dtypes() | hnp.datetime64_dtypes()
)  # fmt: skip
SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=3)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)


@settings(max_examples=40)
@given(hnp.arrays(NUMBERS, SHAPES))
def test_rows_of_numbers_come_back_and_numpy_reads_them(rows):
    encoded = encode_inputs(rows)
    assert len(encoded) == len(rows)
    for row, content in zip(rows, encoded, strict=True):
        found = decode_input(content)
        assert found.dtype == row.dtype.newbyteorder("<")
        assert found.shape == row.shape
        np.testing.assert_array_equal(found, row)
        again = np.load(io.BytesIO(content), allow_pickle=False)
        np.testing.assert_array_equal(again, row)
        assert again.dtype == found.dtype
        assert encode_input(row) == content
        assert hash_input(row) == sha256(content).hexdigest()


@settings(max_examples=40)
@given(hnp.arrays(np.float32, (3, 4)))
def test_a_hash_does_not_depend_on_the_layout(rows):
    expected = [hash_input(row) for row in rows]
    for same in (np.asfortranarray(rows), rows[:, ::-1][:, ::-1], rows.astype(">f4")):
        assert [hash_input(row) for row in same] == expected
        assert [sha256(each).hexdigest() for each in encode_inputs(same)] == expected


def test_type_and_shape_belong_to_an_input():
    row = np.zeros(4, dtype=np.float32)
    others = [row.astype(np.float64), row.reshape(2, 2), row.view(np.int32), [0.0] * 4]
    assert len({hash_input(each) for each in (row, *others)}) == 5


@settings(max_examples=40)
@given(st.text() | st.dictionaries(st.text(max_size=8), PLAIN, max_size=5))
def test_texts_and_mappings_come_back(row):
    assert decode_input(encode_input(row)) == row


@settings(max_examples=40)
@given(st.lists(st.text(alphabet="ab", max_size=5), min_size=1))
def test_text_in_an_array_is_the_same_as_text_in_a_list(texts):
    assert encode_inputs(np.array(texts)) == encode_inputs(texts)
    assert encode_inputs(np.array(texts, dtype=object)) == encode_inputs(texts)


def test_the_order_of_columns_and_the_type_of_numbers_do_not_matter():
    one = {"a": np.float64(1.5), "b": np.int32(2), "c": None, "d": np.str_("x")}
    other = {"d": "x", "c": None, "b": 2, "a": 1.5}
    assert hash_input(one) == hash_input(other)
    assert hash_input({"a": 1}) != hash_input({"a": 1.0})
    assert decode_input(encode_input({"a": float("nan")}))["a"] != 0
    assert decode_input(encode_input({"a": date(2026, 1, 31)})) == {"a": "2026-01-31"}


def test_a_row_of_mixed_values_comes_back_as_objects():
    row = np.array([1, "a", None, 2.5], dtype=object)
    found = decode_input(encode_input(row))
    assert (found.dtype, found.tolist()) == (np.dtype(object), row.tolist())


@pytest.mark.parametrize("rows", [np.zeros((0, 3)), [], np.zeros((3, 0))])
def test_nothing_is_nothing(rows):
    assert len(encode_inputs(rows)) == len(rows)


@pytest.mark.parametrize(
    "row", [object(), {"a": object()}, {1: 2, "a": 3}, b"bytes", {"a": {1, 2}}]
)
def test_what_cannot_be_recorded_is_told(row):
    with pytest.raises(InputError, match="an input must hold numbers, text"):
        encode_input(row)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x93", b"\x93NUMPY\x01\x00", b"{", b"\xff", b"[" * 100_000, encode_input("x")[:-1]],
)
def test_bytes_that_are_no_input_are_told(content):
    with pytest.raises(AuditError, match="a stored input cannot be read"):
        decode_input(content)
