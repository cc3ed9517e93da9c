"""Labels: what users may call their classes, and how columns are told."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import DataConversionWarning

from iknow.errors import InputError
from iknow.models.samples import (
    as_labels,
    as_row_numbers,
    check_several_classes,
    encode,
    find_classes,
)


@pytest.mark.parametrize(
    ("y", "n_columns", "expected"),
    [
        ([0, 1, 2], 3, [0, 1, 2]),
        ([2, 2, 0], 4, [0, 1, 2, 3]),  # whole numbers that fit are columns
        ([1, 2, 3], 3, [1, 2, 3]),  # they do not fit, but there are as many as columns
        ([-1, 1], 2, [-1, 1]),
        (["b", "a", "b"], 2, ["a", "b"]),
        ([True, False], 2, [False, True]),
        ([0.0, 1.0], 2, [0.0, 1.0]),
        (np.array([1, 0], dtype=np.uint8), 3, [0, 1, 2]),
    ],
)
def test_columns_are_named_from_the_labels(y, n_columns, expected):
    classes = find_classes(np.asarray(y), n_columns)
    assert classes.tolist() == expected
    assert isinstance(classes.tolist()[0], type(expected[0]))


def test_given_classes_are_taken_in_their_order():
    assert find_classes(np.array(["a", "b"]), 3, given=["z", "a", "b"]).tolist() == ["z", "a", "b"]


@pytest.mark.parametrize("given", [["a", "b"], ["a", "b", "b"], ["a", "b", "c", "d"]])
def test_given_classes_must_name_each_column_once(given):
    with pytest.raises(InputError, match="each of the model's 3 score columns once"):
        find_classes(np.array(["a", "b"]), 3, given=given)


@pytest.mark.parametrize("y", [[1, 5], ["a", "b"], [-1, 0]])
def test_labels_that_cannot_be_told_apart_from_columns_ask_for_classes(y):
    with pytest.raises(InputError, match=r"3 score columns but y holds 2 labels.*give classes="):
        find_classes(np.array(y), 3)


@pytest.mark.parametrize(
    "classes",
    [
        np.array([0, 1, 2]),
        np.array([30, 10, 20]),
        np.array(["x", "a", "m"]),
        np.array(["x", "a", "m"], dtype=object),
        np.array([True, False]),
    ],
)
def test_codes_are_the_places_of_labels_in_classes(classes):
    codes = np.random.default_rng(0).integers(len(classes), size=50)
    found = encode(classes[codes], classes, "y")
    assert found.dtype == np.int64
    assert found.tolist() == [classes.tolist().index(label) for label in classes[codes].tolist()]
    np.testing.assert_array_equal(found, codes)


def test_text_labels_as_objects_and_as_text_are_the_same_labels():
    classes = np.array(["a", "b"])
    assert encode(np.array(["b", "a"], dtype=object), classes, "y").tolist() == [1, 0]
    assert encode(np.array(["b", "a"]), classes.astype(object), "y").tolist() == [1, 0]


def test_unknown_labels_are_named():
    with pytest.raises(InputError, match=r"not know: 'c', 'd'\. It knows 'a', 'b'"):
        encode(np.array(["a", "d", "c"]), np.array(["a", "b"]), "y")


def test_numbers_are_not_taken_for_text():
    with pytest.raises(InputError, match="does not know: 1, 2"):
        encode(np.array([1, 2]), np.array(["1", "2"]), "y")
    with pytest.raises(InputError, match="does not know: '1'"):
        encode(np.array(["1"]), np.array([1, 2]), "y")


def test_a_long_list_of_labels_is_cut_short():
    with pytest.raises(InputError, match=r"10, 11, 12, 13, 14, 15, 16, 17, 18, 19, … .50 in all"):
        encode(np.arange(10, 60), np.array([0, 1]), "y")


@pytest.mark.parametrize("labels", [[1, 1, 1], ["a"], []])
def test_fewer_than_two_classes_are_refused(labels):
    with pytest.raises(InputError, match="at least two classes"):
        check_several_classes(np.array(labels))


def test_two_classes_are_enough():
    check_several_classes(np.array([0, 1]))


# What labels may be


def objects(*values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


@pytest.mark.parametrize(
    ("y", "expected", "kind"),
    [
        ([2, 0, 1], [2, 0, 1], "i"),
        ((2, 0, 1), [2, 0, 1], "i"),
        (np.array([2, 0, 1]), [2, 0, 1], "i"),
        (pd.Series([2, 0, 1], index=[7, 8, 9]), [2, 0, 1], "i"),
        (torch.tensor([2, 0, 1]), [2, 0, 1], "i"),
        (pd.Series(["b", "a", "b"], dtype="category"), ["b", "a", "b"], "O"),
        (pd.Series([2, 0, 1], dtype="Int64"), [2, 0, 1], "i"),
        (pd.Series(["b", "a", "b"], dtype="string"), ["b", "a", "b"], "O"),
        (objects(2, 0, 1), [2, 0, 1], "i"),
        (objects(True, False, True), [True, False, True], "b"),
        ([np.int8(2), 0, np.uint64(1)], [2, 0, 1], "i"),
        ([torch.tensor(2), torch.tensor(0), torch.tensor(1)], [2, 0, 1], "i"),
        (["b", "a", "b"], ["b", "a", "b"], "U"),
        (np.array([2**63, 2**64 - 1, 0], dtype=np.uint64), [2**63, 2**64 - 1, 0], "u"),
        ([2**63, 2**64 - 1, 0], [2**63, 2**64 - 1, 0], "u"),
        (np.ma.array([2, 0, 1]), [2, 0, 1], "i"),
        (["x" * 10_000, "", "\N{SNOWMAN}"], ["x" * 10_000, "", "\N{SNOWMAN}"], "U"),
    ],
)
def test_labels_of_many_kinds_are_taken_as_they_are(y, expected, kind):
    labels = as_labels(y, 3, "y")
    assert isinstance(labels, np.ndarray)
    assert labels.tolist() == expected
    assert labels.dtype.kind == kind


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.ma.masked_equal([0, 1, -999], -999), "masked entries, the first in row 2"),
        ([0, 1], "y must hold one label per sample; got 2 labels for 3"),
        ([0.0, 1.0, np.nan], "y must hold labels; row 2 is nan"),
        ([0.0, 1.0, np.inf], "y must hold labels; row 2 is inf"),
        (np.zeros((3, 2)), "should be a 1d array"),
        ([0, 1, None], "row 2 is None"),
        (["a", None, "b"], "row 1 is None"),
        (objects("a", np.nan, "b"), "row 1 is nan"),
        (objects(0, pd.NA, 1), "row 1 is <NA>"),
        (pd.Series([0, None, 1], dtype="Int64"), "row 1 is"),
        (pd.Series(["a", None, "b"]), "row 1 is"),
        (objects("a", pd.NaT, "b"), "row 1 is NaT"),
        (np.array(["2020-01-01", "NaT", "2020-01-02"], dtype="M8[D]"), "got dtype datetime64"),
        (np.array([1, 2, 3], dtype="m8[s]"), "got dtype timedelta64"),
        (np.array([1j, 2, 3]), "got dtype complex128"),
        (np.array([b"a", b"b", b"a"]), "got dtype .S1"),
        (np.zeros(3, dtype=[("a", int)]), "got dtype"),
        ([0, "1", 2], "all text or all numbers; got int, str"),
        ([0, (1,), 2], "y"),
        ([{}, {}, {}], "all text or all numbers; got dict"),
        ([0, -(2**63) - 1, 2**63], "beyond 64 bits"),
        ([2**63, -1, 0], "beyond 64 bits"),
        (["a", "a\0", "b"], "NUL"),
        ((label for label in [0, 1, 0]), "got generator"),
        ({0, 1}, "got set"),
        (None, "requires y to be passed, but the target y is None"),
        (pd.DataFrame({"a": [0, 1, 0], "b": [1, 0, 1]}), r"1d array.* got shape \(3, 2\)"),
        ([[0, 1], [1, 0], [1, 1]], r"1d array.* got shape \(3, 2\)"),
        ([0.5, 1.5, 2.5], "Unknown label type: continuous"),
    ],
)
def test_labels_that_are_none_are_refused(y, message):
    with pytest.raises(InputError, match=message):
        as_labels(y, 3, "y")


def test_a_column_of_a_table_is_taken_with_scikit_learns_warning():
    with pytest.warns(DataConversionWarning):
        assert as_labels(pd.DataFrame({"a": [0, 1, 0]}), 3, "y").tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    "rows",
    [
        [0, 1],
        [0, 1, 1],
        [0, 1, -1],
        [0.0, 1.0, 2.0],
        [True, False, True],
        ["0", "1", "2"],
        np.array([0, 1, 2**63], dtype=np.uint64),
        np.ma.masked_equal([0, 1, 2], 2),
        np.zeros((3, 1), dtype=int),
        3,
        (row for row in range(3)),
    ],
)
def test_rows_that_are_no_numbers_of_their_own_are_refused(rows):
    with pytest.raises(InputError, match="rows"):
        as_row_numbers(rows, 3)


def test_rows_may_be_any_whole_numbers():
    rows = [7, 2**63 - 1, 0]
    assert as_row_numbers(np.array(rows, dtype=np.uint64), 3).tolist() == rows
    assert as_row_numbers(None, 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "given", [["a", 1], ["a", None], [["a", "b"]], np.ma.masked_equal([1, 2], 2)]
)
def test_classes_are_checked_as_labels_are(given):
    with pytest.raises(InputError, match="classes"):
        find_classes(np.array(["a", "b"]), 2, given=given)


def test_a_model_must_score_all_the_classes_it_knows():
    with pytest.raises(InputError, match="knows 3 classes but returns 2"):
        find_classes(np.array([0, 1]), 2, known=np.array([0, 1, 2]))


def test_large_whole_numbers_are_told_apart():
    classes = np.array([2**63, 2**63 + 1], dtype=np.uint64)
    assert encode(classes[[1, 0, 1]], classes, "y").tolist() == [1, 0, 1]
    with pytest.raises(InputError, match="does not know: 9223372036854775807"):
        encode(np.array([2**63 - 1]), classes, "y")
