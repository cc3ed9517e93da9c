"""The engine ranks candidates by distance and number, in numpy's arrays and in torch's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iknow.search.engine import FEW, MANY, NO_ROW, lowest_of_stack, merge_list

LIBRARIES = [np, pytest.importorskip("torch")]


@st.composite
def stacks(draw):
    """Distances with many equals and some inf, and the numbers of their rows."""
    n, n_columns = draw(st.integers(1, 9)), draw(st.sampled_from([1, 3, MANY + 2]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    numbers = rng.permuted(np.arange(n * n_columns).reshape(n, n_columns), axis=0)
    distances = rng.choice([0.0, 0.5, 1.0, 2.0, np.inf], size=numbers.shape)
    return (
        distances,
        np.where(np.isinf(distances), NO_ROW, numbers),
        draw(st.sampled_from([1, 2, 3, 12, FEW + 1, FEW + 9])),
    )


def by_numpy(distances, numbers, m):
    order = np.lexsort((numbers, distances), axis=0)[:m]
    missing = ((0, m - len(order)), (0, 0))
    return (
        np.pad(np.take_along_axis(distances, order, 0), missing, constant_values=np.inf),
        np.pad(np.take_along_axis(numbers, order, 0), missing, constant_values=NO_ROW),
    )


@pytest.mark.parametrize("xp", LIBRARIES)
@given(stack=stacks())
def test_a_stack_is_ranked_by_distance_and_number(xp, stack):
    distances, numbers, m = stack
    found = lowest_of_stack(xp, xp.asarray(distances), xp.asarray(numbers), m)
    for actual, expected in zip(found, by_numpy(*stack), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("xp", LIBRARIES)
@given(stack=stacks(), seed=st.integers(0, 2**32 - 1))
def test_a_list_in_any_order_is_ranked_among_what_is_known(xp, stack, seed):
    distances, numbers, m = stack
    rng = np.random.default_rng(seed)
    known = int(rng.integers(1, len(distances) + 1))
    nearest = lowest_of_stack(xp, xp.asarray(distances[:known]), xp.asarray(numbers[:known]), m)
    nearest = [xp.asarray(each, copy=True) for each in nearest]
    column = np.broadcast_to(np.arange(distances.shape[1]), distances.shape)
    order = rng.permutation(distances[known:].size)
    listed = (xp.asarray(each[known:].flatten()[order]) for each in (distances, numbers, column))
    merge_list(xp, *nearest, *listed)
    for actual, expected in zip(nearest, by_numpy(*stack), strict=True):
        np.testing.assert_array_equal(actual, expected)
