"""Neighborhoods: rules that turn evidence into a reach.

Each rule answers one question: how far from the query does a training sample still count? The
answer, the reach ρ(x), is all that tells rules apart: the support is { c : d_c <= ρ(x) }. All balls
are closed: a sample at distance exactly ρ counts, and so do all samples tied with the k-th
neighbor. A support therefore never depends on the order of the training set.

The rules are in `iknow.rules`, one file each. Here is the contract that they share: a rule must
have parameters and a reach. What any rule can say of itself is the default of everything else, and
is true of every reach; a rule that says more is tuned, certified, explained and drawn by it.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.contrast import Contrast, ValidationEvidence
from iknow.core.drawing import Drawing, Look
from iknow.core.evidence import Evidence
from iknow.core.overriding import speaks_for
from iknow.core.scalars import as_real, as_whole
from iknow.core.slack import Dial, dial_reach
from iknow.core.stability import Stability
from iknow.core.text import names, shown
from iknow.errors import InputError, SelectionError

NO_REACH = -np.inf
"""The reach of a query whose neighborhood is empty by rule: no distance is within it."""

LARGEST_K = 2**62
"""No training set has more samples, and no file holds a larger number."""

Radius = float | tuple[float, ...]
"""One for all classes, or one for each."""

Sides = list[tuple[Floats, Floats]]
"""For each axis of a rule its interval [low, high) for every sample, both of shape (n,)."""

Checks = Mapping[str, Callable[[Any], Any]]
"""What makes of a given parameter a plain value, or refuses it, by the parameter's name."""

Self = TypeVar("Self", bound="Neighborhood")


def parameter(name: str) -> Any:
    """A promise that is kept by a parameter: the radius itself, say."""
    return property(attrgetter(name))


def check_radius(radius: object) -> float:
    number = as_real(radius, "a radius", "be a number >= 0")
    if number < 0:
        raise InputError(f"a radius must be >= 0; got {number}")
    return number


def check_k(k: object) -> int:
    number = as_whole(k, "k", "be a whole number >= 1")
    if number < 1:
        raise InputError(f"k must be >= 1; got {shown(number)}")
    if number > LARGEST_K:
        raise InputError(f"k must be the size of a training set at most; got {shown(number)}")
    return number


