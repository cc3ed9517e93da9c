"""LayerIndex: the stored activations of a layer, seen through the layer's metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iknow.core.arrays import Bools, Floats32, Ints
from iknow.core.evidence import Evidence
from iknow.core.neighborhood import Neighborhood
from iknow.errors import InputError
from iknow.geometry import Metric
from iknow.locking import Lock
from iknow.search.choose import find_index_type
from iknow.search.index import IndexFactory
from iknow.search.stored import StoredRows


class LayerIndex:
    """An index of points that were, as every query is, transformed by a metric.

    points: of shape (n_rows, m), transformed already. labels, rows: as for `CellIndex`. device:
    where to search, and index: by what, see `find_index_type`. Nothing of the arrays is read before
    the first query, or the first look at them; then they are checked. check: may refuse them;
    called before each use of the arrays, and after it once more, as they may lie in a file that
    somebody changes meanwhile.
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
        self._n_classes = n_classes
        self._check = check
        self._built: StoredRows | None = None
        self._lock = Lock()

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

    @property
    def n_rows(self) -> int:
        return len(self._arrays[0])

    @property
    def n_features(self) -> int:
        return int(self._arrays[0].shape[1])

    @property
    def n_classes(self) -> int:
        return self._n_classes

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
        evidence = self._index.gather(self._transform(queries), k)
        self._check_arrays()
        return evidence

    def gather_among(self, rows: Ints, k: int) -> Evidence:
        """Evidence about some of the points themselves, each of which is its own nearest."""
        return self._index.gather(self.points[rows], k)

    def find_support(self, queries: Any, neighborhood: Neighborhood) -> Bools:
        """Which classes are within reach of queries, a mask of shape (n_queries, n_classes)."""
        support = self._index.find_support(self._transform(queries), neighborhood)
        self._check_arrays()
        return support

    def warm_up(self) -> None:
        """Do what the first query would: check, prepare and compile."""
        self._index.warm_up()

    @property
    def _index(self) -> StoredRows:
        """What searches, made by the first who needs it."""
        self._check_arrays()
        if self._built is None:
            with self._lock.held():
                if self._built is None:
                    self._built = self._build()
        return self._built

    def _check_arrays(self) -> None:
        if self._check is not None:
            self._check()

    def _build(self) -> StoredRows:
        points, labels, rows = self._arrays
        index = self._make(points, labels, self._n_classes, rows=rows)
        self._arrays = index.points, index.labels, index.rows  # it may have had to sort them
        return index

    def _transform(self, queries: Any) -> Any:
        try:
            return self.metric.transform(queries)
        except InputError as error:
            raise InputError(f"queries do not fit the layer's metric: {error}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Only what cannot be derived is pickled, and nothing that `check` refuses."""
        index = self._index
        arrays = index.points, index.labels, self.n_classes, index.rows
        return LayerIndex, (*arrays, self.metric, self.device, None, self._given)
