"""StoredRows: activations of one layer with their class codes, checked and sorted by class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats32, Ints
from iknow.core.decision import Decision, decide
from iknow.core.evidence import Evidence
from iknow.core.neighborhood import Neighborhood
from iknow.core.support import find_support
from iknow.errors import InputError
from iknow.locking import cached_property
from iknow.search.index import check_activations, check_labels, check_width


class StoredRows(ABC):
    """The rows that every index keeps in memory, or in a mapped file.

    activations: of shape (n_rows, n_features), stored as float32. labels: class codes of shape
    (n_rows,). rows: numbers that identify the rows, of shape (n_rows,); their positions unless
    given. Arrays that are already float32 and sorted by class are used in place.
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
        self.points: Floats32 = points
        self.labels: Ints = codes
        self.rows: Ints = numbers
        self.n_rows, self.n_features = int(points.shape[0]), int(points.shape[1])
        self.n_classes = n_classes

    @abstractmethod
    def gather(self, queries: Any, k: int = 0, per_class: int = 1) -> Evidence:
        """Evidence about queries of shape (n_queries, n_features).

        k: neighbor distances. per_class: the nearest samples of each class.
        """

    def find_support(
        self, queries: Any, neighborhood: Neighborhood, belief: Ints | None = None
    ) -> Bools:
        """Find the classes in `neighborhood`: a mask (n_queries, n_classes) for `queries`.

        `belief`: class codes of shape (n_queries,), for rules that depend on it.
        """
        evidence = self.gather(queries, neighborhood.n_neighbors, max(neighborhood.quorum))
        return find_support(evidence, neighborhood, belief)

    def decides(self, neighborhood: Neighborhood) -> bool:
        """Whether `decide` is faster than `gather` for a `neighborhood`, as far as it is known."""
        return False

    def decide(self, queries: Any, neighborhood: Neighborhood, belief: Ints) -> Decision:
        """Decide by a `neighborhood` about `queries`, (n, n_features), and their `belief`, (n,)."""
        evidence = self.gather(queries, neighborhood.n_neighbors, max(neighborhood.quorum))
        return decide(evidence, neighborhood, belief)

    def warm_up(self) -> None:
        """Prepare and compile everything that searching needs, by searching for a stored row."""
        for k in range(min(2, self.n_rows + 1)):
            self.gather(self.points[:1], k)

    def _take(self, points: Floats32, order: Ints) -> Floats32:
        """The points in this order."""
        taken: Floats32 = points[order]
        return taken

    def _check(self, queries: Any) -> Floats32:
        """Queries as a contiguous float32 array of shape (n_queries, n_features)."""
        points = np.ascontiguousarray(check_activations(queries, "queries"))
        check_width(points, self.n_features)
        return points

    @cached_property
    def class_starts(self) -> Ints:
        """First row of each class and, last, the number of rows: shape (n_classes + 1,)."""
        return np.searchsorted(self.labels, np.arange(self.n_classes + 1)).astype(np.int64)
