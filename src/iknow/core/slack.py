"""Slack: how much a layer's radius would have to change for an assertion to be another.

As the radius grows a support changes only where it reaches the nearest sample of a class, so these
distances are all the radii to look at, the other layers staying as they are. Balls are closed: a
growing radius turns the assertion as soon as it equals such a distance, a shrinking one as soon as
it is below. A rule without radius turns with k instead, as far as the evidence holds neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Assertion, make_assertions
from iknow.core.evidence import Evidence
from iknow.core.justification import justify
from iknow.core.neighborhood import Ball, Neighborhood, has_k, has_radius
from iknow.core.support import find_support


@dataclass(frozen=True)
class Turn:
    """Where an assertion turns into another: growing, from `at` on; shrinking, below it."""

    at: float
    becomes: Assertion


@dataclass(frozen=True)
class Slack:
    """What turns an assertion, on either side of a layer's setting; None where nothing does.

    parameter: what is varied: "radius", "k", or "factor" for all radii of a `Ball` with one for
    each class. value: what it is now.
    """

    parameter: str
    value: float
    shrink: Turn | None
    grow: Turn | None

    @property
    def smallest(self) -> float:
        """The smallest change that turns the assertion, in size; inf where none does."""
        turns = [turn.at for turn in (self.shrink, self.grow) if turn is not None]
        return min((abs(at - self.value) for at in turns), default=float("inf"))

    def __str__(self) -> str:
        words = []
        if self.shrink is not None:
            words.append(f"{self.shrink.becomes.name} below {self.shrink.at:.4g}")
        if self.grow is not None:
            words.append(f"{self.grow.becomes.name} from {self.grow.at:.4g} on")
        turns = ", ".join(words) or "no change turns it"
        return f"{self.parameter} {self.value:.4g}: {turns}"


def find_slack(
    evidence: Evidence,
    neighborhood: Neighborhood,
    others: Sequence[Bools],
    belief: int,
    knowable: Sequence[int] | None = None,
) -> Slack | None:
    """The slack in one layer for the one query that the evidence is about.

    others: supports of the other layers, masks of shape (1, n_classes). knowable: codes of the
    classes that may be IK, where not all may. None for a rule that has neither a radius nor k.
    """
    parameter, value = "radius", getattr(neighborhood, "radius", None)
    if isinstance(neighborhood, Ball) and isinstance(value, tuple):
        # Dividing by the radii turns them into one: d <= ε if and only if d / ε <= 1, in floating
        # point as well.
        evidence, neighborhood = _in_units_of(evidence, np.asarray(value)), Ball(1.0)
        parameter, value = "factor", 1.0
    elif has_k(type(neighborhood)) and not has_radius(type(neighborhood)):
        parameter, value = "k", neighborhood.n_neighbors
    if value is None:
        return None

    field = "k" if parameter == "k" else "radius"

    def assertion(setting: float) -> Assertion:
        rule: Any = replace(cast(Any, neighborhood), **{field: setting})
        return _assert([find_support(evidence, rule), *others], belief, knowable)

    settings = _settings(evidence, parameter)
    now = assertion(value)
    grow = _first(settings[settings > value], assertion, now)
    shrink = _first(settings[settings < value][::-1], assertion, now)
    if shrink is not None:
        # It holds from that setting up to the next one, where the present assertion begins.
        above = settings[settings > shrink.at]
        shrink = Turn(float(min(above[0] if len(above) else value, value)), shrink.becomes)
    return Slack(parameter, float(value), shrink, grow)


def _first(
    settings: Iterable[Any], assertion: Callable[[float], Assertion], now: Assertion
) -> Turn | None:
    """The first setting that is asserted about otherwise."""
    for setting in settings:
        if (then := assertion(setting)) != now:
            return Turn(float(setting), then)
    return None


def _settings(evidence: Evidence, parameter: str) -> Floats | Ints:
    """All settings where anything changes, ascending."""
    if parameter == "k":
        return np.arange(1, evidence.n_neighbors + 1)
    distances = evidence.class_distances[0]
    return np.unique(np.append(distances[np.isfinite(distances)], 0.0))


def _assert(supports: Sequence[Bools], belief: int, knowable: Sequence[int] | None) -> Assertion:
    return Assertion(int(make_assertions(np.array([belief]), justify(supports), knowable)[0]))


def _in_units_of(evidence: Evidence, radii: Floats) -> Evidence:
    distances = evidence.class_distances
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(distances == 0, 0.0, distances / radii)
    return replace(evidence, class_distances=np.where(np.isinf(distances), np.inf, ratios))
