"""Gaps: tables with missing values, as a layer of numbers.

Some classifiers take missing values as they are, and categories beside numbers. The layer "table"
is what distances can be measured in: the columns that hold numbers, 0 where one is missing, and a
flag for each, 1 where it is (`iknow.metrics.Table`). Infinite values stay infinite, and make a
sample invalid as in any layer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import get_tags

from iknow.core.arrays import Floats
from iknow.errors import LayerError
from iknow.models.leaves import has_leaves
from iknow.models.numbers import as_numbers

TABLE = "table"


def takes_gaps(classifier: Any) -> bool:
    """Whether a fitted classifier may take missing values as they are."""
    if has_leaves(classifier):
        return True
    return hasattr(classifier, "__sklearn_tags__") and get_tags(classifier).input_tags.allow_nan


def find_numbers(batch: Any) -> Floats:
    """The numbers of n samples and the flags of missing ones, of shape (n, 2 * n_numbers)."""
    if hasattr(batch, "iloc"):
        batch = batch.iloc[:, np.flatnonzero([is_number(dtype) for dtype in batch.dtypes])]
    values = as_numbers(batch, f"the layer {TABLE!r}", LayerError).astype(np.float64)
    if not values.size:
        raise LayerError(f"no column holds numbers, so there is no layer {TABLE!r}")
    gaps = np.isnan(values)
    return np.column_stack([np.where(gaps, 0.0, values), gaps])


def is_number(dtype: Any) -> bool:
    """Whether a column of this dtype holds numbers."""
    return getattr(dtype, "kind", "O") in "fiub" and not hasattr(dtype, "categories")
