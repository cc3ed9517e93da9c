"""What the compiled functions are given, and the limits that their bounds are compared with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.cpu.numba.compile import inlined

# Inside the compiled functions arrays are handed on one by one: a record of arrays would be counted
# in and out of every call, which costs more than most calls.


class Pack(NamedTuple):
    """Packed rows as the compiled functions take them.

    panels: flat, float32. slots: the row in each slot, or -1. points: the rows themselves, of shape
    (n_rows, n_features). rows: the number each is known by, of shape (n_rows,). scale, error,
    underflow: the constants of the bounds.
    """

    panels: Floats32
    slots: Ints
    points: Floats32
    rows: Ints
    scale: float
    error: float
    underflow: float


class Blocks(NamedTuple):
    """Panels in blocks of a class each.

    starts: the first panel of each block and, last, the number of panels, of shape (n_blocks + 1,).
    classes: the first block of each class and, last, their number, of shape (n_classes + 1,).
    """

    starts: Ints
    classes: Ints


class Queries(NamedTuple):
    """A batch of queries: as given, and as `PackedRows.place` puts them."""

    given: Floats32
    points: Floats32
    squared: Floats


@inlined
def limit_terms(scale: float, error: float, underflow: float, squared: float) -> Any:
    """What `limit_for` needs to know of a query: a factor and an offset, for |q̂|² = squared."""
    if not np.isfinite(squared):
        return 0.0, np.inf
    allowance = 2 * error * squared + underflow * (1 + np.sqrt(squared))
    return 0.5 * scale * scale, allowance - 0.5 * squared


@inlined
def limit_for(distance: float, factor: float, offset: float) -> Any:
    """What the bound of a row within a distance never exceeds, rounded up."""
    limit = factor * (distance * distance) + offset
    return np.float32(limit + 2.0**-22 * abs(limit) + 2.0**-120)
