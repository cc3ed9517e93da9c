"""Indexes: training activations of one layer, ready to be searched.

Every index is a `RowIndex` with one way to search: from queries and a `Scope` to `Evidence`. What
is gathered and what is decided follow from it. A user's own index needs `gather` alone (`Index`),
and `CheckedIndex` makes a `RowIndex` of it. `iknow.testing.IndexContract` tests what it gathers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from iknow.core.arrays import Floats32, Ints
from iknow.core.decision import Decision, Scope, decide, scope_of
from iknow.core.evidence import Evidence, empty_evidence, pad_evidence
from iknow.core.rule import Rule
from iknow.core.text import as_whole
from iknow.errors import IknowError, InputError
from iknow.locking import cached_property
from iknow.pages import read_through

VALUES_CHECKED_AT_ONCE = 1 << 20  # masks of a whole index would take too much memory


@runtime_checkable
class Index(Protocol):
    """What a user's own index must do.

    Distances are computed in float64 from activations stored in float32. Queries are rounded to
    float32 too, so a training sample is at distance 0 from itself.
    """

    def gather(self, queries: Any, k: int = 0, per_class: int = 1) -> Evidence:
        """Gather evidence about `queries`, (n_queries, n_features), with `k` neighbor distances.

        It holds the `per_class` nearest samples of each class, ordered by distance and then by row
        number, padded with inf and -1 where a class has fewer.
        """


IndexFactory = Callable[..., Index]
"""An index type or a function, called with (activations, labels, n_classes, rows=...)."""


class RowIndex(ABC):
    """Activations of one layer with their class codes, checked and sorted by class.

    activations: of shape (n_rows, n_features), stored as float32. labels: class codes of shape
    (n_rows,). rows: numbers that identify the rows, of shape (n_rows,); their positions unless
    given. Arrays that are already float32 and sorted by class are used in place. An index with
    options takes them by name, and hands all other arguments on.
    """

    def __init__(
        self, activations: Any, labels: Any, n_classes: int, rows: Ints | None = None
    ) -> None:
        points = check_activations(activations)
        codes = check_labels(labels, len(points), n_classes)
        numbers = np.arange(len(points)) if rows is None else np.asarray(rows, dtype=np.int64)
        if numbers.shape != codes.shape:
            raise InputError(f"rows must have shape {codes.shape}; got {numbers.shape}")
        # Sorted by class and then by number, the first of equals is the lowest.
        same, higher = codes[1:] == codes[:-1], numbers[1:] > numbers[:-1]
        if not ((codes[1:] > codes[:-1]) | (same & higher)).all():
            order = np.lexsort((numbers, codes))
            points, codes, numbers = self._take(points, order), codes[order], numbers[order]
        self.points, self.labels, self.rows = points, codes, numbers
        self.n_rows, self.n_features = int(points.shape[0]), int(points.shape[1])
        self.n_classes = n_classes

    @abstractmethod
    def search(self, points: Floats32, scope: Scope) -> Evidence:
        """Evidence about checked queries, contiguous float32 of shape (n, n_features), n >= 1.

        Without a horizon: the `scope.per_class` nearest rows of every class and the `scope.any`
        nearest of all. With one, what lies beyond the cap (see `iknow.core.decision`) may be left
        out, as inf and -1, and `complete_below` says so. There is at least one row.
        """

    def gather(self, queries: Any, k: int = 0, per_class: int = 1) -> Evidence:
        """Gather evidence about `queries` with `k` and `per_class` neighbors, as `Index` says."""
        points = check_activations(queries, "queries", self.n_features)
        if type(per_class) is not int or per_class < 1:
            per_class = as_whole(per_class, "per_class", "be a whole number >= 1", 1)
        return self._search(np.ascontiguousarray(points), Scope(per_class, per_class, k))

    def search_part(self, points: Floats32, scope: Scope) -> Evidence:
        """What a part of the rows tells about `points`, for `scope`; inf for missing neighbors."""
        wanted = scope.in_full()._replace(any=min(scope.any, self.n_rows))
        return pad_evidence(self._search(points, wanted), self.n_classes, scope.any)

    def decides(self, rule: Rule) -> bool:
        """Whether `decide` is faster than `gather` for a `rule`, as far as it is known."""
        return False

    def decide(self, queries: Any, rule: Rule, belief: Ints) -> Decision:
        """Decide by a `rule` about `queries`, (n, n_features), and their `belief`, (n,)."""
        points = check_activations(queries, "queries", self.n_features)
        codes = np.ascontiguousarray(belief, dtype=np.int64)
        scope = scope_of(rule, codes)
        if scope.any > self.n_rows:  # a rule's usual number, and few training samples
            return decide(self.search_part(np.ascontiguousarray(points), scope), rule, codes)
        return decide(self._search(np.ascontiguousarray(points), scope), rule, codes)

    def warm_up(self) -> None:
        """Prepare and compile everything that searching needs, by searching for a stored row."""
        for k in range(min(2, self.n_rows + 1)):
            self.gather(self.points[:1], k)

    @cached_property
    def class_starts(self) -> Ints:
        """First row of each class and, last, the number of rows: shape (n_classes + 1,)."""
        return np.searchsorted(self.labels, np.arange(self.n_classes + 1)).astype(np.int64)

    def find(self, numbers: Ints) -> Ints:
        """The positions of rows, by their `numbers`, of shape (n,); -1 where there is none."""
        if not self.n_rows or not len(numbers):
            return np.full(len(numbers), -1)
        found = np.searchsorted(self.rows, numbers, sorter=self._by_number)
        places = self._by_number[np.minimum(found, self.n_rows - 1)]
        return np.where(self.rows[places] == numbers, places, -1)

    @cached_property
    def _by_number(self) -> Ints:
        return np.argsort(self.rows, kind="stable")

    def arrays(self, at: slice | Ints = slice(None)) -> tuple[Floats32, Ints, int, Ints]:
        """Points, labels, n_classes and row numbers, `at` some places: what makes an index."""
        return self.points[at], self.labels[at], self.n_classes, self.rows[at]

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only what cannot be derived."""
        kind, made = type(self), cached_property
        kept = [name for name in vars(self) if not isinstance(getattr(kind, name, None), made)]
        return {name: vars(self)[name] for name in kept if name != "_making"}  # its lock

    def _search(self, points: Floats32, scope: Scope) -> Evidence:
        if not 0 <= scope.any <= self.n_rows:
            check_k(scope.any, self.n_rows)
        if len(points) == 0 or self.n_rows == 0:
            return empty_evidence(len(points), self.n_classes, scope.any, scope.per_class)
        return self.search(points, scope)

    def _take(self, points: Floats32, order: Ints) -> Floats32:
        """The points in this order."""
        taken: Floats32 = points[order]
        return taken


