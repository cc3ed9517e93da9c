"""CondensedLayer: a layer whose index keeps some rows in full and codes of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from iknow.core.arrays import Ints
from iknow.errors import InputError
from iknow.geometry import Metric
from iknow.locking import cached_property
from iknow.search.condensed.codes import Codes
from iknow.search.condensed.index import CondensedIndex
from iknow.search.index import IndexFactory
from iknow.search.layer import LayerIndex
from iknow.search.stored import StoredRows


class CondensedLayer(LayerIndex):
    """A `LayerIndex` of the rows kept in full, with the codes of the others."""

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
        codes: Codes,
    ) -> None:
        super().__init__(points, labels, n_classes, rows, metric, device, check, index)
        self.codes = codes

    @property
    def all_labels(self) -> Ints:
        """Class codes of the rows in full and of the others."""
        return np.concatenate([self.labels, self.codes.labels])

    def check_changes(self) -> NoReturn:
        """Refuse: what a change does to the rows that are not in full is not known."""
        raise InputError(
            "the evidence of a condensed classifier cannot change: change the full one, and "
            "condense that again"
        )

    @cached_property
    def _built(self) -> StoredRows:
        points, labels, rows = self._arrays
        index = CondensedIndex(
            points, labels, self.n_classes, rows, codes=self.codes, make=self._make
        )
        self._arrays = index.points, index.labels, index.rows  # sorted by now
        return index

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only what cannot be derived, and nothing that `check` refuses."""
        plain = super().__reduce__()[1]
        return _restore, (plain, self.codes)


def _restore(arguments: tuple[Any, ...], codes: Codes) -> CondensedLayer:
    return CondensedLayer(*arguments, codes=codes)
