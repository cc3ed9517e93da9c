"""ChangingIndex: an index that stays as it is, with rows that came since and rows that went.

Building an index reads every row; a change concerns a few. So the base is never touched: rows that
came are in a small index of their own, and rows that went are numbers to strike out (`striking`).
Evidence merges, so both together give the evidence of the training set as it is now, to the last
bit. Once the changes are many they are folded into a new base.

A decision needs less. Let g be the belief, d_g and d_¬g the distances that the base's decision
rests on, as the quorum counts them, and T the horizon of the rule: no other class beyond T affects
the support. The decision stands if

    every row of class g that came or went is further than d_g, and
    every row of another class that came or went is further than max(T, d_¬g).

Proof. Within d_g, and at d_g itself, class g has the same rows as before, so its nearest ones up to
the quorum are the same: d_g, its exemplar, and T, which depends on d_g alone. Within max(T, d_¬g)
every other class c has the same rows as before. So each d_c up to that bound is the same, and one
beyond it stays beyond: the smallest, d_¬g, is the same, and what lies beyond T may as well be at
inf, before and after, so the support is the same. A distance that is inf makes the bound inf, so
any row that came or went counts. Ties count too: the comparison is with closed balls.

The other queries are decided by their evidence. They are few if the changes are few.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats32, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.decision import Decision, replace_decisions
from iknow.core.evidence import (
    NO_EXEMPLAR,
    Evidence,
    distances_for_and_against,
    empty_evidence,
    from_ranked,
    merge_evidence,
)
from iknow.core.neighborhood import Neighborhood
from iknow.core.overriding import said
from iknow.core.quorum import ONE
from iknow.locking import cached_property
from iknow.rules import Ball
from iknow.search.effective import JoinedRows, Places
from iknow.search.index import check_activations, check_k, check_per_class, check_width
from iknow.search.stored import StoredRows
from iknow.search.striking import Make, RemainingRows, are_among


class ChangingIndex(StoredRows):
    """The rows of a base but for those that are gone, and those added to it.

    Args:
        base: An index, which stays as it is.
        gone: Positions of rows in the base, ascending.
        added: An index of the rows that came, perhaps none, for all classes.
        make: Makes a small index of rows by the same distance.
    """

    def __init__(self, base: StoredRows, gone: Ints, added: StoredRows, make: Make) -> None:
        self.base, self.gone, self.added, self._make = base, gone, added, make
        self.n_classes, self.n_features = added.n_classes, base.n_features
        self.n_rows = base.n_rows - len(gone) + added.n_rows
        self.joined = JoinedRows(base, gone, added)
        self._remaining = RemainingRows(base, gone, make)
        self._places = Places(base.rows)

    def changed(
        self, removed: Any, points: Any, labels: Any, rows: Any, n_classes: int
    ) -> ChangingIndex:
        """The index after some rows went and others came; this one stays as it is.

        removed: numbers of rows that are there, ascending. points, labels, rows: those to come, of
        shapes (m, n_features), (m,) and (m,). n_classes: as many as before, or more.
        """
        new = check_activations(points)
        check_width(new, self.n_features, "activations")
        leaving = np.asarray(removed, dtype=np.int64)
        here = are_among(leaving, np.sort(self.added.rows))
        gone = np.union1d(self.gone, self._places.find(leaving[~here]))
        kept = ~are_among(self.added.rows, leaving)
        added = self._make(
            np.concatenate([self.added.points[kept], new]),
            np.concatenate([self.added.labels[kept], np.asarray(labels, dtype=np.int64)]),
            n_classes,
            rows=np.concatenate([self.added.rows[kept], np.asarray(rows, dtype=np.int64)]),
        )
        after = ChangingIndex(self.base, gone, added, self._make)
        after._places = self._places  # of the same base
        return after

    @property
    def n_changed(self) -> int:
        """How many rows came or went."""
        return len(self.gone) + self.added.n_rows

    @property
    def highest_row(self) -> int:
        """No row that is there has a higher number."""
        return int(max(self.base.rows.max(initial=-1), self.added.rows.max(initial=-1)))

    def has(self, numbers: Ints) -> Bools:
        """Which numbers are those of rows, of shape (n,)."""
        places = self._places.find(numbers)
        there = (places >= 0) & ~are_among(places, self.gone)
        return there | are_among(numbers, np.sort(self.added.rows))

    def take(self, numbers: Ints) -> tuple[Floats32, Ints]:
        """The points and labels of rows, by their numbers, which are there."""
        points = np.empty((len(numbers), self.n_features), dtype=np.float32)
        labels = np.empty(len(numbers), dtype=np.int64)
        order = np.argsort(self.added.rows)
        here = are_among(numbers, self.added.rows[order])
        parts = (
            (self.added, here, order[np.searchsorted(self.added.rows[order], numbers[here])]),
            (self.base, ~here, self._places.find(numbers[~here])),
        )
        for index, mask, places in parts:
            points[mask], labels[mask] = index.points[places], index.labels[places]
        return points, labels

    def gather(self, queries: Any, k: int = 0, per_class: int = 1) -> Evidence:
        """Evidence about queries of shape (n_queries, n_features); see `StoredRows.gather`."""
        points = self._check(queries)
        asked = check_k(k, self.n_rows), check_per_class(per_class)
        if len(points) == 0:
            return empty_evidence(0, self.n_classes, *asked)
        remaining = _pad(self._remaining.gather(points, *asked), self.n_classes, k)
        if not self.added.n_rows:
            return remaining
        came = self.added.gather(points, min(k, self.added.n_rows), per_class)
        return merge_evidence([remaining, _pad(came, self.n_classes, k)])

    def find_support(
        self, queries: Any, neighborhood: Neighborhood, belief: Ints | None = None
    ) -> Bools:
        """Find the classes in `neighborhood`: a mask (n_queries, n_classes) for `queries`.

        Within a fixed radius the base's answer stands where no row came or went within it.
        """
        points, radius = self._check(queries), said(neighborhood, "decided_within")
        if radius is None or neighborhood.quorum != ONE or not len(points):
            return super().find_support(points, neighborhood, belief)
        ball = Ball(radius)
        support = _widen(self.base.find_support(points, ball), self.n_classes)
        asked = self._changed.find_support(points, ball).any(axis=1)
        if said(neighborhood, "empty_beyond") != radius:  # no sample need not mean no support
            asked |= ~support.any(axis=1)
        if asked.any():
            beliefs = None if belief is None else belief[asked]
            support[asked] = super().find_support(points[asked], neighborhood, beliefs)
        return support

    def decides(self, neighborhood: Neighborhood) -> bool:
        """Whether `decide` is faster than `gather` for a `neighborhood`, as far as it is known."""
        return horizon_of(neighborhood) is not None and self.base.decides(neighborhood)

    def decide(self, queries: Any, neighborhood: Neighborhood, belief: Ints) -> Decision:
        """Decide by a `neighborhood` about `queries`, (n, n_features), and their `belief`, (n,).

        The base decides, and evidence where a row came or went too near.
        """
        points, codes = self._check(queries), np.asarray(belief, dtype=np.int64)
        horizon = horizon_of(neighborhood)
        if horizon is None or not len(points):
            return super().decide(points, neighborhood, codes)
        known = np.where(codes < self.base.n_classes, codes, NO_BELIEF)
        decision = self.base.decide(points, neighborhood, known)
        decision = replace(decision, support=_widen(decision.support, self.n_classes))
        asked = np.flatnonzero((known != codes) | self._touched(points, codes, horizon, decision))
        if not len(asked):
            return decision
        by = super().decide(points[asked], neighborhood, codes[asked])
        return replace_decisions(decision, asked, by)

    def warm_up(self) -> None:
        """Prepare and compile everything that searching needs."""
        self.base.warm_up()
        if self.n_changed:
            self._changed.warm_up()
        self.gather(self.base.points[:1], min(1, self.n_rows))

    def _touched(
        self, points: Floats32, belief: Ints, horizon: tuple[float, float], decision: Decision
    ) -> Bools:
        """Whether a row came or went so near that it may change the decision, of shape (n,)."""
        own, other = distances_for_and_against(self._changed.gather(points), belief)
        found = decision.contrast
        with np.errstate(over="ignore", invalid="ignore"):  # 0 · inf: then d_g is inf and counts
            bound = np.fmax(horizon[0], horizon[1] * found.own)
        bound = np.fmax(np.where(np.isinf(found.own), np.inf, bound), found.other)
        return np.asarray((own <= found.own) | (other <= bound))

    @cached_property
    def _changed(self) -> StoredRows:
        """All rows that came or went, each of the class that it has or had."""
        gone = self.base.points[self.gone], self.base.labels[self.gone]
        points = np.concatenate([gone[0], self.added.points])
        return self._make(points, np.concatenate([gone[1], self.added.labels]), self.n_classes)

    # The training set as it is now.

    @property
    def points(self) -> Floats32:  # type: ignore[override]
        return self.joined.points

    @property
    def labels(self) -> Ints:  # type: ignore[override]
        return self.joined.labels

    @property
    def rows(self) -> Ints:  # type: ignore[override]
        return self.joined.rows

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only what cannot be derived."""
        return ChangingIndex, (self.base, self.gone, self.added, self._make)


