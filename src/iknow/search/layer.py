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
from iknow.search.choose import find_index_type
from iknow.search.index import IndexFactory
from iknow.search.stored import StoredRows


class LayerIndex:
    """An index of points that a metric has transformed, as it transforms every query.

    points: transformed, of shape (n_rows, m). labels, rows: as for `CellIndex`. device, index: see
    `find_index_type`. The arrays are read and checked on first use. check: raises if the arrays
    must not be used; called before and after each use, as they may lie in a file that changes.
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
    ) -> None:
        self.metric = metric
        self.device = device
        self._given = index
        self._make = find_index_type(metric, device, index)
        self._arrays = points, labels, rows
        self.n_classes = n_classes
        self._check = check

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

    def extended(self, activations: Any, labels: Ints, rows: Ints) -> LayerIndex:
        """The index of these points and further ones, of shape (m, n_features), by the same metric.

        labels, rows: of the further ones.
        """
        points = np.asarray(self.metric.transform(activations))
        arrays = (self.points, points), (self.labels, labels), (self.rows, rows)
        every = [np.concatenate(pair) for pair in arrays]
        layer = LayerIndex(
            every[0],
            every[1],
            self.n_classes,
            every[2],
            self.metric,
            self.device,
            None,
            self._given,
        )
        layer._index  # noqa: B018
        return layer

    @property
    def n_rows(self) -> int:
        return len(self._arrays[0])

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

    @property
    def approximation(self) -> str | None:
        """The index in words if its answers may differ from those of exact search; else None."""
        return self._index.approximation

    def find_exact_support(self, queries: Any, neighborhood: Neighborhood, belief: Ints) -> Bools:
        """What `find_support` finds about `queries` by a `neighborhood` and `belief`, if exact."""
        points = self._transform(queries)
        support = self._index.find_exact_support(points, neighborhood, belief)
        self._check_arrays()
        return support

    def finds_support(self, neighborhood: Neighborhood) -> bool:
        """Whether `find_support` is the fastest way to a support by a `neighborhood`."""
        return self._index.finds_support(neighborhood)

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
        points, labels, rows = self._arrays
        index = self._make(points, labels, self.n_classes, rows=rows)
        self._arrays = index.points, index.labels, index.rows  # sorted by now
        return index

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
        return LayerIndex, (*arrays, self.metric, self.device, None, self._given)
