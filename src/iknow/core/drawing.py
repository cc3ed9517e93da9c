"""Drawings: what a rule looks like, as plain data. A plot draws it and decides nothing itself.

A sample is a point (d_g, d_¬g) in a plane: its distance to the believed class, and that to any
other. A rule cuts this plane into areas, one for each reason for an assertion. Where more than the
two distances has a say, no area is given: only what is certain is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iknow.core.assertion import Assertion, Reason

Limits = tuple[float, float]
Areas = dict[Reason, list[tuple[float, float]]]


@dataclass(frozen=True)
class Drawing:
    """What distances alone decide.

    marks: distances to keep in view, ascending; the first is a line with its name. areas: from the
    limits of d_g and of d_¬g to the corners of each area. on_diagonal: the areas that narrow toward
    their corner, so that their name has room only near the first mark.
    """

    marks: tuple[float, ...]
    areas: Callable[[Limits, Limits], Areas]
    on_diagonal: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Look:
    """The line of a rule among others: the color of an assertion, or of a class by its place."""

    color: Assertion | int
    marker: str
    width: float = 1.2
    dashes: tuple[float, ...] = ()
