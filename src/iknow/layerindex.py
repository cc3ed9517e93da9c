"""LayerIndex: the stored activations of a layer, seen through the layer's metric."""

from __future__ import annotations

from typing import Any

from iknow.core.arrays import Bools, Floats32, Ints
from iknow.core.evidence import Evidence
from iknow.core.neighborhood import Neighborhood
from iknow.errors import InputError
from iknow.geometry import Metric
from iknow.search.dense import DenseIndex
from iknow.search.minkowski import MinkowskiIndex


class LayerIndex:
    """An index of points that were, as every query is, transformed by a metric.

    points: of shape (n_rows, m), transformed already. labels, rows: as for `DenseIndex`.
    """

    def __init__(
        self, points: Any, labels: Any, n_classes: int, rows: Ints, metric: Metric
    ) -> None:
        self.metric = metric
        # Only the Euclidean norm turns into matrix products; any other is measured directly.
        self._index: DenseIndex | MinkowskiIndex = (
            DenseIndex(points, labels, n_classes, rows=rows)
            if metric.p == 2
            else MinkowskiIndex(points, labels, n_classes, rows=rows, p=metric.p)
        )

    @classmethod
    def build(
        cls, activations: Any, labels: Any, n_classes: int, rows: Ints, metric: Metric
    ) -> LayerIndex:
        """The index of a layer's activations, of shape (n_rows, n_features)."""
        return cls(metric.transform(activations), labels, n_classes, rows, metric)

    @property
    def n_rows(self) -> int:
        return self._index.n_rows

    @property
    def n_features(self) -> int:
        return self._index.n_features

    @property
    def n_classes(self) -> int:
        return self._index.n_classes

    @property
    def points(self) -> Floats32:
        return self._index.points

    @property
    def labels(self) -> Ints:
        return self._index.labels

    @property
    def rows(self) -> Ints:
        return self._index.rows

    def gather(self, queries: Any, k: int = 0) -> Evidence:
        """Evidence about queries, activations of the layer, with k neighbour distances."""
        return self._index.gather(self._transform(queries), k)

    def find_support(self, queries: Any, neighborhood: Neighborhood) -> Bools:
        """Which classes are within reach of queries, a mask of shape (n_queries, n_classes)."""
        return self._index.find_support(self._transform(queries), neighborhood)

    def _transform(self, queries: Any) -> Any:
        try:
            return self.metric.transform(queries)
        except InputError as error:
            raise InputError(f"queries do not fit the layer's metric: {error}") from error
