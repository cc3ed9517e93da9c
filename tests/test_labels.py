"""Labels: what users may call their classes, and how columns are told."""

import numpy as np
import pandas as pd
import pytest
import torch

from iknow.errors import InputError
from iknow.labels import as_labels, check_several_classes, encode, find_classes


@pytest.mark.parametrize(
    "y",
    [
        [2, 0, 1],
        (2, 0, 1),
        np.array([2, 0, 1]),
        pd.Series([2, 0, 1], index=[7, 8, 9]),
        torch.tensor([2, 0, 1]),
    ],
    ids=["list", "tuple", "array", "series", "tensor"],
)
def test_labels_come_in_any_container(y):
    labels = as_labels(y, 3, "y")
    assert isinstance(labels, np.ndarray)
    assert labels.tolist() == [2, 0, 1]


def test_a_categorical_series_is_taken_by_its_values():
    labels = as_labels(pd.Series(["b", "a", "b"], dtype="category"), 3, "y")
    assert labels.tolist() == ["b", "a", "b"]


def test_another_number_of_labels_than_samples_is_refused():
    with pytest.raises(InputError, match="y must hold one label per sample: got 2 labels for 3"):
        as_labels([0, 1], 3, "y")


def test_a_table_of_labels_is_refused():
    with pytest.raises(ValueError, match="should be a 1d array"):
        as_labels(np.zeros((3, 2)), 3, "y")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_label_that_is_not_finite_is_refused_by_its_row(value):
    with pytest.raises(InputError, match=f"y must hold labels; row 2 is {value}"):
        as_labels([0.0, 1.0, value], 3, "y")


def test_measured_numbers_are_not_labels():
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        as_labels([0.1, 0.7, 0.3], 3, "y")


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
    with pytest.raises(InputError, match=r"10, 11, 12, 13, 14, 15, 16, 17, 18, 19, \.\.\."):
        encode(np.arange(10, 60), np.array([0, 1]), "y")


@pytest.mark.parametrize("labels", [[1, 1, 1], ["a"], []])
def test_fewer_than_two_classes_are_refused(labels):
    with pytest.raises(InputError, match="at least two classes"):
        check_several_classes(np.array(labels))


def test_two_classes_are_enough():
    check_several_classes(np.array([0, 1]))
