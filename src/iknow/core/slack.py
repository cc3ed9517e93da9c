"""Slack: how much a layer's setting would have to change to turn an assertion into another.

A rule gives a dial: the parameter to turn, and all settings where the support can change while the
other layers stay as they are. For a radius these are the distances to the classes. Balls are
closed: a growing radius turns the assertion once it equals such a distance, a shrinking one once it
is below. For any rule we can turn the reach itself, as d_c <= ρ is all that a support depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Assertion, make_assertions
from iknow.core.evidence import Evidence
from iknow.core.justification import justify
from iknow.core.overriding import said
from iknow.core.quorum import weigh
from iknow.core.support import find_support, within

if TYPE_CHECKING:
    from iknow.core.neighborhood import Neighborhood


@dataclass(frozen=True)
class Turn:
    """Where an assertion turns into another: growing, from `at` on; shrinking, below it."""

    at: float
    becomes: Assertion


@dataclass(frozen=True)
class Slack:
    """The settings of one layer at which an assertion turns, on either side of the current one.

    Attributes:
        parameter: What varies: "radius", "k", or "reach" for a rule without a dial of its own.
        value: Its current value.
        shrink: The first smaller setting that turns the assertion; None if none does.
        grow: The first larger setting that turns the assertion; None if none does.
    """

    parameter: str
    value: float
    shrink: Turn | None
    grow: Turn | None

    @property
    def smallest(self) -> float:
        """The size of the smallest change that turns the assertion; inf if none does."""
        turns = [turn.at for turn in (self.shrink, self.grow) if turn is not None]
        return min((abs(at - self.value) for at in turns), default=float("inf"))

    def __str__(self) -> str:
        below = [f"{self.shrink.becomes.name} below {self.shrink.at:.4g}"] if self.shrink else []
        above = [f"{self.grow.becomes.name} from {self.grow.at:.4g} on"] if self.grow else []
        turns = ", ".join(below + above) or "no change turns it"
        return f"{self.parameter} {self.value:.4g}: {turns}"


@dataclass(frozen=True)
class Dial:
    """A parameter to turn for one query."""

    parameter: str
    value: float
    settings: Floats | Ints  # where the support can change, ascending; in between it is constant
    support: Callable[[Any], Bools]  # from a setting to the mask of shape (1, n_classes)


def dial_parameter(
    rule: Neighborhood, parameter: str, evidence: Evidence, settings: Floats | Ints
) -> Dial:
    """The dial that sets a parameter of the rule."""

    def support(setting: Any) -> Bools:
        return find_support(evidence, replace(rule, **{parameter: setting}))  # type: ignore[type-var]

    return Dial(parameter, getattr(rule, parameter), settings, support)


def dial_radius(rule: Neighborhood, evidence: Evidence) -> Dial:
    """The dial of a radius, whose support changes only at the distances to the classes."""
    return dial_parameter(rule, "radius", evidence, distances_of(evidence))


def dial_reach(evidence: Evidence, reach: Floats) -> Dial | None:
    """The dial that sets the reach itself; None if the query has none, or one for each class.

    reach: of one query, a number or of shape (n_classes,).
    """
    if reach.ndim == 1 or np.isneginf(reach):
        return None
    at = distances_of(evidence)
    return Dial(
        "reach", float(reach), at, lambda setting: within(evidence.class_distances, setting)
    )


def distances_of(evidence: Evidence) -> Floats:
    """Where the support of one query changes with the radius: 0 and all distances, ascending."""
    distances = evidence.class_distances[0]
    return np.unique(np.append(distances[np.isfinite(distances)], 0.0))


def find_slack(
    evidence: Evidence,
    neighborhood: Neighborhood,
    others: Sequence[Bools],
    belief: int,
    knowable: Sequence[int] | None = None,
) -> Slack | None:
    """The slack in one layer for the one query that the evidence is about.

    others: supports of the other layers, masks of shape (1, n_classes). knowable: codes of the
    classes that may be IK; None for all. Returns None if there is nothing to turn.
    """
    evidence = weigh(evidence, neighborhood.quorum, np.array([belief]))
    dial: Dial | None = said(neighborhood, "dial")(evidence)
    if dial is None:
        return None
    support, settings, value = dial.support, dial.settings, dial.value

    def assertion(setting: Any) -> Assertion:
        justification = justify([support(setting), *others])
        return Assertion(int(make_assertions(np.array([belief]), justification, knowable)[0]))

    now = assertion(value)
    grow = _first(settings[settings > value], assertion, now)
    shrink = _first(settings[settings < value][::-1], assertion, now)
    if shrink is not None:
        # It holds from that setting up to the next one, where the current assertion begins.
        above = settings[settings > shrink.at]
        shrink = Turn(float(min(above[0] if len(above) else value, value)), shrink.becomes)
    return Slack(dial.parameter, float(value), shrink, grow)


def _first(
    settings: Iterable[Any], assertion: Callable[[Any], Assertion], now: Assertion
) -> Turn | None:
    """The first setting with another assertion."""
    for setting in settings:
        if (then := assertion(setting)) != now:
            return Turn(float(setting), then)
    return None
