"""Rules: how far from a query a training sample still counts, given evidence: the reach ρ(x).

The support is then always { c : d_c <= ρ(x) }; `iknow.core.support` has the tie rule. The rules are
in `iknow.rules`, one file each. Here is the contract that they share: a rule must have a reach.
Every other method has a default that is true of any reach; a rule that overrides it to say more can
be tuned, certified, explained and drawn accordingly.

A subclass that overrides `reach` inherits promises made about the original, and a method set on an
instance replaces that of its type. So whoever relies on a promise asks `promise_of`.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Reason
from iknow.core.evidence import Columns, Evidence
from iknow.core.quorum import ONE, Contrast, Quorum, ValidationEvidence, check_quorum
from iknow.core.support import within
from iknow.core.text import as_real, as_whole, names, shown
from iknow.errors import InputError, SelectionError

NO_REACH = -np.inf  # of a query for which nothing counts: no distance is within it
LARGEST_K = 2**62  # no training set has more samples, and no file holds a larger number

Limits = tuple[float, float]
Areas = dict[Reason, list[tuple[float, float]]]

Self = TypeVar("Self", bound="Rule")


def parameter(name: str) -> Any:
    """A promise whose value is a parameter, such as the radius."""
    return property(attrgetter(name))


def check_radius(radius: object) -> float:
    return as_real(radius, "a radius", "be a number >= 0", lambda number: number >= 0)


def check_k(k: object) -> int:
    wanted = "be a whole number >= 1, and at most the size of a training set"
    return as_whole(k, "k", wanted, 1, LARGEST_K)


class Horizon(NamedTuple):
    """How far away a class can be and still affect a support: for a belief g at a distance d_g, no
    other class beyond max(fixed, ratio · d_g, r_k). See `iknow.core.decision`.
    """

    fixed: float = 0.0
    ratio: float = 0.0  # where d_g is inf, ratio · d_g counts as 0
    k: int = 0  # 0 for none


@dataclass(frozen=True)
class Drawing:
    """What distances alone decide, for a plot: the plane of points (d_g, d_¬g), distances to the
    believed class and to the nearest other one, cut into areas, one for each reason. Where a rule
    also asks how far k neighbors of any class are, it is about samples that have them near.
    """

    marks: tuple[float, ...]  # distances to keep in view, ascending; the first is a labeled line
    areas: Callable[[Limits, Limits], Areas]  # limits of d_g and of d_¬g to each area's corners
    across: bool = True  # whether the first mark is a line at that d_¬g too, not at d_g alone


@dataclass(frozen=True)
class ParameterSettings:
    """A parameter to vary for one query."""

    parameter: str
    value: float
    values: Floats | Ints  # where the support can change, ascending; in between it is constant
    support: Callable[[Any], Bools]  # from a value to the mask of shape (1, n_classes)


@dataclass(frozen=True, eq=False)
class Stability(Columns):
    """How many training samples you must remove to lose each IK; 0 where there is no IK.

    Attributes:
        at_least: Lower bounds of shape (n,).
        exact: Mask of shape (n,), True where the bound is the exact number.
        changes: How many samples may be added, removed or relabeled, whatever they are, with the
            IK surely kept, of shape (n,). Default: none.
    """

    at_least: Ints
    exact: Bools
    changes: Ints = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.changes is None:
            object.__setattr__(self, "changes", np.zeros_like(self.at_least))


class Rule(ABC):
    """A rule that says how far from a query a training sample counts as support.

    To write your own, make a frozen dataclass with a `reach`, and call `register_rule` if you want
    to save it. Its fields are its parameters: the user gives `k`, the number of neighbors, and
    `tune` chooses those in `axes`. Test it by inheriting `iknow.testing.RuleContract`.

    Examples:
        >>> from dataclasses import dataclass
        >>> from iknow.core.rule import Rule
        >>> @dataclass(frozen=True)
        ... class Twice(Rule):
        ...     "All samples up to twice as far as the nearest one."
        ...     def reach(self, evidence):
        ...         return 2 * evidence.nearest_distance()
        >>> Twice.command_name(), Twice.axes
        ('twice', ())
    """

    checks: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"radius": check_radius, "k": check_k}
    """By parameter: what turns a given value into a plain one, or raises. Others stay as given."""

    quorum: Quorum = ONE
    """How many samples the belief, and how many another class needs to count. A rule takes it as a
    parameter if it has such a field, `quorum: Quorum = field(default=ONE, kw_only=True)`."""

    axes: ClassVar[tuple[str, ...]] = ()
    """The parameters that validation data can choose, in the order of `box`."""

    neighbors_to_match: ClassVar[int] = 0
    """How many neighbor distances `match` uses at most."""

    by_level: ClassVar[bool] = False
    """Whether levels choose the parameters, along one path through those of all layers."""

    quorums: ClassVar[tuple[Quorum, ...]] = (ONE,)
    """The quorum to use if the user names none."""

    def __post_init__(self) -> None:
        # Plain numbers keep these frozen records hashable, comparable and writable as JSON.
        checks = {**self.checks, "quorum": check_quorum}
        for name in parameters_of(type(self)):
            if name in checks:
                object.__setattr__(self, name, checks[name](getattr(self, name)))

    def __repr__(self) -> str:
        given = {name: getattr(self, name) for name in parameters_of(type(self))}
        if self.quorum == ONE:
            given.pop("quorum", None)
        return f"{type(self).__name__}({', '.join(f'{name}={given[name]!r}' for name in given)})"

    @abstractmethod
    def reach(self, evidence: Evidence) -> Floats:
        """Return the reach ρ given `evidence`, of shape (n_queries,); `NO_REACH` for none.

        The evidence is `Weighed`: its class distances are those that decide under the quorum.
        A rule with a reach per class returns the shape (n_queries, n_classes).
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
    def per_class(self) -> int:
        """How many of each class the evidence should hold: the quorum, and as many more of the
        believed one as changes could ever be harmless.
        """
        return sum(self.quorum) - 1

    # What a rule may promise about its reach. Certificates and indexes rely on it.

    @property
    def empty_beyond(self) -> float:
        """The support is empty if the nearest sample is further than this."""
        return math.inf

    @property
    def full_within(self) -> float:
        """A sample this near always counts, whatever the other samples."""
        return 0.0

    @property
    def lead(self) -> float:
        """Another class contradicts the belief up to this many times as far as the belief itself:
        it is IK only if d_other > lead · d_g. At least 1 is true of a reach that all classes share;
        0 promises nothing.
        """
        return 1.0

    @property
    def horizon(self) -> Horizon | None:
        """How far away another class can be and still affect the support; None if unknown."""
        return None

    # What a rule may know about itself. The defaults are true of every reach.

    @classmethod
    def box(cls, contrast: Contrast, k: int | None) -> list[tuple[Floats, Floats]]:
        """For each axis the interval [low, high), both of shape (n,), in which the layer is pure,
        given `contrast` and `k`.
        """
        raise SelectionError(f"{cls.__name__} has no parameters that validation data can choose")

    def removals(self, evidence: Evidence, belief: Ints) -> Stability:
        """How many training samples must go before `evidence` no longer supports `belief`, class
        codes of shape (n,), alone. At least one: without samples nothing is known.
        """
        n = len(evidence)
        return Stability(np.ones(n, dtype=np.int64), np.zeros(n, dtype=bool))

    def changes(self, evidence: Evidence, belief: Ints) -> Ints:
        """How many training samples may be added, removed or relabeled, whatever they are, while
        `evidence` surely goes on supporting `belief` alone, of shape (n,).
        """
        return np.zeros(len(evidence), dtype=np.int64)

    def settings(self, evidence: Evidence) -> ParameterSettings | None:
        """The parameter to vary to see when the support of one query, given `evidence`, changes."""
        reach = self.reach(evidence)[0]
        if reach.ndim == 1 or np.isneginf(reach):
            return None  # the query has no reach, or one for each class
        distances, values = evidence.class_distances, distances_of(evidence)
        return ParameterSettings(
            "reach", float(reach), values, lambda value: within(distances, value)
        )

    def drawing(self) -> Drawing | None:
        """What the two distances of a `Drawing` alone decide; None if nothing."""
        return None

    # How a rule is chosen.

    @classmethod
    def why_not_for_coverage(cls) -> str | None:
        """Why maximizing coverage cannot choose the parameters; None if it can."""
        if axes_of(cls):
            return None
        return (
            f"{cls.__name__} cannot be tuned, as it does not define axes and box, which say where "
            "a sample is pure: fix it with neighborhoods=..."
        )

    @classmethod
    def match(
        cls: type[Self], evidence: ValidationEvidence, belief: Ints, y_true: Ints, coverage: float
    ) -> dict[str, Self]:
        """The rule by layer whose coverage is nearest to `coverage`; `evidence`, `belief` and
        `y_true` as in `iknow.selection.Validation`.
        """
        raise SelectionError(f"{cls.__name__} cannot be matched to a coverage")


