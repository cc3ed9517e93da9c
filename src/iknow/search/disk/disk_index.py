"""DiskIndex: exact search among rows that do not fit into memory.

The rows lie in a mapped file, sorted by class. Coded as bytes, in blocks of close rows, they lie a
second time in a scratch file (`coded_rows`). Bounds from these rule out most blocks and most rows
(`search`), and only what is left is read and measured, in float64, as every index does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats32, Ints
from iknow.core.decision import Decision, Scope, decide_weighed
from iknow.core.evidence import Evidence
from iknow.core.quorum import truncated_evidence
from iknow.core.rule import Rule, promise_of
from iknow.core.text import as_whole
from iknow.errors import InputError
from iknow.locking import cached_property
from iknow.pages import find_map, release
from iknow.search.disk.coded_rows import USUAL_BLOCK, CodedRows
from iknow.search.disk.scratch import Folder, as_folder, write_rows
from iknow.search.disk.search import DiskSearch
from iknow.search.index import RowIndex

USUAL_MEMORY = 1 << 29
LEAST_MEMORY = 1 << 20
VALUES_WRITTEN_AT_ONCE = 1 << 20


class DiskIndex(RowIndex):
    """Activations of one layer with their class codes, on disk, searched in the Euclidean norm.

    A mapped array that is sorted by class, as in a large bundle, is used in place; others are
    written to disk first. In memory stay 20 bytes for each row, its label among them, and about one
    number in 32 of the activations.

    Args:
        activations: Of shape (n_rows, n_features).
        labels: Class codes of shape (n_rows,).
        n_classes: Number of classes.
        rows: Numbers that identify the rows, of shape (n_rows,). Default: their positions.
        memory: About how many bytes to use while building.
        folder: Where to keep the files, which vanish with the index; they take one byte for each
            number, and five if the activations are not mapped. Default: the system's temporary
            folder.
        block: Rows in a block, a power of two.

    Examples:
        >>> DiskIndex(rows, labels, n_classes=2).gather([[4.0]], k=1).class_distances
        array([[3., 1.]])
    """

    def __init__(
        self,
        activations: Any,
        labels: Any,
        n_classes: int,
        rows: Ints | None = None,
        *,
        memory: int = USUAL_MEMORY,
        folder: Folder = None,
        block: int = USUAL_BLOCK,
    ) -> None:
        self.memory, self.folder, self.block = _as_bytes(memory), as_folder(folder), _as_size(block)
        super().__init__(activations, labels, n_classes, rows)
        if find_map(self.points) is None:
            self.points = self._take(self.points, np.arange(self.n_rows))

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        """Everything about `points`, (n, n_features), that `scope` may need."""
        return self._coded.gather(points, scope.any, scope.per_class)

    def decides(self, rule: Rule) -> bool:
        """Whether `decide` is faster than `gather` for a `rule`, as far as it is known."""
        horizon = promise_of(rule, "horizon")
        return horizon is not None and horizon.is_finite and not horizon.k

    def decide(self, queries: Any, rule: Rule, belief: Ints) -> Decision:
        """Decide by a `rule` about `queries`, (n, n_features), and their `belief`, (n,)."""
        points, codes = self._check(queries), np.ascontiguousarray(belief, dtype=np.int64)
        if self.n_rows == 0 or len(points) == 0 or not self.decides(rule):
            return super().decide(points, rule, codes)
        quorum, horizon = rule.quorum, promise_of(rule, "horizon")
        distances, exemplars = self._coded.decide(points, codes, quorum, horizon)
        none = np.empty((len(codes), 0))
        weighed = truncated_evidence(distances, none, codes, quorum)
        return decide_weighed(weighed, rule, exemplars)

    @cached_property
    def _coded(self) -> DiskSearch:
        return DiskSearch(self, CodedRows(self, self.folder, self.memory, self.block))

    def _take(self, points: Floats32, order: Ints) -> Floats32:
        """The points in this order, in a file."""
        n, n_features = points.shape
        places = np.empty(n, dtype=np.int64)
        places[order] = np.arange(n)
        step = max(1, VALUES_WRITTEN_AT_ONCE // n_features)

        def pieces() -> Any:
            for start in range(0, n, step):
                yield points[start : start + step], places[start : start + step]
                release(points)

        return write_rows(self.folder, n, n_features, pieces())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the rows themselves; they are written to a file again."""
        options = {"memory": self.memory, "folder": self.folder, "block": self.block}
        arrays = np.array(self.points), self.labels, self.n_classes, self.rows
        return _restore, (type(self), arrays, options)


def _restore(kind: type[DiskIndex], arrays: tuple[Any, ...], options: dict[str, Any]) -> DiskIndex:
    return kind(*arrays, **options)


def _as_bytes(memory: object) -> int:
    wanted = f"be a whole number of bytes >= {LEAST_MEMORY:,}"
    number = as_whole(memory, "memory", wanted)
    if number < LEAST_MEMORY:
        raise InputError(f"memory must {wanted}; got {number:,}")
    return number


def _as_size(block: object) -> int:
    wanted = "be a power of two"
    number = as_whole(block, "block", wanted)
    if number < 1 or number & (number - 1):
        raise InputError(f"block must {wanted}; got {number:,}")
    return number