class Neighborhood(ABC):
    """A rule that says how far from a query a training sample counts as support.

    A rule of your own is a frozen dataclass with a `reach`, made known by `register_rule` so that
    it can be saved. Its fields are its parameters. One named `k` is the number of neighbors that a
    user gives; those in `axes` are chosen by `tune`. Inherit `iknow.testing.RuleContract` to see
    whether all that it says is true.

    Examples:
        >>> from dataclasses import dataclass
        >>> from iknow.core.neighborhood import Neighborhood
        >>> @dataclass(frozen=True)
        ... class Twice(Neighborhood):
        ...     "All samples up to twice as far as the nearest one."
        ...     def reach(self, evidence):
        ...         return 2 * evidence.nearest_distance()
        >>> Twice.command_name(), Twice.axes
        ('twice', ())
    """

    checks: ClassVar[Checks] = {"radius": check_radius, "k": check_k}
    """How parameters are checked; those without a check are kept as they are given."""

    axes: ClassVar[tuple[str, ...]] = ()
    """The parameters that validation data can choose, in the order of `box`."""

    neighbors_to_match: ClassVar[int] = 0
    """How many neighbor distances `match` looks at, at most."""

    takes_radius_per_class: ClassVar[bool] = False
    """Whether the radius may be a tuple, so that class c counts where d_c <= radius[c]."""

    strictest_is_widest: ClassVar[bool] = False
    """Whether of two radii of equal coverage the larger one knows on better grounds."""

    look: ClassVar[Look | None] = None
    """How the rule's line is drawn among others; None leaves it to the plot."""

    def __post_init__(self) -> None:
        # The rules are frozen records; plain numbers keep them hashable, comparable and writable
        # as JSON.
        for name, check in self.checks.items():
            if name in parameters_of(type(self)):
                object.__setattr__(self, name, check(getattr(self, name)))

    @abstractmethod
    def reach(self, evidence: Evidence) -> Floats:
        """Return the reach ρ by `evidence`, of shape (n_queries,); `NO_REACH` for none.

        A rule that looks further for some classes returns the shape (n_queries, n_classes).
        """

    @classmethod
    def command_name(cls) -> str:
        """The rule's name on the command line."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()

    @property
    def n_neighbors(self) -> int:
        """How many neighbor distances the rule reads from the evidence."""
        return int(getattr(self, "k", 0))

    @property
    def reaches_by_class(self) -> bool:
        """Whether it looks further for some classes than for others."""
        return False

    def check_classes(self, n_classes: int) -> None:  # noqa: B027 - most fit any number
        """Refuse parameters that do not fit `n_classes` classes."""

    # What a rule may promise about its reach. Certificates and indexes rest on it.

    @property
    def empty_beyond(self) -> Radius:
        """How far the nearest sample may be: if it is further, the support is empty.

        By default it may be anywhere. One for each class where a class has a limit of its own.
        """
        return math.inf

    @property
    def full_within(self) -> Radius:
        """How near a sample must be to count for certain, whatever else there is; by default 0."""
        return 0.0

    @property
    def lead(self) -> float:
        """How many times as far as the nearest sample one may be and count, where any counts."""
        return 1.0

    @property
    def decided_within(self) -> Radius | None:
        """The radius that is the reach wherever any sample lies within it; None if there is none.

        With it an index finds supports without measuring distances.
        """
        return None

    # What a rule may know about itself. By default only what is true of every reach.

    @classmethod
    def box(cls, contrast: Contrast, k: int | None) -> Sides:
        """For each of the axes, the interval in which the layer is pure, by `contrast` and `k`."""
        raise SelectionError(f"{cls.__name__} has no axes to choose along")

    def removals(self, evidence: Evidence, belief: Ints) -> Stability:
        """How many training samples must go before `evidence` no longer supports `belief` alone.

        `belief` holds class codes of shape (n,). Without any sample nothing is known.
        """
        n = len(evidence)
        return Stability(np.ones(n, dtype=np.int64), np.zeros(n, dtype=bool))

    def dial(self, evidence: Evidence) -> Dial | None:
        """What to turn to see how far the support for one query, by `evidence`, is from another."""
        return dial_reach(evidence, self.reach(evidence)[0])

    def drawing(self) -> Drawing | None:
        """What the rule decides by two distances alone; None for nothing."""
        return None

    # How a rule is chosen.

    @classmethod
    def why_not_for_coverage(cls) -> str | None:
        """Why the largest coverage cannot choose the parameters; None where it can."""
        if axes_of(cls):
            return None
        return (
            f"{cls.__name__} cannot be chosen exactly, as it does not say where a sample is pure "
            "(axes and box): fix it with neighborhoods=..."
        )

    @classmethod
    def match(
        cls: type[Self], evidence: ValidationEvidence, belief: Ints, y_true: Ints, coverage: float
    ) -> dict[str, Self]:
        """The setting, by layer, with coverage nearest to `coverage`: see `match_coverage`.

        Takes `evidence` by layer, `belief` and `y_true`.
        """
        raise SelectionError(f"{cls.__name__} cannot be matched to a coverage")

    @classmethod
    def sweep(cls, evidence: Mapping[str, Evidence], belief: Ints) -> tuple[Floats, Floats] | None:
        """For which values of its one knob, other than a radius, each `belief` is IK: [low, high).

        Takes `evidence` by layer.
        Counted from minus its largest value where the largest is the strictest.
        """
        return None


def parameters_of(rule: type[Neighborhood]) -> tuple[str, ...]:
    """The names of a rule's parameters."""
    return tuple(field.name for field in fields(rule)) if is_dataclass(rule) else ()


def has_k(rule: type[Neighborhood]) -> bool:
    """Whether a rule is given a number of neighbors."""
    return "k" in parameters_of(rule)


def is_tuned(rule: type[Neighborhood]) -> bool:
    """Whether there are parameters to choose; k is given."""
    return not {"k"}.issuperset(parameters_of(rule))


def make_rule(rule: type[Self], k: int | None, **chosen: Radius) -> Self:
    """A rule from its chosen parameters, and from k where it takes one."""
    return rule(**chosen, **({"k": k} if has_k(rule) else {}))


def says(rule: type[Neighborhood], name: str) -> bool:
    """Whether a rule says this of itself, and of the reach that it has.

    A subclass with another reach inherits what was said of a rule that it no longer is.
    """
    return speaks_for(rule, name, "reach")


def axes_of(rule: type[Neighborhood]) -> tuple[str, ...]:
    """The parameters that validation data can choose."""
    return rule.axes if says(rule, "box") else ()


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
