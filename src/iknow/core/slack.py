"""Slack, margins and stability: how far an assertion is from changing.

**Slack**: how much a layer's setting would have to change. A rule gives its settings: the parameter
to vary, and all its values where the support can change while the other layers stay as they are.
For a radius these are the distances to the classes. Balls are closed: a growing radius changes the
assertion once it equals such a distance, a shrinking one once it is below. For any rule we can vary
the reach itself, as d_c <= ρ is all that a support depends on.

**Margin**: in a layer with reach ρ, the belief g is alone within reach when d_g <= ρ < d_¬g. The
smaller of

    ρ - d_g    by which the believed class is within reach
    d_¬g - ρ   by which every other class is not

is the layer's margin: positive if the layer supports g alone; if negative, how much is missing. The
margin of a sample is the smallest of its layers', as IK needs all of them. Where a rule gives no
reach its limit `empty_beyond` takes its place: how much nearer a sample would have to be. If one is
near enough and something else is missing, we cannot say how much, and the margin is -inf.

**Stability**: how much of the training set an adversary must change before an IK is lost. Each rule
says, for a layer, how many samples must be removed (`removals`), and how many may be added, removed
or relabeled at will without harm (`changes`). The model is not trained again. With a quorum of one
against, a single wrong label within reach turns IK into IMK, and no change at all is harmless; a
larger quorum buys a certificate against poisoned data. The counts come from the distances that the
evidence holds, without a second search. If all of them are within the limit there may be more, and
the count is a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Assertion, make_assertions
from iknow.core.evidence import Evidence
from iknow.core.quorum import weigh
from iknow.core.rule import (
    NO_REACH,
    ParameterSettings,
    Rule,
    Stability,
    distances_of,
    promise_of,
    reach_by_class,
)
from iknow.core.support import find_support, justify


@dataclass(frozen=True)
class ChangePoint:
    """Where an assertion turns into another: growing, from `at` on; shrinking, below it."""

    at: float
    becomes: Assertion


@dataclass(frozen=True)
class Slack:
    """The settings of one layer at which an assertion turns, on either side of the current one.

    `parameter` varies: radius, k, or reach for a rule without settings of its own. From its current
    `value` the first smaller one that turns the assertion is `shrink`, the first larger one `grow`.
    """

    parameter: str
    value: float
    shrink: ChangePoint | None
    grow: ChangePoint | None

    @property
    def smallest(self) -> float:
        """The size of the smallest change that turns the assertion; inf if none does."""
        turns = filter(None, (self.shrink, self.grow))
        return min((abs(turn.at - self.value) for turn in turns), default=float("inf"))

    def __str__(self) -> str:
        below = [f"{self.shrink.becomes.name} if below {self.shrink.at:.4g}"] if self.shrink else []
        above = [f"{self.grow.becomes.name} if {self.grow.at:.4g} or more"] if self.grow else []
        turns = ", ".join(below + above) or "no other alone changes that"
        return f"{self.parameter} {self.value:.4g}, {turns}"


def parameter_settings(
    rule: Rule, parameter: str, evidence: Evidence, values: Floats | Ints
) -> ParameterSettings:
    """The values of a parameter of the rule."""

    def support(value: Any) -> Bools:
        return find_support(evidence, replace(rule, **{parameter: value}))  # type: ignore[type-var]

    return ParameterSettings(parameter, getattr(rule, parameter), values, support)


def radius_settings(rule: Rule, evidence: Evidence) -> ParameterSettings:
    """The values of a radius: the support changes only at the distances to the classes."""
    return parameter_settings(rule, "radius", evidence, distances_of(evidence))


def find_slack(
    evidence: Evidence,
    rule: Rule,
    others: Sequence[Bools],
    belief: int,
    knowable: Sequence[int] | None = None,
) -> Slack | None:
    """The slack in one layer for the one query that the evidence is about.

    others: supports of the other layers, masks of shape (1, n_classes). knowable: codes of the
    classes that may be IK; None for all. Returns None if there is nothing to vary.
    """
    evidence = weigh(evidence, rule.quorum, np.array([belief]))
    settings: ParameterSettings | None = promise_of(rule, "settings")(evidence)
    if settings is None:
        return None
    values, now = settings.values, settings.value

    def assertion(value: Any) -> Assertion:
        justification = justify([settings.support(value), *others])
        return Assertion(int(make_assertions(np.array([belief]), justification, knowable)[0]))

    current = assertion(now)

    def first(values: Iterable[Any], ends: Iterable[Any]) -> ChangePoint | None:
        """Where the first of the values with another assertion ends the current one."""
        for value, end in zip(values, ends, strict=True):
            if (then := assertion(value)) != current:
                return ChangePoint(float(end), then)
        return None

    above, below = values[values > now], values[values < now][::-1]
    # Below, an assertion holds from its value up to the next one, where the current one begins.
    shrink = first(below, np.append(now, below)[:-1])
    return Slack(settings.parameter, float(now), shrink, first(above, above))


def find_margins(evidence: Evidence, rule: Rule, belief: Ints) -> Floats:
    """The margins of one layer, of shape (n_queries,), in its distances; at 0 a distance equals the
    reach exactly, and the closed ball decides. belief: class codes of shape (n_queries,).
    """
    evidence = weigh(evidence, rule.quorum, belief)
    distances = evidence.class_distances
    reach = reach_by_class(rule, evidence)
    rows = np.arange(len(evidence))
    none = reach[rows, belief] == NO_REACH
    limit = promise_of(rule, "empty_beyond")
    # Without a limit we cannot say how much is missing. Where the belief has a reach, a class that
    # has none never counts.
    instead = NO_REACH if np.isinf(limit) else limit
    reach = np.where(none[:, None] & (reach == NO_REACH), instead, reach)
    with np.errstate(invalid="ignore"):  # inf - inf is replaced below
        outside = distances - reach
    own = 0.0 - outside[rows, belief]
    outside[rows, belief] = np.inf
    # A class without samples is never within reach, however far that is.
    outside[np.isinf(distances)] = np.inf
    own[np.isinf(distances[rows, belief])] = -np.inf
    margins: Floats = np.minimum(own, outside.min(axis=1))
    return np.where(none & (margins >= 0), -np.inf, margins)


def find_stability(
    evidence: Sequence[Evidence], rules: Sequence[Rule], belief: Ints, known: Bools
) -> Stability:
    """The stability of each IK: it is lost with the first layer that no longer supports it alone.

    evidence, rules: one per layer. belief: class codes of shape (n,). known: mask of shape
    (n,) of the samples that are IK.
    """
    layers = list(zip(evidence, rules, strict=True))
    removals = [promise_of(rule, "removals")(about, belief) for about, rule in layers]
    whole: Stability = reduce(lost_with_either, removals)
    # A changed sample changes in every layer at once, so the weakest layer decides.
    changes = np.min([promise_of(rule, "changes")(about, belief) for about, rule in layers], axis=0)
    kept = np.where(known, whole.at_least, 0), whole.exact | ~known, np.where(known, changes, 0)
    return Stability(*kept)


def count_nearest(evidence: Evidence, counted: Bools) -> Stability:
    """How many neighbors count, by a mask of shape (n, k); with an IK at least one does."""
    counts = (counted & np.isfinite(evidence.neighbor_distances)).sum(axis=1)
    return Stability(np.maximum(counts, 1), counts < evidence.n_neighbors)


def lost_with_either(one: Stability, other: Stability) -> Stability:
    """The stability of what is lost as soon as either is."""
    fewest = np.minimum(one.at_least, other.at_least)
    exact = (one.exact & (one.at_least == fewest)) | (other.exact & (other.at_least == fewest))
    return Stability(fewest, exact)


def lost_with_both(one: Stability, other: Stability) -> Stability:
    """The stability of what is lost only when both are."""
    return Stability(np.maximum(one.at_least, other.at_least), one.exact & other.exact)