def as_changing(index: StoredRows, make: Make) -> ChangingIndex:
    """An index that nothing has happened to, ready to change. make: see `ChangingIndex`."""
    if isinstance(index, ChangingIndex):
        return index
    none = np.empty(0, dtype=np.int64)
    added = make(np.empty((0, index.n_features), np.float32), none, index.n_classes, rows=none)
    return ChangingIndex(index, none, added, make)


def horizon_of(neighborhood: Neighborhood) -> tuple[float, float] | None:
    """Two numbers (ε, q): no other class beyond max(ε, q · d_g) affects the support; None if there
    are no such, or if the rule reads distances to neighbors, which any change may move.
    """
    horizon: tuple[float, float] | None = said(neighborhood, "horizon")
    return None if neighborhood.n_neighbors else horizon


def _pad(evidence: Evidence, n_classes: int, k: int) -> Evidence:
    """The evidence of a part for all classes, with k neighbor distances; inf where it has none."""
    more, missing = n_classes - evidence.n_classes, k - evidence.n_neighbors
    if not more and not missing:
        return evidence
    classes = (0, 0), (0, more), (0, 0)
    return from_ranked(
        np.pad(evidence.ranked_distances(), classes, constant_values=np.inf),
        np.pad(evidence.neighbor_distances, ((0, 0), (0, missing)), constant_values=np.inf),
        np.pad(evidence.ranked_exemplars(), classes, constant_values=NO_EXEMPLAR),
    )


def _widen(support: Bools, n_classes: int) -> Bools:
    """A support for all classes; those that the base does not know have no rows in it."""
    more = n_classes - support.shape[1]
    return np.pad(support, ((0, 0), (0, more))) if more else support
