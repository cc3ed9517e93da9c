"""Rows, their decoding and their shaping, against what the formats' own libraries wrote."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from iknow.serve.bodies import ByteBudget, Rows, decode, join_rows, shape_rows
from iknow.serve.bodies import as_rows as as_many_rows
from iknow.serve.schema import JSON, NPY, Refusal

NUMBERS = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=4),
    elements=st.floats(-1e9, 1e9, width=32),
)


def read(body: bytes, kind: str, most_rows: int = 100) -> Rows:
    return decode(body, kind, most_rows, ByteBudget(1 << 30))


def as_rows(values: list[Any]) -> Rows:
    return as_many_rows(values, 100)


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@given(NUMBERS)
def test_json_and_npy_hold_the_same_numbers(array: Any) -> None:
    as_json = read(json.dumps({"rows": array.tolist()}).encode(), JSON)
    assert np.array_equal(as_json.values, array)
    assert np.array_equal(read(npy(array), NPY).values, array)


def test_null_is_a_missing_number() -> None:
    found = read(b'{"rows": [[1, null], [NaN, Infinity]]}', JSON).values
    assert np.array_equal(found, [[1, np.nan], [np.nan, np.inf]], equal_nan=True)


@pytest.mark.parametrize(
    ("body", "kind", "status", "said"),
    [
        (b"{", JSON, 400, "no JSON"),
        (b"", JSON, 400, "empty"),
        (b"[1]", JSON, 422, "expected an object"),
        (b'{"rows": []}', JSON, 422, "empty"),
        (b'{"rows": [[1, 2], [3]]}', JSON, 422, "row 1 has 1"),
        (b'{"rows": [[1, "x"]]}', JSON, 422, "holds"),
        (b'{"rows": [[]]}', JSON, 422, "no values"),
        (b'{"rows": [1, 2]}', JSON, 422, "each row"),
        (b'{"rows": [{"a": 1}, {"b": 1}]}', JSON, 422, "row 1"),
        (b'{"rows": [[1]], "other": 1}', JSON, 422, "expected an object"),
        (b'{"rows": ' + b"[" * 5000 + b"]" * 5000 + b"}", JSON, 400, "no JSON"),
        (b"\x93NUMPY rubbish", NPY, 400, "npy"),
        (npy(np.arange(3)), NPY, 422, "a row for each"),
        (npy(np.array([["a"]])), NPY, 422, "numbers"),
        (npy(np.zeros((0, 3))), NPY, 422, "no rows"),
        (npy(np.zeros((101, 1))), NPY, 413, "100 rows"),
        (b"x", "text/html", 415, "content type"),
        (b"PAR1", "application/vnd.apache.parquet", 415, "content type"),
    ],
)
def test_a_body_that_cannot_be_used_is_refused(
    body: bytes, kind: str, status: int, said: str
) -> None:
    with pytest.raises(Refusal, match=said) as refused:
        read(body, kind)
    assert refused.value.status == status


def test_an_array_that_could_execute_code_is_refused() -> None:
    file = io.BytesIO()
    np.save(file, np.array([[print]], dtype=object), allow_pickle=True)
    with pytest.raises(Refusal, match="npy"):
        read(file.getvalue(), NPY)


@given(st.lists(hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.just(2))), min_size=1))
def test_joined_rows_are_the_rows_in_order(arrays: list[Any]) -> None:
    parts = [Rows(array) for array in arrays]
    joined = join_rows(parts)
    assert len(joined) == sum(map(len, parts))
    assert np.array_equal(joined.values, np.concatenate(arrays), equal_nan=True)


def test_texts_and_columns_join_too() -> None:
    assert join_rows([as_rows(["a"]), as_rows(["b"])]).values.tolist() == ["a", "b"]
    both = join_rows([as_rows([{"a": 1, "b": "x"}]), as_rows([{"a": 2, "b": "y"}])])
    assert {name: each[1] for name, each in both.arrays.items()} == {"a": 2, "b": "y"}


def classifier(names: list[str] | None = None, inputs: tuple[str, ...] = ("X",)) -> Any:
    known = {} if names is None else {"feature_names_in_": np.array(names)}
    return SimpleNamespace(model_=SimpleNamespace(inputs=inputs), **known)


def test_features_by_name_are_put_in_order() -> None:
    rows = as_rows([{"b": 2, "a": 1}, {"b": 4, "a": 3}])
    shaped = shape_rows(classifier(["a", "b"]), rows).values
    assert np.array_equal(shaped, [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("row", "said"),
    [({"a": 1}, "'b' is missing"), ({"a": 1, "b": 2, "c": 3}, "'c' is none of the features"),
     ({"a": 1, "b": "x"}, "'b' must hold numbers")],
)  # fmt: skip
def test_other_features_are_refused(row: dict[str, Any], said: str) -> None:
    with pytest.raises(Refusal, match=said):
        shape_rows(classifier(["a", "b"]), as_rows([row]))


def test_a_model_of_several_inputs_takes_them_by_name() -> None:
    model = classifier(inputs=("ids", "mask"))
    body = b'{"inputs": {"mask": [[1, 1]], "ids": [[7, 8]]}}'
    assert list(shape_rows(model, read(body, JSON)).values) == ["ids", "mask"]
    with pytest.raises(Refusal, match="inputs, 'ids', 'mask'"):
        shape_rows(model, as_rows([[1, 2, 3]]))
