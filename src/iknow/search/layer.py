"""LayerIndex: the stored activations of a layer, searched by the layer's metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any, cast

import numpy as np

from iknow.core.arrays import Bools, Floats32, Ints
from iknow.core.decision import Decision
from iknow.core.evidence import Evidence
from iknow.core.rule import Rule
from iknow.core.text import shown
from iknow.errors import InputError, MissingExtraError
from iknow.locking import cached_property, unforked
from iknow.metrics import Metric
from iknow.pages import read_through
from iknow.search.cells import CpuIndex
from iknow.search.disk import DiskIndex
from iknow.search.index import CheckedIndex, IndexFactory, RowIndex, check_activations
from iknow.search.measured import HammingIndex, MinkowskiIndex
from iknow.search.scratch import Folder, write_rows
from iknow.search.union import Make, Union

Search = str | IndexFactory | None
"""What searches: a device for torch, an index of the user's own, or None for iknow's on the CPU."""
IN_MEMORY: Callable[[], object] = bool
"""The check of arrays that need none: it does nothing."""
FEWEST_CHANGES, SHARE_CHANGED = 1024, 4
"""An index in memory is built anew after this many changes, and a quarter of its rows."""
VALUES_AT_ONCE = 1 << 21
"""How many activations that are mapped to transform at a time."""


class LayerIndex:
    """An index of points that a metric has transformed, as it transforms every query.

    points: transformed, of shape (n_rows, m). labels, rows: as for `RowIndex`. search: see
    `index_type`. The arrays are read and checked on first use. check: raises if the arrays must not
    be used; called before and after each use, as they may lie in a file that changes. built: the
    index itself, if there is one already.
    """

    def __init__(
        self,
        points: Any,
        labels: Any,
        n_classes: int,
        rows: Ints,
        metric: Metric,
        search: Search = None,
        check: Callable[[], object] | None = None,
        *,
        built: RowIndex | None = None,
    ) -> None:
        self.metric, self.n_classes = metric, n_classes
        self._make = index_type(metric, search)
        self._like_this = partial(LayerIndex, metric=metric, search=search)
        self._arrays = points, labels, rows
        self._check, self._ready = check or IN_MEMORY, built

    @classmethod
    def build(
        cls,
        activations: Any,
        labels: Any,
        n_classes: int,
        rows: Ints,
        metric: Metric,
        search: Search = None,
        folder: Folder = None,
    ) -> LayerIndex:
        """The index of a layer's activations, of shape (n_rows, n_features), checked at once.

        folder: where to keep the points of activations that are mapped; None for memory.
        """
        if folder is None:
            points = metric.transform(activations)
        else:
            order = np.lexsort((rows, labels))
            pieces, width = _transform_parts(activations, metric)
            points = write_rows(folder, order, width, pieces)
            labels, rows = labels[order], rows[order]
            if search is None and metric.p == 2:
                search = partial(DiskIndex, folder=folder)
        layer = cls(points, labels, n_classes, rows, metric, search)
        layer._index  # noqa: B018
        return layer

    def changed(
        self, removed: Ints, points: Floats32, labels: Ints, rows: Ints, n_classes: int
    ) -> LayerIndex:
        """The index after some rows went and others came, as `Union.changed` has them.

        points: transformed by the metric. This index stays as it is. A base that is in memory is
        built anew once the changes are many; one in a file stays there.
        """
        changed = self._union.changed(removed, points, labels, rows, n_classes)
        self._check()
        base = self._arrays
        layer = self._like_this(*base[:2], n_classes, base[2], check=self._check, built=changed)
        n_changed = len(changed.gone) + changed.added.n_rows
        many = n_changed > max(FEWEST_CHANGES, changed.base.n_rows // SHARE_CHANGED)
        return layer.folded() if many and self._check is IN_MEMORY else layer

    def folded(self) -> LayerIndex:
        """The same rows in one index, as if built from them; nothing else is kept of others."""
        if not isinstance(self._index, Union):
            return self
        layer = self._like_this(*self._index.arrays())
        self._check()
        layer._index  # noqa: B018
        return layer

    def has(self, rows: Ints) -> Bools:
        """Which numbers are those of rows, a mask of shape (n,)."""
        return self._union.has(rows)

    def take(self, rows: Ints) -> tuple[Floats32, Ints]:
        """The points and labels of rows that are there, by their numbers."""
        found = self._union.take(rows)
        self._check()
        return found

    def transform(self, activations: Any) -> Floats32:
        """Activations of shape (n, n_features) as points, checked."""
        return check_activations(self._transform(activations), n_features=self.n_features)

    @property
    def highest_row(self) -> int:
        return self._union.highest_row

    @property
    def n_rows(self) -> int:
        return len(self._arrays[0]) if self._ready is None else self._ready.n_rows

    n_features = property(lambda self: int(self._arrays[0].shape[1]))
    points = property(attrgetter("_index.points"))
    labels = property(attrgetter("_index.labels"))
    rows = property(attrgetter("_index.rows"))

    def gather(self, queries: Any, k: int = 0, per_class: int = 1) -> Evidence:
        """Evidence about activations of the layer; see `RowIndex.gather`."""
        evidence = self._index.gather(self._transform(queries), k, per_class)
        self._check()
        return evidence

    def gather_among(self, rows: Ints, k: int) -> Evidence:
        """Evidence about some of the stored points; each is the nearest to itself."""
        return self._index.gather(self.points[rows], k)

    def decides(self, rule: Rule) -> bool:
        return self._index.decides(rule)

    def decide(self, queries: Any, rule: Rule, belief: Ints) -> Decision:
        """The decision about activations of the layer and their beliefs, of shape (n_queries,)."""
        decision = self._index.decide(self._transform(queries), rule, belief)
        self._check()
        return decision

    def warm_up(self) -> None:
        """Check, prepare and compile, as the first query would."""
        self._index.warm_up()

    @property
    def _index(self) -> RowIndex:
        self._check()
        return self._built

    @cached_property
    def _built(self) -> RowIndex:
        if self._ready is not None:
            return self._ready
        points, labels, rows = self._arrays
        index = self._make(points, labels, self.n_classes, rows=rows)
        self._arrays = index.points, index.labels, index.rows  # sorted by now
        return index

    @cached_property
    def _union(self) -> Union:
        # Few rows are added, so always search them on the CPU.
        return Union.of(self._index, index_type(self.metric))

    def _transform(self, queries: Any) -> Any:
        try:
            return self.metric.transform(queries)
        except InputError as error:
            raise InputError(f"queries do not fit the layer's metric: {error}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only what cannot be derived, and nothing that `check` refuses."""
        return self._like_this, self._index.arrays()


