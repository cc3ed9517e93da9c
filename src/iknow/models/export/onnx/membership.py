"""Membership: splits by sets of categories, as columns of 0 and 1 that a tree can compare.

A category is a whole number. A split asks whether it is in a set; for each set we add a column that
holds 1 if it is and 0 if not, and the tree compares that with 1/2.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from iknow.models.export.onnx.builder import Builder, Tensor

MOST = 2.0**31 - 1  # far above any category, and a whole number


def membership(b: Builder, column: Tensor, sets: Sequence[Collection[int]]) -> Tensor:
    """Whether a category is in each set, of shape (n, n_sets); what is missing is in none.

    column: numbers in double precision, of shape (n, 1), which are cut to whole ones.
    """
    size = 1 + max((max(each) for each in sets if len(each)), default=0)
    table = np.zeros((size + 1, len(sets)))
    for j, each in enumerate(sets):
        table[list(each), j] = 1.0
    is_missing = b.op("IsNaN", column, kind="bool")
    present = b.op("Where", is_missing, np.array(-1.0), column, kind="float64", width=1)
    whole = b.cast(b.op("Clip", present, np.array(-MOST), np.array(MOST)), "int64")
    outside = b.op(
        "Or",
        b.op("Less", whole, np.array(0), kind="bool"),
        b.op("GreaterOrEqual", whole, np.array(size), kind="bool"),
    )
    place = b.op("Where", outside, np.array(size), whole, kind="int64", width=1)
    flat = b.op("Reshape", place, np.array([-1]), width=None)
    return b.op("Gather", table, flat, kind="float64", width=len(sets), axis=0)
