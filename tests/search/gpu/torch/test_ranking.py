"""Stacks and lists of candidates, ranked as numpy ranks them."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from iknow.search.gpu.torch.blocks import NO_ROW
from iknow.search.gpu.torch.ranking import lowest_of_list, lowest_of_stack


@st.composite
def stacks(draw):
    """Distances with many equals and some inf, and the numbers of their rows."""
    n, n_columns = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    numbers = rng.permuted(np.arange(n * n_columns).reshape(n, n_columns), axis=0)
    distances = rng.choice([0.0, 0.5, 1.0, 2.0, np.inf], size=numbers.shape)
    return distances, np.where(np.isinf(distances), NO_ROW, numbers), draw(st.integers(1, 12))


def by_numpy(distances, numbers, m):
    order = np.lexsort((numbers, distances), axis=0)[:m]
    missing = ((0, m - len(order)), (0, 0))
    return (
        np.pad(np.take_along_axis(distances, order, 0), missing, constant_values=np.inf),
        np.pad(np.take_along_axis(numbers, order, 0), missing, constant_values=NO_ROW),
    )


@given(stacks())
def test_a_stack_is_ranked_by_distance_and_number(stack):
    distances, numbers, m = stack
    found = lowest_of_stack(torch.from_numpy(distances), torch.from_numpy(numbers), m)
    for actual, expected in zip(found, by_numpy(*stack), strict=True):
        np.testing.assert_array_equal(actual, expected)


@given(stacks(), st.integers(0, 2**32 - 1))
def test_a_list_in_any_order_is_ranked_like_its_stack(stack, seed):
    distances, numbers, m = stack
    column = np.broadcast_to(np.arange(distances.shape[1]), distances.shape)
    order = np.random.default_rng(seed).permutation(distances.size)
    listed = (torch.from_numpy(each.flatten()[order]) for each in (distances, numbers, column))
    found = lowest_of_list(*listed, m, distances.shape[1])
    for actual, expected in zip(found, by_numpy(*stack), strict=True):
        np.testing.assert_array_equal(actual, expected)