def parameters_of(rule: type[Rule]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(rule)) if is_dataclass(rule) else ()


def has_k(rule: type[Rule]) -> bool:
    return "k" in parameters_of(rule)


def is_tuned(rule: type[Rule]) -> bool:
    """Whether there are parameters to choose besides k and the quorum, which the user gives."""
    return not {"k", "quorum"}.issuperset(parameters_of(rule))


def make_rule(rule: type[Self], k: int | None, quorum: Quorum = ONE, **chosen: Any) -> Self:
    """A rule from its chosen parameters, and from k and a quorum where it takes them."""
    check_takes(rule, quorum)
    given = {"k": k, "quorum": quorum}
    return rule(**chosen, **{name: given[name] for name in parameters_of(rule) if name in given})


def check_takes(rule: type[Rule], quorum: Quorum) -> None:
    if quorum != ONE and "quorum" not in parameters_of(rule):
        raise InputError(f"{rule.__name__} takes no quorum; got {quorum}: leave it at 1")


def speaks_for(kind: type, promise: str, method: str = "reach") -> bool:
    """Whether a promise comes from the class that defines the method, or from a subclass of it."""
    either = (base for base in kind.__mro__ if promise in vars(base) or method in vars(base))
    return promise in vars(next(either))


def promise_of(thing: Any, promise: str, method: str = "reach") -> Any:
    """A promise, a value or a method, if it is about this `method`; else the first base's default,
    which is true of every subclass.
    """
    if speaks_for(type(thing), promise, method):
        return getattr(thing, promise)
    bases = reversed(type(thing).__mro__)
    general = next(vars(base)[promise] for base in bases if promise in vars(base))
    return general.__get__(thing, type(thing))


