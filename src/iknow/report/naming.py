"""Naming: which classes the page knows by name, and by what number.

A page about a few classes names all of them. Of very many it names those that occur in it, and its
columns count these alone: a hundred thousand names, most of them of nothing that is shown, would
leave no room for samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Ints, Labels
from iknow.core.text import name

ALL_NAMED = 1_000
"""Up to this many classes, all are named, whether they occur or not."""


@dataclass(frozen=True, eq=False)
class Named:
    """The classes in the page, as codes among all, ascending.

    classes: those that a model can say. unknown: true ones beyond these, which it cannot.
    """

    classes: Ints
    unknown: Ints

    def texts(self, labels: Labels) -> list[str]:
        """The names of the classes, given the labels of all."""
        return [name(label) for label in labels[self.classes].tolist()]

    def true_texts(self, labels: Labels) -> list[str]:
        """The names of all that is true of some sample, given the labels of all."""
        return [name(label) for label in labels[self._all].tolist()]

    def renumber(self, codes: NDArray[Any]) -> NDArray[np.int32]:
        """Codes among all classes as places among the named ones; -1 stays -1."""
        places = np.searchsorted(self._all, codes)
        return np.where(codes < 0, -1, places).astype(np.int32)

    @property
    def _all(self) -> Ints:
        return np.concatenate([self.classes, self.unknown])


def find_named(
    codes: list[NDArray[Any]], y_true: Ints | None, n_classes: int, n_true: int
) -> Named:
    """The classes to name. codes: of the page's beliefs and evidence; y_true: its true codes."""
    if max(n_classes, n_true) <= ALL_NAMED:
        return Named(np.arange(n_classes), np.arange(n_classes, n_true))
    found = np.unique(np.concatenate([np.ravel(each) for each in codes]))
    true = np.empty(0, dtype=np.int64) if y_true is None else np.unique(y_true)
    classes = np.union1d(found[found >= 0], true[true < n_classes]).astype(np.int64)
    return Named(classes, true[true >= n_classes].astype(np.int64))


def rename_columns(columns: dict[str, NDArray[Any]], named: Named) -> dict[str, NDArray[Any]]:
    """The columns with classes by their places among the named ones."""
    holds_codes = [key for key in columns if key in ("belief", "truth") or key.endswith(".codes")]
    return columns | {key: named.renumber(columns[key]) for key in holds_codes}
