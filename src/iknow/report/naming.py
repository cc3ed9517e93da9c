"""Naming: which classes the page knows by name, and by what number.

A page names all of a few classes. Of very many it names and numbers only those that occur in it: a
hundred thousand names that nothing uses would leave no room for samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Ints

ALL_NAMED = 1_000  # up to this many classes, all are named, whether they occur or not


@dataclass(frozen=True, eq=False)
class Named:
    """The classes in the page, as codes among all, ascending.

    classes: those that the model can say. true_classes: these, then true ones that it cannot.
    """

    classes: Ints
    true_classes: Ints


def find_named(columns: Mapping[str, NDArray[Any]], n_classes: int, n_true: int) -> Named:
    """The classes to name, out of `n_true`. The first `n_classes` are those a model can say."""
    if n_true <= ALL_NAMED:
        return Named(np.arange(n_classes), np.arange(n_true))
    found = np.unique(np.concatenate([columns[key].ravel() for key in _with_codes(columns)]))
    return Named(found[(found >= 0) & (found < n_classes)], found[found >= 0])


def rename_columns(columns: dict[str, NDArray[Any]], named: Named) -> dict[str, NDArray[Any]]:
    """The columns with classes as positions among the named ones; -1 stays -1."""
    renamed = {key: columns[key] for key in _with_codes(columns)}
    for key, codes in renamed.items():
        places = np.searchsorted(named.true_classes, codes)
        renamed[key] = np.where(codes < 0, -1, places).astype(np.int32)
    return columns | renamed


def _with_codes(columns: Mapping[str, NDArray[Any]]) -> list[str]:
    return [key for key in columns if key in ("belief", "truth") or key.endswith(".codes")]
