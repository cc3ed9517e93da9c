"""Drawings: what a rule looks like, as plain data. A plot draws it and decides nothing itself.

A sample is a point (d_g, d_¬g): its distances to the believed class and to the nearest other one.
A rule cuts this plane into areas, one for each reason. It gives only those that the two distances
make certain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iknow.core.assertion import Reason

Limits = tuple[float, float]
Areas = dict[Reason, list[tuple[float, float]]]


@dataclass(frozen=True)
class Drawing:
    """What distances alone decide."""

    marks: tuple[float, ...]  # distances to keep in view, ascending; the first is a labeled line
    areas: Callable[[Limits, Limits], Areas]  # limits of d_g and of d_¬g to each area's corners
    across: bool = True  # whether the first mark is a line at that d_¬g too, not at d_g alone
