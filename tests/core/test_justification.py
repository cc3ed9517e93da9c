"""Justification: the union of the layers' supports, unless one is empty."""

import numpy as np
import pytest

from iknow.core.justification import justify
from iknow.errors import InputError


def mask(*supports, n_classes=3):
    return np.array([[code in support for code in range(n_classes)] for support in supports])


@pytest.mark.parametrize(
    ("supports", "justified"),
    [
        ([{0}], {0}),
        ([{0, 2}], {0, 2}),
        ([set()], set()),
        ([{0}, {0}], {0}),
        ([{0}, {1}], {0, 1}),
        ([{0, 1}, {1, 2}], {0, 1, 2}),
        ([{0}, set()], set()),
        ([set(), {0}], set()),
        ([{0, 1, 2}, set(), {0, 1, 2}], set()),
        ([{0}, {1}, {2}], {0, 1, 2}),
    ],
)
def test_a_justification_is_the_union_or_nothing_if_any_support_is_empty(supports, justified):
    found = justify([mask(support) for support in supports])
    np.testing.assert_array_equal(found, mask(justified))


def test_every_query_is_justified_on_its_own():
    found = justify([mask({0}, set(), {1}), mask({1}, {1}, {1})])
    np.testing.assert_array_equal(found, mask({0, 1}, set(), {1}))
    assert found.dtype == bool


def test_no_supports_are_refused():
    with pytest.raises(InputError, match="needs the support of at least one layer; got none"):
        justify([])


@pytest.mark.parametrize("shape", [(1, 3), (2, 4)], ids=["queries", "classes"])
def test_supports_of_different_shapes_are_refused(shape):
    with pytest.raises(InputError, match=r"must share a shape; got .*\(2, 3\)") as caught:
        justify([np.ones((2, 3), dtype=bool), np.ones(shape, dtype=bool)])
    assert str(shape) in str(caught.value)
