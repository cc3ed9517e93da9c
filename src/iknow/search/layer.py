"""LayerIndex: the stored activations of a layer, searched by the layer's metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats32, Ints
from iknow.core.decision import Decision
from iknow.core.evidence import Evidence
from iknow.core.neighborhood import Neighborhood
from iknow.errors import InputError
from iknow.geometry import Metric
from iknow.locking import cached_property
from iknow.search.changing import ChangingIndex, as_changing
from iknow.search.choose import find_index_type
from iknow.search.given_index import GivenIndex
from iknow.search.index import IndexFactory, check_activations, check_width
from iknow.search.stored import StoredRows

FEWEST_CHANGES, SHARE_CHANGED = 1024, 4
"""An index in memory is built anew after this many changes, and a quarter of its rows."""


class LayerIndex:
    """An index of points that a metric has transformed, as it transforms every query.

    points: transformed, of shape (n_rows, m). labels, rows: as for `CellIndex`. device, index: see
    `find_index_type`. The arrays are read and checked on first use. check: raises if the arrays
    must not be used; called before and after each use, as they may lie in a file that changes.
    built: the index itself, if there is one already.
    """

    def __init__(
        self,
        points: Any,
        labels: Any,
        n_classes: int,
        rows: Ints,
        metric: Metric,
        device: str | None = None,
        check: Callable[[], None] | None = None,
        index: IndexFactory | None = None,
        *,
        built: StoredRows | None = None,
    ) -> None:
        self.metric = metric
        self.device = device
        self.given = index
        self._make = find_index_type(metric, device, index)
        self._arrays = points, labels, rows
        self.n_classes = n_classes
        self._check = check
        self._ready = built

    @classmethod
    def build(
        cls,
        activations: Any,
        labels: Any,
        n_classes: int,
        rows: Ints,
        metric: Metric,
        device: str | None = None,
        index: IndexFactory | None = None,
    ) -> LayerIndex:
        """The index of a layer's activations, of shape (n_rows, n_features), checked at once."""
        points = metric.transform(activations)
        layer = cls(points, labels, n_classes, rows, metric, device, index=index)
        layer._index  # noqa: B018
        return layer

    def changed(
        self, removed: Ints, points: Floats32, labels: Ints, rows: Ints, n_classes: int
    ) -> LayerIndex:
        """The index after some rows went and others came; this one stays as it is.

        removed: numbers of rows, ascending. points, labels, rows: those to come, of shapes
        (m, n_features), (m,) and (m,), transformed by the metric. n_classes: by now. A base that is
        in memory is built anew once the changes are many; one in a file stays there.
        """
        changing = self._changing.changed(removed, points, labels, rows, n_classes)
        self._check_arrays()
        layer = self._with(changing)
        many = changing.n_changed > max(FEWEST_CHANGES, changing.base.n_rows // SHARE_CHANGED)
        lists = not isinstance(changing.base, GivenIndex) or changing.base.lists_several
        return layer.folded() if (many and self._check is None) or not lists else layer

    def folded(self) -> LayerIndex:
        """The same rows in one index, as if built from them; nothing else is kept of others."""
        index = self._index
        if not isinstance(index, ChangingIndex):
            return self
        arrays = index.points, index.labels, self.n_classes, index.rows
        layer = LayerIndex(*arrays, self.metric, self.device, None, self.given)
        self._check_arrays()
        layer._index  # noqa: B018
        return layer

    @property
    def no_points(self) -> Floats32:
        """Points of no row, of shape (0, n_features)."""
        return np.empty((0, self.n_features), dtype=np.float32)

    @property
    def highest_row(self) -> int:
        """No row that is there has a higher number."""
        return self._changing.highest_row

    def has(self, rows: Ints) -> Bools:
        """Which numbers are those of rows, a mask of shape (n,)."""
        return self._changing.has(rows)

    def take(self, rows: Ints) -> tuple[Floats32, Ints]:
        """The points and labels of rows that are there, by their numbers."""
        found = self._changing.take(rows)
        self._check_arrays()
        return found

    def transform(self, activations: Any) -> Floats32:
        """Activations of shape (n, n_features) as points, checked."""
        points = check_activations(self._transform(activations))
        check_width(points, self.n_features, "activations")
        return points

    @property
    def n_rows(self) -> int:
        return len(self._arrays[0]) if self._ready is None else self._ready.n_rows

    @property
    def n_features(self) -> int:
        return int(self._arrays[0].shape[1])

    @property
    def points(self) -> Floats32:
        return self._index.points

    @property
    def labels(self) -> Ints:
        return self._index.labels

    @property
    def rows(self) -> Ints:
        return self._index.rows

    def gather(self, queries: Any, k: int = 0, per_class: int = 1) -> Evidence:
        """Evidence about activations of the layer; see `StoredRows.gather`."""
        evidence = self._index.gather(self._transform(queries), k, per_class)
        self._check_arrays()
        return evidence

    def gather_among(self, rows: Ints, k: int) -> Evidence:
        """Evidence about some of the points themselves, each its own nearest."""
        return self._index.gather(self.points[rows], k)

    def find_support(
        self, queries: Any, neighborhood: Neighborhood, belief: Ints | None = None
    ) -> Bools:
        """The classes within reach of queries, a mask of shape (n_queries, n_classes)."""
        support = self._index.find_support(self._transform(queries), neighborhood, belief)
        self._check_arrays()
        return support

    def decides(self, neighborhood: Neighborhood) -> bool:
        """Whether `decide` is faster than `gather`, as far as it is known."""
        return self._index.decides(neighborhood)

    def decide(self, queries: Any, neighborhood: Neighborhood, belief: Ints) -> Decision:
        """What activations of the layer decide about their beliefs, of shape (n_queries,)."""
        decision = self._index.decide(self._transform(queries), neighborhood, belief)
        self._check_arrays()
        return decision

    def warm_up(self) -> None:
        """Check, prepare and compile, as the first query would."""
        self._index.warm_up()

    @property
    def _index(self) -> StoredRows:
        self._check_arrays()
        return self._built

    @cached_property
    def _built(self) -> StoredRows:
        if self._ready is not None:
            return self._ready
        points, labels, rows = self._arrays
        index = self._make(points, labels, self.n_classes, rows=rows)
        self._arrays = index.points, index.labels, index.rows  # sorted by now
        return index

    @cached_property
    def _changing(self) -> ChangingIndex:
        # What comes is little: the CPU searches it, whatever searches the rest.
        return as_changing(self._index, find_index_type(self.metric, None))

    def _with(self, index: ChangingIndex) -> LayerIndex:
        """A layer that searches another index, by the same metric."""
        arrays = self._arrays[0], self._arrays[1], index.n_classes, self._arrays[2]
        options = self.metric, self.device, self._check, self.given
        return LayerIndex(*arrays, *options, built=index)

    def _check_arrays(self) -> None:
        if self._check is not None:
            self._check()

    def _transform(self, queries: Any) -> Any:
        try:
            return self.metric.transform(queries)
        except InputError as error:
            raise InputError(f"queries do not fit the layer's metric: {error}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only what cannot be derived, and nothing that `check` refuses."""
        index = self._index
        arrays = index.points, index.labels, self.n_classes, index.rows
        return LayerIndex, (*arrays, self.metric, self.device, None, self.given)
