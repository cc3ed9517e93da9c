"""Positions of labels among classes: by equality, in any order and type."""

import numpy as np
import pytest

from iknow.core.codes import UNKNOWN, positions_of


@pytest.mark.parametrize(
    "classes",
    [
        [2, 0, 1],
        [True, False],
        ["b", "c", "a"],
        [0.5, -1.0, np.inf],
        [2**63, 2**63 + 1, 2**64 - 1],
    ],
)
@pytest.mark.parametrize("as_objects", [False, True])
def test_every_label_is_found_in_classes_of_any_order(classes, as_objects):
    given = np.array(classes)
    codes = np.random.default_rng(0).integers(len(classes), size=40)
    labels = given[codes].astype(object) if as_objects else given[codes]
    np.testing.assert_array_equal(positions_of(labels, given), codes)
    np.testing.assert_array_equal(positions_of(labels, given.astype(object)), codes)


def test_labels_of_mixed_types_need_no_order():
    classes = np.array(["a", 1, None, 2.5], dtype=object)
    labels = np.array([2.5, "a", None, True, "b"], dtype=object)
    assert positions_of(labels, classes).tolist() == [3, 0, 2, 1, UNKNOWN]


def test_whole_numbers_are_not_compared_as_floats():
    classes = np.array([2**63, 2**63 + 1], dtype=np.uint64)
    assert positions_of(np.array([2**63 - 1]), classes).tolist() == [UNKNOWN]
    near = np.array([2**53, 2**53 + 1])
    assert positions_of(near.astype(np.float64), near).tolist() == [0, 0]
    assert positions_of(near, near.astype(np.float64)[:1]).tolist() == [0, UNKNOWN]


def test_text_and_numbers_are_never_equal():
    assert positions_of(np.array(["1", "0"]), np.array([0, 1])).tolist() == [UNKNOWN, UNKNOWN]
    assert positions_of(np.array([0, 1]), np.array(["1", "0"])).tolist() == [UNKNOWN, UNKNOWN]


def test_no_labels_have_no_positions():
    assert positions_of(np.array([]), np.array([0, 1])).shape == (0,)
