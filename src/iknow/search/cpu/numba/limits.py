"""How far the bounds of a row may reach, compiled: the same distance as cells and shadows show it.

See `iknow.search.cpu.projection` for shadows, `packed` for the bounds of their panels, and
`cell_bounds` for those of cells. All limits are rounded up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from iknow.search.cpu.numba.compile import inlined
from iknow.search.cpu.numba.records import limit_for, limit_terms


class Lens(NamedTuple):
    """How a projection shows distances.

    stretch: by how much it may stretch them. units: the units in 1. blur: of rows, in units.
    """

    stretch: float
    units: float
    blur: float


class View(NamedTuple):
    """What turns a distance from one query into limits of its bounds."""

    stretch: float
    slack: float
    units: float
    blur: float
    factor: float
    offset: float
    scale: float
    margin: float


@inlined
def view_from(
    lens: Lens, slack: float, scale: float, error: float, underflow: float, squared: float
) -> Any:
    """The view of a query with |q̂|² = squared. slack: see `Projection.widen`."""
    factor, offset = limit_terms(scale, error, underflow, squared)
    margin = 2.0**-22 * np.sqrt(squared) + 2.0**-110
    return View(lens.stretch, slack, lens.units, lens.blur, factor, offset, scale, margin)


@inlined
def cell_offset(view: View) -> Any:
    """What to subtract from the bound of a cell."""
    return np.float32(view.offset + 2.0**-22 * abs(view.offset) + 2.0**-120)


@inlined
def cell_limit(distance: float, view: View) -> Any:
    """The largest distance of a cell with a row within a distance, in the units of panels."""
    shown = (distance * view.stretch + view.slack) * view.scale + view.margin
    return np.float32(shown * (1 + 2.0**-19))


@inlined
def row_limit(distance: float, view: View) -> Any:
    """The largest bound that the shadow of a row within a distance can have."""
    if distance == np.inf:
        return np.float32(np.inf)
    return limit_for(distance * view.stretch + view.slack, view.factor, view.offset)


@inlined
def far_limit(distance: float, view: View, n_terms: int) -> Any:
    """The largest squared distance, in units, of the shadow by more directions."""
    shown = (distance * view.stretch + view.slack) * view.units + view.blur
    # Rounding, relative to the sum: less than 2^-22 for each term.
    return shown * shown * (1 + (n_terms + 8) * 2.0**-22)
