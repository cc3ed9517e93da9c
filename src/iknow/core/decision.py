"""Decision: what one layer adds to assertions and levels, without a distance to every class.

An assertion needs the classes within reach, and a level the distances to the believed class and to
the nearest other one. So a search may stop early. With g the belief, d_g and d_¬g the distances as
the quorum counts them, and r_k the distance to the k-th nearest sample, a rule that promises a
horizon is decided by the rows within

    cap = max(fixed, ratio · d_g, r_k, d_¬g)

and evidence in which all that lies beyond is replaced by inf gives the same decision.

**When evidence is enough.** Evidence says how far its lists are complete (`complete_below`): every
row strictly nearer is listed, as far as the list has room. It decides if

    d_g < complete for the belief,   cap < complete for the others,   r_k < complete for neighbors.

Proof. By the first, class g has no unlisted row up to d_g, so d_g is right, and the horizon with
it. By the second, any unlisted row of another class is beyond cap: it neither counts within the
horizon nor is nearer than d_¬g. By the third, r_k is right. Comparisons are strict, as an unlisted
row may lie exactly where a list ends, and balls are closed. A distance of inf is right only if its
list is complete without limit: a class that lost all its listed rows may have others. So evidence
merged from parts, each complete to its own depth, needs no other proof: the least depth counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.evidence import NO_EXEMPLAR, Columns, Evidence, believed, distances_for_and_against
from iknow.core.quorum import Contrast, weigh
from iknow.core.rule import Horizon, Rule, promise_of
from iknow.core.support import find_support


class Scope(NamedTuple):
    """What a search looks for."""

    own: int = 1  # how many of the nearest rows of the believed class to list
    other: int = 1  # how many of each other class
    any: int = 0  # how many distances to the nearest rows of all classes
    belief: Ints | None = None  # class codes of shape (n,), `NO_BELIEF` for none; None: all alike
    horizon: Horizon | None = None  # lets a search with a belief stop at `cap`; None: list all

    @property
    def per_class(self) -> int:
        """The length of the lists of each class."""
        return max(self.own, self.other)

    def at(self, queries: slice | Ints | Bools) -> Scope:
        """The same for some of the queries."""
        return self if self.belief is None else self._replace(belief=self.belief[queries])

    def in_full(self) -> Scope:
        """The same without an early stop."""
        return Scope(self.per_class, self.per_class, self.any)


def scope_of(rule: Rule, belief: Ints | None = None) -> Scope:
    """What deciding by a rule needs, for beliefs of shape (n,)."""
    horizon: Horizon | None = promise_of(rule, "horizon")
    finite = horizon is not None and horizon.fixed + horizon.ratio < np.inf
    return Scope(*rule.quorum, rule.n_neighbors, belief, horizon if finite else None)


def find_cap(evidence: Evidence, scope: Scope) -> tuple[Floats, Floats]:
    """d_g and the cap of a scope with a belief, given what is listed: both of shape (n,)."""
    weighed = weigh(evidence, (scope.own, scope.other), scope.belief)
    own, other = distances_for_and_against(weighed, weighed.belief)
    if scope.horizon is None:
        return own, np.full(len(own), np.inf)
    fixed, ratio, k = scope.horizon
    with np.errstate(over="ignore"):
        cap = np.maximum(fixed, ratio * np.where(np.isinf(own), 0.0, own))
    cap = np.maximum(cap, other)
    return own, np.maximum(cap, evidence.neighbor_distances[:, k - 1]) if k else cap


def is_enough(evidence: Evidence, scope: Scope) -> Bools:
    """For which queries the evidence is enough, as proven above: a mask of shape (n,)."""
    complete = evidence.complete_below
    enough: Bools = np.logical_and.reduce(np.isinf(complete), axis=1)
    if enough.all() or scope.belief is None:
        return enough
    own, cap = find_cap(evidence, scope)
    kth = evidence.neighbor_distances[:, -1] if scope.any else np.full(len(own), -np.inf)
    needed = np.column_stack([own, cap, kth])
    return np.asarray(np.logical_and.reduce((needed < complete) | np.isinf(complete), axis=1))


@dataclass(frozen=True, eq=False)
class Decision(Columns):
    """What one layer says about n queries and what is believed about them."""

    contrast: Contrast  # as the rule's quorum counts, with the neighbor distances that it reads
    exemplars: Ints  # the nearest row of the believed class (the lowest of equals), (n,); -1: none
    support: Bools  # the classes within reach, of shape (n, n_classes)


def decide(evidence: Evidence, rule: Rule, belief: Ints) -> Decision:
    """What evidence decides about queries with a belief, class codes of shape (n,)."""
    exemplars = believed(evidence.exemplars, belief, NO_EXEMPLAR)
    weighed = weigh(evidence, rule.quorum, belief)
    own, other = distances_for_and_against(weighed, weighed.belief)
    contrast = Contrast(own, other, weighed.neighbor_distances, rule.quorum)
    return Decision(contrast, exemplars, find_support(weighed, rule))
