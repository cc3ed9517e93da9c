"""The one way in for arrays: what is taken, what is refused, what must not be dropped silently."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array

from iknow.errors import InputError, LayerError
from iknow.models import PrecomputedModel
from iknow.models.inputs import as_array, as_dense, as_numbers, is_missing
from iknow.models.torch import TorchModel

VALUES = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0], [9.0, 10.0, 11.0]])


def objects(value):
    array = VALUES.astype(object)
    array[1, 2] = value
    return array


def read_only():
    array = VALUES.copy()
    array.flags.writeable = False
    return array


TAKEN = {
    "list": VALUES.tolist(),
    "ints": VALUES.astype(np.int16),
    "unsigned": VALUES.astype(np.uint64),
    "half": VALUES.astype(np.float16),
    "long double": VALUES.astype(np.longdouble),
    "swapped": VALUES.astype(">f8"),
    "fortran": np.asfortranarray(VALUES),
    "strided": np.repeat(VALUES, 2, axis=1)[:, ::2],
    "read-only": read_only(),
    "masked array without masked entries": np.ma.array(VALUES),
    "objects": objects(5),
    "numpy objects": objects(np.float32(5)),
    "decimal": objects(Decimal(5)),
    "fraction": objects(Fraction(10, 2)),
    "frame": pd.DataFrame(VALUES),
    "frame of equal names": pd.DataFrame(VALUES, columns=["a", "a", "b"]),
    "frame of kinds": pd.DataFrame(VALUES).astype({0: "int8", 1: "Float64", 2: object}),
    "nullable": pd.DataFrame(VALUES).astype("Int64"),
    "tensor": torch.tensor(VALUES, requires_grad=True),
    "bfloat16": torch.tensor(VALUES).bfloat16(),
    "sparse tensor": torch.tensor(VALUES).to_sparse(),
    "tensors": list(torch.tensor(VALUES)),
}


@pytest.mark.parametrize("kind", TAKEN)
def test_numbers_come_in_any_container(kind):
    found = as_numbers(TAKEN[kind], "X")
    assert type(found) is np.ndarray
    assert found.dtype.kind in "fiu"
    assert found.dtype.itemsize <= 8
    np.testing.assert_array_equal(found, VALUES)


@pytest.mark.parametrize("value", [None, pd.NA, np.nan, np.float32("nan")], ids=repr)
def test_what_is_missing_among_objects_is_nan(value):
    found = as_numbers(objects(value), "X")
    assert np.isnan(found[1, 2])
    assert np.isnan(found).sum() == 1


def test_what_is_missing_in_a_frame_is_nan():
    frame = pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64"), "b": [0.5, 1.5, None]})
    expected = [[1, 0.5], [np.nan, 1.5], [3, np.nan]]
    np.testing.assert_array_equal(as_numbers(frame, "X"), expected)


def test_numbers_beyond_float64_are_infinite():
    huge = as_numbers(np.array([[10**400, -(10**400)]], dtype=object), "X")
    assert huge.tolist() == [[np.inf, -np.inf]]


def masked(n_rows=4):
    array = np.ma.masked_equal(np.where(VALUES == 4, -999, VALUES), -999)
    return array[:n_rows]


REFUSED = {
    "masked": (masked(), "masked entries, the first in row 1 .rows affected: 1."),
    "list of masked": (list(masked()), "masked entries, the first in row 1"),
    "dates": (np.zeros((4, 3), dtype="M8[s]"), "dtype datetime64"),
    "not a time": (np.full((4, 3), "NaT", dtype="M8[D]"), "dtype datetime64"),
    "time spans": (np.zeros((4, 3), dtype="m8[s]"), "dtype timedelta64"),
    "complex": (VALUES + 1j, "[cC]omplex"),
    "records": (np.zeros((4, 3), dtype=[("a", float)]), "dtype"),
    "sparse": (csr_array(VALUES), "sparse matrix"),
    "ragged": ([[1.0, 2.0], [3.0]], "rows of different lengths"),
    "number": (3.0, "samples along its first axis; got float"),
    "generator": ((row for row in VALUES), "got generator"),
    "set": ({1.0, 2.0}, "got set"),
    "nothing": (None, "got NoneType"),
}
TEXT = {
    "text": (VALUES.astype(str), "got text"),
    "bytes": (VALUES.astype("S4"), "got text"),
    "text among objects": (objects("5"), "at .1, 2. it has '5' of type str"),
    "date among objects": (objects(np.datetime64("2020-01-01")), "of type datetime64"),
    "time span among objects": (objects(np.timedelta64(5, "D")), "of type timedelta64"),
    "complex among objects": (objects(1j), "of type complex"),
    "long object": (objects("x" * 10**6), "xxx.{3} of type str"),
    "dates in a frame": (pd.DataFrame({"a": pd.to_datetime(["2020-01-01"] * 4)}), "column 'a'"),
    "text in a frame": (pd.DataFrame({"n": [1.0], "t": ["x"]}), "column 't'"),
    "categories": (pd.DataFrame({"c": pd.Categorical(["x", "y"])}), "column 'c'"),
}


@pytest.mark.parametrize("kind", REFUSED | TEXT)
def test_what_is_no_array_of_numbers_is_refused(kind):
    values, message = (REFUSED | TEXT)[kind]
    with pytest.raises(InputError, match=message) as caught:
        as_numbers(values, "X")
    assert len(str(caught.value)) < 400
    with pytest.raises(LayerError):
        as_numbers(values, "X", LayerError)


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("way", ["scores", "layer", "sklearn", "torch"])
def test_every_adapter_refuses_the_same(kind, way):
    values, _ = REFUSED[kind]
    if kind == "generator":
        values = (row for row in VALUES)
    if (kind, way) == ("sparse", "sklearn"):
        return  # many of scikit-learn's models take them
    with pytest.raises(InputError):
        {
            "scores": lambda: PrecomputedModel().prepare((values, {"a": VALUES})),
            "layer": lambda: PrecomputedModel().prepare((VALUES, {"a": values})),
            "sklearn": lambda: as_dense(values),
            "torch": lambda: TorchModel(torch.nn.Linear(3, 2)).prepare(values),
        }[way]()


def test_arrays_of_any_kind_are_taken_where_they_need_not_be_numbers():
    text = VALUES.astype(str)
    assert as_array(text, "X") is text


@pytest.mark.parametrize(
    ("value", "missing"),
    [
        (None, True), (pd.NA, True), (pd.NaT, True), (np.datetime64("NaT"), True),
        (np.timedelta64("NaT"), True), (np.nan, True), (np.float16("nan"), True),
        (np.ma.masked, True), (0, False), ("", False), ("nan", False), (np.inf, False),
        (np.datetime64("2020-01-01"), False),
    ],
    ids=repr,
)  # fmt: skip
def test_some_objects_stand_for_what_is_missing(value, missing):
    assert is_missing(value) is missing
