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
from operator import attrgetter
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats32, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.decision import Scope, is_enough
from iknow.core.evidence import (
    NO_EXEMPLAR,
    Evidence,
    merge_evidence,
    pad_evidence,
    rank,
    stack_evidence,
)
from iknow.core.rule import Rule
from iknow.core.text import shown
from iknow.errors import InputError
from iknow.locking import cached_property
from iknow.pages import slices
from iknow.search.index import RowIndex, check_activations

Make = Callable[..., RowIndex]
FEW = 8  # further rows to ask for, first, in place of those that are gone
NUMBERS_AT_ONCE = 1 << 23  # of the longer lists, so that they take little memory


class Union(RowIndex):
    """The rows of a base but for those that are gone, and those added to it.

    base: an index, which stays as it is. gone: positions of rows in the base, ascending. added: an
    index of the rows that came, perhaps none, for all classes. make: makes a small index of rows by
    the same distance.
    """

    def __init__(self, base: RowIndex, gone: Ints, added: RowIndex, make: Make) -> None:
        self.base, self.gone, self.added, self._make = base, gone, added, make
        self.n_classes, self.n_features = added.n_classes, base.n_features
        self.n_rows = base.n_rows - len(gone) + added.n_rows
        self._joined = JoinedRows(base, gone, added)

    points = property(attrgetter("_joined.points"))
    labels = property(attrgetter("_joined.labels"))
    rows = property(attrgetter("_joined.rows"))

    @classmethod
    def of(cls, index: RowIndex, make: Make) -> Union:
        """An index that nothing has happened to, ready to change."""
        if isinstance(index, cls):
            return index
        return cls(index, np.empty(0, dtype=np.int64), make(*index.arrays(slice(0))), make)

    def changed(
        self, removed: Ints, points: Any, labels: Ints, rows: Ints, n_classes: int
    ) -> Union:
        """The index after some rows went and others came; this one stays as it is.

        removed: numbers of rows that are there, ascending. points, labels, rows: those to come, of
        shapes (m, n_features), (m,) and (m,). n_classes: as many as before, or more.
        """
        new = check_activations(points, n_features=self.n_features)
        of_base = removed[~np.isin(removed, self.added.rows)]
        kept = ~np.isin(self.added.rows, removed)
        came = {"points": new, "labels": labels, "rows": rows}
        arrays = [np.concatenate([getattr(self.added, a)[kept], b]) for a, b in came.items()]
        added = self._make(*arrays[:2], n_classes, rows=arrays[2])
        gone = np.union1d(self.gone, self.base.find(of_base))
        return Union(self.base, gone, added, self._make)

    @property
    def highest_row(self) -> int:
        """No row that is there has a higher number."""
        return int(max(self.base.rows.max(initial=-1), self.added.rows.max(initial=-1)))

    def has(self, numbers: Ints) -> Bools:
        """Which numbers are those of rows, of shape (n,)."""
        places = self.base.find(numbers)
        of_base = (places >= 0) & ~are_among(places, self.gone)
        return of_base | np.isin(numbers, self.added.rows)

    def take(self, numbers: Ints) -> tuple[Floats32, Ints]:
        """The points and labels of rows, by their numbers, which are there."""
        points = np.empty((len(numbers), self.n_features), dtype=np.float32)
        labels = np.empty(len(numbers), dtype=np.int64)
        # A row that has come again is in both, and its latest state counts.
        for index in (self.base, self.added):
            places = index.find(numbers)
            here = places >= 0
            points[here], labels[here] = index.points[places[here]], index.labels[places[here]]
        return points, labels

    def decides(self, rule: Rule) -> bool:
        return self.base.decides(rule)

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        if scope.belief is None or scope.horizon is None or scope.any > self.base.n_rows:
            return self._search_all(points, scope)
        known = np.where(scope.belief < self.base.n_classes, scope.belief, NO_BELIEF)
        found = self._add(points, self._ask(points, scope._replace(belief=known))[0], scope)
        rest = np.flatnonzero(~is_enough(found, scope))
        return _replace(found, rest, self._search_all(points[rest], scope)) if len(rest) else found

    def warm_up(self) -> None:
        self.base.warm_up()
        self.gather(self.base.points[:1], min(1, self.n_rows))

    def _search_all(self, points: Floats32, scope: Scope) -> Evidence:
        """Evidence without an early stop."""
        found, lost = self._ask_longer(points, scope, 0)
        short, spare = np.flatnonzero(lost), 0
        while len(short):
            # All lists are whole at the latest with a spare entry for each row that is gone.
            spare = min(4 * spare or FEW, len(self.gone))
            again, lost = self._ask_longer(points[short], scope, spare)
            found, short = _replace(found, short, again), short[lost > spare]
        return self._add(points, found, scope)

    def _ask_longer(self, points: Floats32, scope: Scope, spare: int) -> tuple[Evidence, Ints]:
        """The beginnings of lists with spare entries, and the most that one lost, (n,)."""
        k, m, base = min(scope.any, self.base.n_rows), scope.per_class, self.base
        longer = Scope(m + spare, m + spare, min(k + spare, base.n_rows))
        cuts = slices(len(points), NUMBERS_AT_ONCE // (longer.any + longer.own * base.n_classes))
        parts, lost = zip(*(self._ask(points[cut], longer) for cut in cuts), strict=True)
        found = stack_evidence(parts)
        lists = found.distances[:, :, :m], found.neighbor_distances[:, :k], found.rows[:, :, :m]
        return Evidence(*lists), np.concatenate(lost)

    def _ask(self, points: Floats32, scope: Scope) -> tuple[Evidence, Ints]:
        """What the base finds, without the rows that are gone, and the most that a list lost, (n,).

        The proof is above.
        """
        found = self.base._search(points, scope)
        if not len(self.gone):
            return found, np.zeros(len(found), dtype=np.int64)
        neighbors, ranked = found.neighbor_distances, found.distances
        lost = are_among(found.rows, self._numbers)
        struck = np.zeros(neighbors.shape, dtype=np.bool_)
        if found.n_neighbors:
            wanted = Scope(any=min(found.n_neighbors, len(self.gone)))
            queries = np.arange(len(found))
            for column in self._removed._search(points, wanted).neighbor_distances.T:
                equal = (neighbors == column[:, None]) & ~struck
                first = equal.argmax(axis=1)
                struck[queries, first] |= equal[queries, first]
        most = np.maximum(lost.sum(axis=2).max(axis=1, initial=0), struck.sum(axis=1))
        if not most.any():
            return found, most
        # Where a list had room left, its last distance is inf, and it is as complete as before.
        belief = NO_BELIEF if scope.belief is None else scope.belief[:, None]
        is_own = np.arange(found.n_classes) == belief
        last = np.where(is_own, ranked[:, :, scope.own - 1], ranked[:, :, scope.other - 1])
        last = np.where(lost.any(axis=2), last, np.inf)
        kth = np.where(struck.any(axis=1, keepdims=True), neighbors[:, -1:], np.inf)
        sides = np.where(is_own, last, np.inf), np.where(is_own, np.inf, last), kth
        ends = np.column_stack([side.min(axis=1, initial=np.inf) for side in sides])
        kept = np.where(lost, np.inf, ranked), np.where(lost, NO_EXEMPLAR, found.rows)
        distances, numbers = rank(*kept, found.per_class)
        neighbors = np.sort(np.where(struck, np.inf, neighbors), axis=1)
        complete = np.minimum(found.complete_below, ends)
        return Evidence(distances, neighbors, numbers, complete), most

    def _add(self, points: Floats32, found: Evidence, scope: Scope) -> Evidence:
        """What was found in the base, together with what was added."""
        padded = pad_evidence(found, self.n_classes, scope.any)
        if not self.added.n_rows:
            return padded
        return merge_evidence([padded, self.added.search_part(points, scope)])

    @cached_property
    def _removed(self) -> RowIndex:
        return self._make(*self.base.arrays(self.gone))

    @cached_property
    def _numbers(self) -> Ints:
        return np.sort(self.base.rows[self.gone])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only what cannot be derived."""
        return Union, (self.base, self.gone, self.added, self._make)


class JoinedRows:
    """The rows of a base but for those that are gone, and others, sorted as in every index.

    An object apart: whoever collects all rows, to save or to fold them, holds no lock that a search
    waits for.
    """

    def __init__(self, base: RowIndex, gone: Ints, added: RowIndex) -> None:
        self._parts = base, gone, added

    points = cached_property(lambda self: self._join("points")[self._order])
    labels = cached_property(lambda self: self._join("labels")[self._order])
    rows = cached_property(lambda self: self._join("rows")[self._order])
    _order = cached_property(lambda self: np.lexsort((self._join("rows"), self._join("labels"))))

    def _join(self, name: str) -> Any:
        base, gone, added = self._parts
        return np.concatenate([np.delete(getattr(base, name), gone, axis=0), getattr(added, name)])


class ShardedIndex(RowIndex):
    """Activations of one layer with their class codes, searched on several devices at once.

    The rows of each class go to the shards in turn, so every shard has a share of every class, and
    the shards have equal work.

    Args:
        *arrays: Activations, labels, n_classes and rows, as for any `RowIndex`.
        **named: Those of them that are given by name.
        devices: Where to search, as torch names them; one may be named twice.

    Examples:
        >>> index = ShardedIndex(rows, labels, 2, devices=["cpu", "cpu"])
        >>> index.gather([[4.0]]).class_distances
        array([[3., 1.]])
    """

    def __init__(self, *arrays: Any, devices: Sequence[Any], **named: Any) -> None:
        super().__init__(*arrays, **named)
        if isinstance(devices, str) or not isinstance(devices, Sequence) or len(devices) == 0:
            raise InputError(
                "devices must name at least one device, such as ['cuda:0', 'cuda:1']; "
                f"got {shown(devices)}"
            )
        from iknow.search.kernels.torch import TorchIndex

        n = min(len(devices), max(1, self.n_rows))
        self.shards = [
            TorchIndex(*self.arrays(slice(i, None, n)), device=devices[i]) for i in range(n)
        ]

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        """Everything about `points`, (n, n_features), that `scope` may need."""
        with ThreadPoolExecutor(len(self.shards)) as pool:  # devices are waited for without the GIL
            found = pool.map(lambda shard: shard.search_part(points, scope), self.shards)
            return merge_evidence(list(found))

    def warm_up(self) -> None:
        for shard in self.shards:
            shard.warm_up()


def are_among(numbers: Ints, known: Ints) -> Bools:
    """Which numbers, of any shape, are among known ones, which ascend; np.isin is slower."""
    if not len(known):
        return np.zeros(numbers.shape, dtype=np.bool_)
    places = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return np.asarray(known[places] == numbers)


def _replace(evidence: Evidence, queries: Ints, part: Evidence) -> Evidence:
    """The evidence with another one about some queries, by their positions."""
    columns = [column.copy() for column in vars(evidence).values()]
    for column, values in zip(columns, vars(part).values(), strict=True):
        column[queries] = values
    return Evidence(*columns)
