"""DenseIndex: exact search by bounding the distances to all rows, on all cores.

One float32 product bounds every distance from below, with a proven allowance for rounding; we
measure only the rows that may be nearest by their bound, in float64. With the extra `fast`, the
products are compiled (`panels`); without it, numpy computes them (`kernels.numpy`). Rows
that are mostly zeros have products of their own (`measured`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any, Protocol

from iknow.core.arrays import Floats32
from iknow.core.decision import Scope
from iknow.core.evidence import Evidence, empty_evidence, merge_evidence, pad_evidence
from iknow.locking import cached_property, unforked
from iknow.pages import slices_that_fit
from iknow.search.index import RowIndex
from iknow.search.kernels.numpy import NumpyBlocks

COPY_BYTES = 5  # per feature to prepare a row for search: its float32 copy and a little more


class Search(Protocol):
    """A way of searching stored rows."""

    def fill(self, queries: Floats32, evidence: Evidence) -> None:
        """Write the evidence about queries of shape (n_queries, n_features) into `evidence`."""


class DenseIndex(RowIndex):
    """Activations of one layer with their class codes, searched in the Euclidean norm.

    If there are too many rows to prepare for search in the free memory, such as those of a large
    memory-mapped file, they are searched part by part.

    Args:
        activations: Of shape (n_rows, n_features).
        labels: Class codes of shape (n_rows,).
        n_classes: Number of classes.
        rows: Numbers that identify the rows, of shape (n_rows,). Default: their positions.

    Examples:
        >>> DenseIndex(rows, labels, n_classes=2).gather([[4.0]], k=1).class_distances
        array([[3., 1.]])
    """

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        """Everything about `points`, (n, n_features), that `scope` may need."""
        k, per_class = scope.any, scope.per_class
        evidence = empty_evidence(len(points), self.n_classes, k, per_class)
        if len(self._parts) > 1:
            for part in self._each_part():
                found = part.gather(points, min(k, part.n_rows), per_class)
                evidence = merge_evidence([evidence, pad_evidence(found, self.n_classes, k)])
            return evidence
        self._engine.fill(points, evidence)
        return evidence

    @cached_property
    def _parts(self) -> list[slice]:
        """Slices of rows to prepare for search at once; just one unless memory is short."""
        if self._is_sparse:  # what it prepares is small
            return [slice(0, self.n_rows)]
        return slices_that_fit(self.n_rows, COPY_BYTES * (self.n_features + 4))

    def _each_part(self) -> Iterator[DenseIndex]:
        """Indexes of the parts, one at a time: each is freed before the next is prepared."""
        for part in self._parts:
            yield DenseIndex(self.points[part], self.labels[part], self.n_classes, self.rows[part])

    @cached_property
    def _is_sparse(self) -> bool:
        from iknow.search.measured import SparseRows

        return SparseRows.pay_for(self.points)

    @cached_property
    def _engine(self) -> Search:
        from iknow.search.measured import SparseRows

        return SparseRows(self) if self._is_sparse else self._make_search()

    def _make_search(self) -> Search:
        if is_compiled():
            from iknow.search.cpu.panels import PanelSearch

            return PanelSearch(self)
        return NumpyBlocks(self)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only what cannot be derived."""
        kept = ("points", "labels", "rows", "n_rows", "n_features", "n_classes")
        return {name: vars(self)[name] for name in kept}


@cache
def is_compiled() -> bool:
    """Whether search is compiled: the extra `fast` is installed and works."""
    if find_spec("numba") is None:
        return False
    try:
        with unforked():
            import iknow.search.cpu.cell_tree
            import iknow.search.cpu.deciding  # noqa: F401
    except Exception as error:  # numba refuses a new numpy, or its library fails to load
        warnings.warn(
            f"numba cannot be loaded, so search is not compiled and slower: {error}", stacklevel=2
        )
        return False
    return True
