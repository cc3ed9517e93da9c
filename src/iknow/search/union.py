"""Union: evidence of several parts as one: added and removed rows, and rows on several devices.

Evidence merges (`core.evidence`): parts combine by the tie rule, and what they are complete below
by a minimum. So a change never touches the base: rows that came are in a small index of their own,
and rows that went are struck from what the base found. Once the changes are many they are folded
into a new base.

**Removed rows.** The lists of a class name their rows, in order. Strike those that are gone, and
what is left is a beginning of the list without them, whatever their ties. Neighbor distances name
nothing, but they are the smallest of a multiset: below the largest of them, v, they hold all of it,
and at v some of those tied. We strike one entry for each equal distance of a row that is gone, and
what is left is again a beginning. Distances have the same bits in every index, so equal means
equal.

Either way, a full list that lost a row is complete only below its old last distance. Where that is
not enough (`core.decision.is_enough`), the base is asked for longer lists: one that lost no more
rows than it has spare entries is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.decision import Scope, is_enough
from iknow.core.evidence import (
    NO_EXEMPLAR,
    Evidence,
    from_ranked,
    merge_evidence,
    pad_evidence,
    stack_evidence,
)
from iknow.core.rule import Rule
from iknow.core.text import shown
from iknow.errors import InputError
from iknow.locking import cached_property
from iknow.search.index import RowIndex, check_activations, check_width

Make = Callable[..., RowIndex]
FEW = 8  # further rows to ask for, first, in place of those that are gone
NUMBERS_AT_ONCE = 1 << 23  # of the longer lists, so that they take little memory


class Union(RowIndex):
    """The rows of a base but for those that are gone, and those added to it.

    Args:
        base: An index, which stays as it is.
        gone: Positions of rows in the base, ascending.
        added: An index of the rows that came, perhaps none, for all classes.
        make: Makes a small index of rows by the same distance.
    """

    def __init__(self, base: RowIndex, gone: Ints, added: RowIndex, make: Make) -> None:
        self.base, self.gone, self.added, self._make = base, gone, added, make
        self.n_classes, self.n_features = added.n_classes, base.n_features
        self.n_rows = base.n_rows - len(gone) + added.n_rows
        self.joined = JoinedRows(base, gone, added)
        self._places = Places(base.rows)

    @classmethod
    def of(cls, index: RowIndex, make: Make) -> Union:
        """An index that nothing has happened to, ready to change."""
        if isinstance(index, cls):
            return index
        none = np.empty(0, dtype=np.int64)
        added = make(np.empty((0, index.n_features), np.float32), none, index.n_classes, rows=none)
        return cls(index, none, added, make)

    def changed(self, removed: Any, points: Any, labels: Any, rows: Any, n_classes: int) -> Union:
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
        after = Union(self.base, gone, added, self._make)
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

    def decides(self, rule: Rule) -> bool:
        """Whether `decide` is faster than `gather` for a `rule`, as far as it is known."""
        return self.base.decides(rule)

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        """Evidence about `points`, (n, n_features), within `scope`, of the rows that are there."""
        if scope.belief is None or scope.horizon is None or scope.any > self.base.n_rows:
            return self._search_all(points, scope)
        known = np.where(scope.belief < self.base.n_classes, scope.belief, NO_BELIEF)
        asked = scope._replace(belief=known)
        remaining, _ = self._strike(points, self.base._search(points, asked), asked)
        found = self._add(points, remaining, scope)
        rest = np.flatnonzero(~is_enough(found, scope))
        if len(rest):
            whole = self._search_all(points[rest], scope)
            columns = {name: column.copy() for name, column in vars(found).items()}
            for name, column in columns.items():
                column[rest] = getattr(whole, name)
            found = Evidence(**columns)
        return found

    def warm_up(self) -> None:
        """Prepare and compile everything that searching needs."""
        self.base.warm_up()
        self.gather(self.base.points[:1], min(1, self.n_rows))

    def _search_all(self, points: Floats32, scope: Scope) -> Evidence:
        """Evidence without an early stop."""
        k, m = min(scope.any, self.base.n_rows), scope.per_class
        found, lost = self._ask_base(points, k, m, 0)
        short, extra = np.flatnonzero(lost), FEW
        columns = {name: column.copy() for name, column in vars(found).items()}
        while len(short):
            spare = min(extra, len(self.gone))
            again, lost = self._ask_base(points[short], k, m, spare)
            for name, column in columns.items():
                column[short] = getattr(again, name)
            # All lists are whole at the latest with a spare entry for each row that is gone.
            short, extra = short[lost > spare], 4 * extra
        whole = Evidence(**{**columns, "complete_below": np.full((len(points), 3), np.inf)})
        return self._add(points, whole, scope)

    def _ask_base(self, points: Floats32, k: int, m: int, spare: int) -> tuple[Evidence, Ints]:
        """The first k and m of lists with spare entries, and the most that one lost, (n,)."""
        longer = Scope(m + spare, m + spare, min(k + spare, self.base.n_rows))
        step = max(1, NUMBERS_AT_ONCE // (longer.any + longer.own * self.base.n_classes))
        parts = []
        for start in range(0, len(points), step):
            part = points[start : start + step]
            parts.append(self._strike(part, self.base._search(part, longer), longer))
        found = stack_evidence([each for each, _ in parts])
        lists = found.ranked_distances()[:, :, :m], found.neighbor_distances[:, :k]
        cut = from_ranked(*lists, found.ranked_exemplars()[:, :, :m])
        return cut, np.concatenate([lost for _, lost in parts])

    def _strike(self, points: Floats32, found: Evidence, scope: Scope) -> tuple[Evidence, Ints]:
        if not len(self.gone):
            return found, np.zeros(len(found), dtype=np.int64)
        distances: Floats = np.empty((len(points), 0))
        if found.n_neighbors:
            asked = min(found.n_neighbors, len(self.gone))
            distances = self._removed.gather(points, asked).neighbor_distances
        return without_rows(found, self._numbers, distances, scope)

    def _add(self, points: Floats32, remaining: Evidence, scope: Scope) -> Evidence:
        padded = pad_evidence(remaining, self.n_classes, scope.any)
        if not self.added.n_rows:
            return padded
        came = self.added.gather(points, min(scope.any, self.added.n_rows), scope.per_class)
        return merge_evidence([padded, pad_evidence(came, self.n_classes, scope.any)])

    @cached_property
    def _numbers(self) -> Ints:
        return np.sort(self.base.rows[self.gone])

    @cached_property
    def _removed(self) -> RowIndex:
        """The rows that are gone."""
        gone = self.base.points[self.gone], self.base.labels[self.gone]
        return self._make(*gone, self.base.n_classes)

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
        return Union, (self.base, self.gone, self.added, self._make)


class JoinedRows:
    """The rows of a base but for those that are gone, and others, sorted as in every index.

    An object apart: whoever collects all rows, to save or to fold them, holds no lock that a search
    waits for.
    """

    def __init__(self, base: RowIndex, gone: Ints, added: RowIndex) -> None:
        self._base, self._gone, self._added = base, gone, added

    @cached_property
    def points(self) -> Floats32:
        return self._join("points")[self._order]  # type: ignore[no-any-return]

    @cached_property
    def labels(self) -> Ints:
        return self._join("labels")[self._order]  # type: ignore[no-any-return]

    @cached_property
    def rows(self) -> Ints:
        return self._join("rows")[self._order]  # type: ignore[no-any-return]

    @cached_property
    def _order(self) -> Ints:
        return np.lexsort((self._join("rows"), self._join("labels")))

    def _join(self, name: str) -> Any:
        left = np.delete(getattr(self._base, name), self._gone, axis=0)
        return np.concatenate([left, getattr(self._added, name)])


class Places:
    """Where the rows of an index are, by their numbers."""

    def __init__(self, rows: Ints) -> None:
        self._rows = rows

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self._rows, kind="stable")

    def find(self, numbers: Ints) -> Ints:
        """The positions of rows, of shape (n,); -1 where there is none."""
        if not len(self._rows) or not len(numbers):
            return np.full(len(numbers), -1)
        found = np.searchsorted(self._rows, numbers, sorter=self._order)
        places = self._order[np.minimum(found, len(self._rows) - 1)]
        return np.where(self._rows[places] == numbers, places, -1)


class ShardedIndex(RowIndex):
    """Activations of one layer with their class codes, searched on several devices at once.

    We deal the rows of each class out in turn, as cards: every shard then has a share of every
    class, and the shards have equal work.

    Args:
        activations: Of shape (n_rows, n_features).
        labels: Class codes of shape (n_rows,).
        n_classes: Number of classes.
        rows: Numbers that identify the rows, of shape (n_rows,). Default: their positions.
        devices: Where to search, as torch names them; one may be named twice.

    Examples:
        >>> index = ShardedIndex(rows, labels, 2, devices=["cpu", "cpu"])
        >>> index.gather([[4.0]]).class_distances
        array([[3., 1.]])
    """

    def __init__(
        self,
        activations: Any,
        labels: Any,
        n_classes: int,
        rows: Ints | None = None,
        *,
        devices: Sequence[Any],
    ) -> None:
        super().__init__(activations, labels, n_classes, rows)
        if isinstance(devices, str) or not isinstance(devices, Sequence) or len(devices) == 0:
            raise InputError(
                "devices must name at least one device, such as ['cuda:0', 'cuda:1']; "
                f"got {shown(devices)}"
            )
        from iknow.search.kernels.torch import TorchIndex

        n = min(len(devices), max(1, self.n_rows))
        self.shards = [
            TorchIndex(
                self.points[i::n], self.labels[i::n], n_classes, self.rows[i::n], device=devices[i]
            )
            for i in range(n)
        ]

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        """Everything about `points`, (n, n_features), that `scope` may need."""
        with ThreadPoolExecutor(len(self.shards)) as pool:  # devices are waited for without the GIL
            return merge_evidence(
                list(pool.map(partial(search_part, points=points, scope=scope), self.shards))
            )

    def warm_up(self) -> None:
        """Prepare and compile everything that searching needs, on every device."""
        for shard in self.shards:
            shard.warm_up()


def search_part(part: RowIndex, points: Floats32, scope: Scope) -> Evidence:
    """The evidence of a part of the rows, in full, with inf for the neighbors that it lacks."""
    found = part.gather(points, min(scope.any, part.n_rows), scope.per_class)
    return pad_evidence(found, part.n_classes, scope.any)


def without_rows(
    evidence: Evidence, gone: Ints, distances: Floats, scope: Scope
) -> tuple[Evidence, Ints]:
    """Evidence as if the rows `gone` had never been stored, and the most that a list lost, (n,).

    gone: their numbers, ascending. distances: to these rows, (n, m), ascending; m is their number,
    or that of the neighbor distances if that is less. scope: what the evidence was searched for.
    The proof is above.
    """
    ranked, exemplars = evidence.ranked_distances(), evidence.ranked_exemplars()
    lost = are_among(exemplars, gone)
    struck = _find_equals(evidence.neighbor_distances, distances)
    most = np.maximum(lost.sum(axis=2).max(axis=1, initial=0), struck.sum(axis=1))
    if not most.any():
        return evidence, most
    lists = np.logical_or.reduce(lost, axis=2), np.logical_or.reduce(struck, axis=1)
    complete = _complete_below(evidence, *lists, scope)
    order = np.argsort(lost, axis=2, kind="stable")
    ranked = np.take_along_axis(np.where(lost, np.inf, ranked), order, axis=2)
    exemplars = np.take_along_axis(np.where(lost, NO_EXEMPLAR, exemplars), order, axis=2)
    neighbors = np.sort(np.where(struck, np.inf, evidence.neighbor_distances), axis=1)
    return from_ranked(ranked, neighbors, exemplars, complete), most


def _complete_below(evidence: Evidence, lost: Bools, struck: Bools, scope: Scope) -> Floats:
    """How far lists are complete that lost rows; lost: (n, n_classes), struck: (n,)."""
    ranked = evidence.ranked_distances()
    # Where a list had room left, its last distance is inf, and it is as complete as before.
    last = np.where(lost, ranked[:, :, scope.other - 1], np.inf)
    complete = evidence.complete_below.copy()
    rows = np.arange(len(last))
    if scope.belief is not None:
        believed = scope.belief != NO_BELIEF
        own = np.where(lost[rows, scope.belief], ranked[rows, scope.belief, scope.own - 1], np.inf)
        complete[believed, 0] = np.minimum(complete[:, 0], own)[believed]
        last[rows[believed], scope.belief[believed]] = np.inf
    complete[:, 1] = np.minimum(complete[:, 1], last.min(axis=1, initial=np.inf))
    if evidence.n_neighbors:
        kth = np.where(struck, evidence.neighbor_distances[:, -1], np.inf)
        complete[:, 2] = np.minimum(complete[:, 2], kth)
    return complete


def are_among(numbers: Ints, known: Ints) -> Bools:
    """Which numbers, of any shape, are among known ones, which ascend."""
    if not len(known):
        return np.zeros(numbers.shape, dtype=np.bool_)
    places = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return np.asarray(known[places] == numbers)


def _find_equals(whole: Floats, part: Floats) -> Bools:
    """Mark one entry of `whole`, (n, a), for each equal one of `part`, (n, b), while there are."""
    struck = np.zeros(whole.shape, dtype=np.bool_)
    if not whole.shape[1]:
        return struck
    queries = np.arange(len(whole))
    for column in part.T:
        equal = (whole == column[:, None]) & ~struck
        first = equal.argmax(axis=1)
        struck[queries, first] |= equal[queries, first]
    return struck