def replaced_methods(thing: object) -> list[str]:
    """Names of the methods that an instance has replaced on itself."""
    own = getattr(thing, "__dict__", {})
    return [name for name in own if callable(getattr(type(thing), name, None))]


def axes_of(rule: type[Rule]) -> tuple[str, ...]:
    """The parameters that validation data can choose."""
    return rule.axes if speaks_for(rule, "box") else ()


def check_by_layer(given: Any, layers: Iterable[str], *, kind: str) -> None:
    """Check that there is one rule for each layer. kind: what they may be."""
    if not isinstance(given, Mapping):
        raise InputError(f"the rules must be {kind}; got {shown(given)}")
    if given.keys() != (wanted := set(layers)):
        raise InputError(
            f"rules are needed for the layers {names(sorted(wanted))}; got them for "
            f"{names(sorted(given, key=shown))}"
        )
    for layer, rule in given.items():
        if not isinstance(rule, Rule):
            raise InputError(
                f"the rule of layer {shown(layer)} must be one such as Ball(0.5); got {shown(rule)}"
            )


def reach_by_class(rule: Rule, evidence: Evidence) -> Floats:
    """How far the rule reaches for each class, of shape (n_queries, n_classes)."""
    reach = rule.reach(evidence)
    shape = evidence.class_distances.shape
    return np.broadcast_to(reach if reach.ndim == 2 else reach[:, None], shape)


def distances_of(evidence: Evidence) -> Floats:
    """Where the support of one query changes with the radius: 0 and all distances, ascending."""
    distances = evidence.class_distances[0]
    return np.unique(np.append(distances[np.isfinite(distances)], 0.0))
