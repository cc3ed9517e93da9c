"""Neighborhoods: rules that turn evidence into a reach.

Each rule answers one question: how far from the query does a training sample still count? The
answer, the reach ρ(x), is the only thing that tells the paper's four operators, and ours, apart:

    Ball(radius)                  ε, or one for each class
    Nearest(k)                    r_k
    BallElseNearest(radius, k)    ε if any sample lies within it, else r_k           (H-1)
    BallWithNearest(radius, k)    max(ε, r_k) if any sample lies within ε, else none (H-2)
    RelativeBall(radius, ratio)   ratio · r_1 if r_1 <= ε, else none                 (ours)

All balls are closed: a sample at distance exactly ρ counts, and so do all samples tied with the
k-th neighbour. A support therefore never depends on the order of the training set.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats
from iknow.core.evidence import Evidence
from iknow.core.scalars import as_real, as_whole
from iknow.core.text import names, shown
from iknow.errors import InputError

NO_REACH = -np.inf
"""The reach of a query whose neighborhood is empty by rule: no distance is within it."""

LARGEST_K = 2**62
"""No training set has more samples, and no file holds a larger number."""


class Neighborhood(ABC):
    """A rule that says how far from a query a training sample counts as support."""

    def __post_init__(self) -> None:
        # The rules are frozen records; plain numbers keep them hashable, comparable and writable
        # as JSON.
        for name, check in CHECKS.items():
            if name in parameters_of(type(self)):
                object.__setattr__(self, name, check(getattr(self, name)))

    @property
    def n_neighbors(self) -> int:
        """How many neighbour distances the rule reads from the evidence."""
        return int(getattr(self, "k", 0))

    @property
    def empty_beyond(self) -> float | tuple[float, ...]:
        """How far the nearest sample may be: if it is further, the support is empty.

        By default it may be anywhere. One for each class where a class has a limit of its own.
        """
        return math.inf

    @property
    def full_within(self) -> float | tuple[float, ...]:
        """How near a sample must be to count for certain, whatever else there is; by default 0."""
        return 0.0

    @abstractmethod
    def reach(self, evidence: Evidence) -> Floats:
        """The reach ρ for each query, of shape (n_queries,); `NO_REACH` for none.

        Of shape (n_queries, n_classes) for a rule that looks further for some classes.
        """


@dataclass(frozen=True)
class Ball(Neighborhood):
    """All training samples within a fixed radius (the paper's ε-ball).

    radius: a number, or an array of shape (n_classes,) with one for the samples of each class.
    """

    radius: float | tuple[float, ...]

    def __post_init__(self) -> None:
        several = _as_several(self.radius)
        if several is None:
            super().__post_init__()
        else:
            if several.ndim != 1 or several.size == 0:
                raise InputError(
                    "a radius must be a number, or one for each class; got an array of shape "
                    f"{several.shape}"
                )
            object.__setattr__(self, "radius", tuple(_check_radius(each) for each in several))

    @property
    def empty_beyond(self) -> float | tuple[float, ...]:
        return self.radius

    @property
    def full_within(self) -> float | tuple[float, ...]:
        return self.radius

    def reach(self, evidence: Evidence) -> Floats:
        if isinstance(self.radius, tuple):
            if len(self.radius) != evidence.n_classes:
                raise InputError(
                    f"a radius is needed for each of {evidence.n_classes} classes; "
                    f"got {len(self.radius)}"
                )
            return np.tile(self.radius, (len(evidence), 1))
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

    @property
    def full_within(self) -> float:
        return self.radius

    def reach(self, evidence: Evidence) -> Floats:
        inhabited = evidence.nearest_distance() <= self.radius
        return np.where(inhabited, self.radius, evidence.neighbor_distance(self.k))


@dataclass(frozen=True)
class BallWithNearest(Neighborhood):
    """The ball and the k nearest samples, or nothing where the ball is empty (the paper's H-2)."""

    radius: float
    k: int

    @property
    def empty_beyond(self) -> float:
        return self.radius

    @property
    def full_within(self) -> float:
        return self.radius

    def reach(self, evidence: Evidence) -> Floats:
        inhabited = evidence.nearest_distance() <= self.radius
        wide = np.maximum(self.radius, evidence.neighbor_distance(self.k))
        return np.where(inhabited, wide, NO_REACH)


@dataclass(frozen=True)
class RelativeBall(Neighborhood):
    """All samples up to `ratio` times as far as the nearest one, if that lies within the radius.

    Where data is dense it looks closely, where it is sparse it looks wide, and it still finds
    nothing where it would have to extrapolate: what a fixed radius and a fixed k cannot both do.
    """

    radius: float
    ratio: float

    @property
    def empty_beyond(self) -> float:
        return self.radius

    def reach(self, evidence: Evidence) -> Floats:
        nearest = evidence.nearest_distance()
        return np.where(nearest <= self.radius, self.ratio * nearest, NO_REACH)


RULES: dict[str, type[Neighborhood]] = {
    rule.__name__: rule for rule in (Ball, Nearest, BallElseNearest, BallWithNearest, RelativeBall)
}


def parameters_of(rule: type[Neighborhood]) -> tuple[str, ...]:
    """The names of a rule's parameters."""
    return tuple(getattr(rule, "__dataclass_fields__", ()))


def has_radius(rule: type[Neighborhood]) -> bool:
    """Whether a rule is set by a radius, and so can be tuned for coverage."""
    return "radius" in parameters_of(rule)


def has_k(rule: type[Neighborhood]) -> bool:
    """Whether a rule reads the distance of the k-th neighbour."""
    return "k" in parameters_of(rule)


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


def _as_several(radius: Any) -> NDArray[Any] | None:
    """Radii in an array; None where what was given is one, or is nothing that can be read."""
    try:
        array = np.asarray(radius)
        hidden = np.ma.is_masked(radius)
    except Exception:  # numpy asks the object, and that may answer in any way
        return None
    return None if array.ndim == 0 or hidden else array


def check_by_layer(given: Any, layers: Iterable[str], *, kind: str) -> None:
    """Neighborhoods must be given for each of the layers, by its name. kind: what they may be."""
    if not isinstance(given, Mapping):
        raise InputError(f"neighborhoods must be {kind}; got {shown(given)}")
    wanted = set(layers)
    if set(given) != wanted:
        raise InputError(
            f"neighborhoods are needed for the layers {names(sorted(wanted))}; got them for "
            f"{names(sorted(given, key=shown))}"
        )
    for layer, neighborhood in given.items():
        if not isinstance(neighborhood, Neighborhood):
            raise InputError(
                f"the neighborhood of layer {shown(layer)} must be one such as Ball(0.5); got "
                f"{shown(neighborhood)}"
            )


def _check_radius(radius: object) -> float:
    number = as_real(radius, "a radius", "be a number >= 0")
    if number < 0:
        raise InputError(f"a radius must be >= 0; got {number}")
    return number


def _check_k(k: object) -> int:
    number = as_whole(k, "k", "be a whole number >= 1")
    if number < 1:
        raise InputError(f"k must be >= 1; got {shown(number)}")
    if number > LARGEST_K:
        raise InputError(f"k must be the size of a training set at most; got {shown(number)}")
    return number


def _check_ratio(ratio: object) -> float:
    kind = "be a finite number >= 1, as the nearest sample itself counts"
    return as_real(ratio, "a ratio", kind, lambda number: 1 <= number < math.inf)


CHECKS: dict[str, Callable[[object], float]] = {
    "radius": _check_radius,
    "k": _check_k,
    "ratio": _check_ratio,
}
