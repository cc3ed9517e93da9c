"""Neighborhoods: rules that turn evidence into a reach.

Each rule answers one question: how far from the query does a training sample still count? The
answer, the reach ρ(x), is the only thing that tells the paper's four operators apart:

    Ball(radius)                  ε
    Nearest(k)                    r_k
    BallElseNearest(radius, k)    ε if any sample lies within it, else r_k           (H-1)
    BallWithNearest(radius, k)    max(ε, r_k) if any sample lies within ε, else none (H-2)

All balls are closed: a sample at distance exactly ρ counts, and so do all samples tied with the
k-th neighbour. A support therefore never depends on the order of the training set.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.core.evidence import Evidence
from iknow.errors import InputError

NO_REACH = -np.inf
"""The reach of a query whose neighborhood is empty by rule: no distance is within it."""


class Neighborhood(ABC):
    """A rule that says how far from a query a training sample counts as support."""

    def __post_init__(self) -> None:
        # The rules are frozen records of these two parameters; plain numbers keep them hashable,
        # comparable and writable as JSON.
        if has_radius(type(self)):
            object.__setattr__(self, "radius", _check_radius(self.radius))  # type: ignore[attr-defined]
        if has_k(type(self)):
            object.__setattr__(self, "k", _check_k(self.k))  # type: ignore[attr-defined]

    @property
    def n_neighbors(self) -> int:
        """How many neighbour distances the rule reads from the evidence."""
        return int(getattr(self, "k", 0))

    @abstractmethod
    def reach(self, evidence: Evidence) -> Floats:
        """The reach ρ for each query, of shape (n_queries,); `NO_REACH` for none."""


@dataclass(frozen=True)
class Ball(Neighborhood):
    """All training samples within a fixed radius (the paper's ε-ball)."""

    radius: float

    def reach(self, evidence: Evidence) -> Floats:
        return np.full(len(evidence), self.radius)


@dataclass(frozen=True)
class Nearest(Neighborhood):
    """The k nearest training samples, however far (the paper's k-NN)."""

    k: int

    def reach(self, evidence: Evidence) -> Floats:
        return evidence.neighbor_distance(self.k)


@dataclass(frozen=True)
class BallElseNearest(Neighborhood):
    """The ball, or the k nearest samples where the ball is empty (the paper's H-1)."""

    radius: float
    k: int

    def reach(self, evidence: Evidence) -> Floats:
        inhabited = evidence.nearest_distance() <= self.radius
        return np.where(inhabited, self.radius, evidence.neighbor_distance(self.k))


@dataclass(frozen=True)
class BallWithNearest(Neighborhood):
    """The ball and the k nearest samples, or nothing where the ball is empty (the paper's H-2)."""

    radius: float
    k: int

    def reach(self, evidence: Evidence) -> Floats:
        inhabited = evidence.nearest_distance() <= self.radius
        wide = np.maximum(self.radius, evidence.neighbor_distance(self.k))
        return np.where(inhabited, wide, NO_REACH)


RULES: dict[str, type[Neighborhood]] = {
    rule.__name__: rule for rule in (Ball, Nearest, BallElseNearest, BallWithNearest)
}


def has_radius(rule: type[Neighborhood]) -> bool:
    """Whether a rule is set by a radius, and so can be tuned for coverage."""
    return "radius" in getattr(rule, "__dataclass_fields__", {})


def has_k(rule: type[Neighborhood]) -> bool:
    """Whether a rule reads the distance of the k-th neighbour."""
    return "k" in getattr(rule, "__dataclass_fields__", {})


def neighborhood_to_dict(neighborhood: Neighborhood) -> dict[str, Any]:
    """A neighborhood as plain values for JSON; `neighborhood_from_dict` reads it back."""
    name = type(neighborhood).__name__
    if RULES.get(name) is not type(neighborhood):
        raise InputError(f"only the rules {', '.join(RULES)} can be written as JSON; got {name}")
    return {"rule": name, **vars(neighborhood)}


def neighborhood_from_dict(record: Mapping[str, Any]) -> Neighborhood:
    """The neighborhood written by `neighborhood_to_dict`."""
    parameters = dict(record)
    name = parameters.pop("rule", None)
    if not isinstance(name, str) or name not in RULES:
        raise InputError(f"unknown neighborhood {name!r}: expected one of {', '.join(RULES)}")
    try:
        return RULES[name](**parameters)
    except TypeError as error:
        raise InputError(f"{name} cannot be made from {parameters}: {error}") from error


def _check_radius(radius: object) -> float:
    if isinstance(radius, bool) or not isinstance(radius, Real) or math.isnan(radius):
        raise InputError(f"a radius must be a number >= 0; got {radius!r}")
    if radius < 0:
        raise InputError(f"a radius must be >= 0; got {radius}")
    return float(radius)


def _check_k(k: object) -> int:
    if isinstance(k, bool) or not isinstance(k, Integral):
        raise InputError(f"k must be a whole number >= 1; got {k!r}")
    if k < 1:
        raise InputError(f"k must be >= 1; got {k}")
    return int(k)
