"""The rows of an index after changes, as one training set, and where they are by their numbers.

Both are objects of their own, apart from the index that they belong to: whoever collects all rows,
to save or to fold them, holds no lock that a search waits for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats32, Ints
from iknow.locking import cached_property
from iknow.search.stored import StoredRows


class JoinedRows:
    """The rows of a base but for those that are gone, and others, sorted as in every index.

    base: an index. gone: positions of rows in it, ascending. added: an index of the others.
    """

    def __init__(self, base: StoredRows, gone: Ints, added: StoredRows) -> None:
        self._base, self._gone, self._added = base, gone, added

    @cached_property
    def points(self) -> Floats32:
        points: Floats32 = self._join("points")[self._order]
        return points

    @cached_property
    def labels(self) -> Ints:
        labels: Ints = self._join("labels")[self._order]
        return labels

    @cached_property
    def rows(self) -> Ints:
        rows: Ints = self._join("rows")[self._order]
        return rows

    @cached_property
    def _order(self) -> Ints:
        return np.lexsort((self._join("rows"), self._join("labels")))

    def _join(self, name: str) -> Any:
        left = np.delete(getattr(self._base, name), self._gone, axis=0)
        return np.concatenate([left, getattr(self._added, name)])


class Places:
    """Where the rows of an index are, by their numbers."""

    def __init__(self, rows: Ints) -> None:
        self._rows = rows

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self._rows, kind="stable")

    def find(self, numbers: Ints) -> Ints:
        """The positions of rows, of shape (n,); -1 where there is none."""
        if not len(self._rows) or not len(numbers):
            return np.full(len(numbers), -1)
        found = np.searchsorted(self._rows, numbers, sorter=self._order)
        places = self._order[np.minimum(found, len(self._rows) - 1)]
        return np.where(self._rows[places] == numbers, places, -1)