class CheckedIndex(RowIndex):
    """The user's own index, what `make` returns, with cheap checks of its answers.

    They cover shapes, types, order and NaN, which no later comparison would reveal.
    """

    def __init__(self, *arrays: Any, make: IndexFactory, **named: Any) -> None:
        super().__init__(*arrays, **named)
        try:
            self._given = make(self.points, self.labels, self.n_classes, rows=self.rows)
        except IknowError:
            raise
        except Exception as error:
            raise InputError(
                "your index could not be made: search(activations, labels, n_classes, rows=rows) "
                f"raised {type(error).__name__}: {error}"
            ) from error
        self._name = type(self._given).__name__
        if not isinstance(self._given, Index):
            raise InputError(
                "search must make an iknow.search.index.Index, with a method gather(queries, k, "
                f"per_class); it made {self._name}"
            )

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        """Everything that `scope` may need, gathered and checked, about `points`."""
        k, per_class = scope.any, scope.per_class
        found = self._given.gather(points, k, per_class)
        if not isinstance(found, Evidence):
            raise InputError(f"gather of {self._name} must return Evidence; got {type(found)}")
        sizes = *found.class_distances.shape, found.n_neighbors, found.per_class
        expected = len(points), self.n_classes, k, per_class
        if sizes != expected:
            raise InputError(
                f"gather of {self._name} must return evidence about {expected[0]} queries and "
                f"{expected[1]} classes with k={k} neighbor distances and the per_class={per_class}"
                f" nearest samples of each class; got {sizes}"
            )
        for distances in (found.distances, found.neighbor_distances):
            if distances.dtype != np.float64 or np.isnan(distances).any():
                raise InputError(f"distances of {self._name} must be float64 and never NaN")
        if found.rows.dtype.kind not in "iu":
            raise InputError(f"rows of {self._name} must be row numbers")
        if (found.distances[:, :, 1:] < found.distances[:, :, :-1]).any():
            raise InputError(f"distances of {self._name} to each class must ascend")
        return found


def check_activations(
    activations: Any, what: str = "activations", n_features: int | None = None
) -> Floats32:
    """Activations as a finite float32 array of shape (n, n_features)."""
    array = np.asarray(activations)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{what} must be real numbers; got dtype {array.dtype}")
    if array.ndim != 2:
        raise InputError(f"{what} must have shape (n, n_features); got {array.shape}")
    if array.shape[1] == 0:
        raise InputError(f"{what} must have at least one feature; got shape {array.shape}")
    if n_features not in (None, found := array.shape[1]):
        raise InputError(f"{what} must have {n_features} features as the index has; got {found}")
    rounded = array
    if array.dtype != np.float32:
        with np.errstate(over="ignore"):  # an overflow becomes inf and is reported below
            rounded = array.astype(np.float32)
    step = max(1, VALUES_CHECKED_AT_ONCE // rounded.shape[1])
    for part in (rounded,) if len(rounded) <= step else read_through(rounded, step):
        if not np.isfinite(part).all():
            parts = read_through(rounded, step)
            bad = np.concatenate([~np.isfinite(each).all(axis=1) for each in parts])
            raise InputError(
                f"{what} must be finite in float32; row {int(bad.argmax())} is not "
                f"({int(bad.sum())} such rows): remove or repair them"
            )
    return rounded


def check_labels(labels: Any, n_rows: int, n_classes: int) -> Ints:
    """Class codes as an int64 array of shape (n_rows,), each in 0..n_classes-1."""
    codes = np.asarray(labels)
    if codes.shape != (n_rows,):
        raise InputError(f"labels must have shape ({n_rows},), one per row; got {codes.shape}")
    if codes.dtype.kind not in "iu":
        raise InputError(f"labels must be integer class codes; got dtype {codes.dtype}")
    if n_rows and not (codes.min() >= 0 and codes.max() < n_classes):
        raise InputError(
            f"labels must be class codes from 0 to {n_classes - 1}; "
            f"got {codes.min()} to {codes.max()}"
        )
    return codes.astype(np.int64, copy=False)


def check_k(k: int, n_rows: int) -> None:
    """Check that the index holds k neighbors."""
    if k < 0:
        raise InputError(f"k must be >= 0; got {k}")
    if k > n_rows:
        raise InputError(f"k={k} neighbors were asked for but the index holds {n_rows} samples")
