"""The arguments of the compiled functions, and the limits to compare their bounds with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.cpu.numba.compile import inlined

# Compiled functions pass arrays to each other one by one: numba would count the references of a
# record of arrays around every call, which costs more than most calls.


class Pack(NamedTuple):
    """Packed rows as the compiled functions take them, with the constants of the bounds.

    panels: flat, float32. slots: the row in each slot, or -1. points: the rows themselves, of shape
    (n_rows, n_features). rows: their numbers in the training set, of shape (n_rows,).
    """

    panels: Floats32
    slots: Ints
    points: Floats32
    rows: Ints
    scale: float
    error: float
    underflow: float


class Blocks(NamedTuple):
    """Panels in blocks of one class each.

    starts: the first panel of each block and, last, the number of panels, of shape (n_blocks + 1,).
    classes: the first block of each class and, last, their number, of shape (n_classes + 1,).
    """

    starts: Ints
    classes: Ints


class Queries(NamedTuple):
    """A batch of queries: the originals, and as `PackedRows.place` returns them."""

    given: Floats32
    points: Floats32
    squared: Floats


@inlined
def limit_terms(scale: float, error: float, underflow: float, squared: float) -> Any:
    """A query's factor and offset for `limit_for`, where |q̂|² = squared."""
    if not np.isfinite(squared):
        return 0.0, np.inf
    allowance = 2 * error * squared + underflow * (1 + np.sqrt(squared))
    return 0.5 * scale * scale, allowance - 0.5 * squared


@inlined
def limit_for(distance: float, factor: float, offset: float) -> Any:
    """The largest bound that a row within a distance can have, rounded up."""
    limit = factor * (distance * distance) + offset
    return np.float32(limit + 2.0**-22 * abs(limit) + 2.0**-120)