def _transform_parts(activations: Floats32, metric: Metric) -> tuple[Iterator[Floats32], int]:
    """The points of mapped activations, one part after another, and their width."""

    def pieces() -> Iterator[Floats32]:
        for values in read_through(activations, VALUES_AT_ONCE // activations.shape[1]):
            # As float32, which is what an index stores; it reports what overflows.
            with np.errstate(over="ignore"):
                points = np.asarray(metric.transform(values)).astype(np.float32, copy=False)
            yield points

    return pieces(), np.shape(metric.transform(activations[:1]))[1]


def index_type(metric: Metric, search: Search = None) -> Make:
    """The type or function that makes an index for a metric.

    search: None for the search made for CPUs; "cuda", "cuda:1", "mps" or "cpu" for torch's; else
    the user's own index. Differing features, p=0, are always counted on the CPU: the device or the
    index searches the other layers of a model with leaves.
    """
    if not (search is None or isinstance(search, str) or callable(search)):
        raise InputError(
            'search must be a device such as "cuda", or an index: a type or a function, called as '
            f"search(activations, labels, n_classes, rows=rows); got {shown(search)}"
        )
    if metric.p == 0:
        return HammingIndex
    if metric.p != 2 and search is not None:
        raise InputError(
            f"search={shown(search)} uses the Euclidean norm, p=2; got {shown(metric)}: omit "
            "search, or choose a metric with p=2"
        )
    if search is None:
        # Only the Euclidean norm turns into matrix products.
        return CpuIndex if metric.p == 2 else partial(MinkowskiIndex, p=metric.p)
    if not isinstance(search, str):
        made: Any = search.func if isinstance(search, partial) else search
        is_own = isinstance(made, type) and issubclass(made, RowIndex)  # it checks its rows itself
        return cast(Make, search) if is_own else partial(CheckedIndex, make=search)
    try:
        with unforked():
            # Imported here because only users of torch should pay for loading it.
            from iknow.search.kernels.torch import TorchIndex
    except ImportError as error:
        raise MissingExtraError(f"searching on device {shown(search)}", "torch") from error
    return partial(TorchIndex, device=search)


def warm_up() -> None:
    """Compile the search for CPUs, or read the cached code, before the first request needs it.

    Without the extra `fast` it does nothing. Run it while you build an image, and each process
    finds its search compiled: `python -c "import iknow; iknow.search.warm_up()"`.

    Examples:
        >>> warm_up()
    """
    n = CpuIndex.FEWEST_ROWS
    points = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    mapped = points.copy()
    mapped.flags.writeable = False  # like the arrays of a bundle
    for rows in (points, mapped):
        CpuIndex(rows, np.arange(n) // (n // 2), 2).warm_up()
    for rows in (points, np.zeros_like(points)):  # looked up and compared
        HammingIndex(rows, np.arange(n) // (n // 2), 2).warm_up()
