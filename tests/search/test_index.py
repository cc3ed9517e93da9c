"""What every index checks of its input, piece by piece."""

import numpy as np
import pytest

import iknow.search.index
from iknow.errors import InputError
from iknow.search.index import check_activations


@pytest.mark.parametrize("values_at_once", [1, 7, 1 << 20])
def test_rows_that_are_not_finite_are_found_and_counted_in_any_piece(monkeypatch, values_at_once):
    monkeypatch.setattr(iknow.search.index, "VALUES_CHECKED_AT_ONCE", values_at_once)
    points = np.zeros((20, 3), dtype=np.float32)
    assert check_activations(points) is points
    points[19, 0], points[13, 2], points[13, 1] = np.nan, np.inf, np.nan
    with pytest.raises(InputError, match=r"finite in float32; row 13 is not \(2 such rows\)"):
        check_activations(points)


def test_no_rows_are_finite_and_no_features_are_refused():
    assert check_activations(np.empty((0, 3))).shape == (0, 3)
    for shape in ((3, 0), (0, 0)):
        with pytest.raises(InputError, match="at least one feature"):
            check_activations(np.empty(shape))
