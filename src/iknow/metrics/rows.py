"""Rows: activations in float64, some rows at a time, and their ℓp norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Floats32
from iknow.errors import InputError

NUMBERS_AT_ONCE = 1 << 22  # how many to hold in float64 at a time


def in_parts(
    change: Callable[[Floats], Floats], activations: Any, n_features: int | None = None
) -> Floats | Floats32:
    """What `change` makes of activations in float64, of shape (n, m); of float32, in float32.

    It sees some rows at a time, so that copies in float64 stay small.
    """
    values = np.asarray(activations)
    if values.ndim != 2 or n_features not in (None, values.shape[1]):
        columns = "n_features" if n_features is None else n_features
        made_for = "" if n_features is None else " as the metric was made for"
        raise InputError(
            f"activations must have shape (n, {columns}){made_for}; got {values.shape}"
        )
    step = max(1, NUMBERS_AT_ONCE // max(1, values.shape[1]))
    first = change(values[:step].astype(np.float64))
    kind: Any = np.float32 if values.dtype == np.float32 else np.float64
    with np.errstate(over="ignore"):  # an index reports what is not finite in float32
        if len(values) <= step:
            return first.astype(kind, order="C", copy=False)
        points = np.empty((len(values), first.shape[1]), dtype=kind)
        points[:step] = first
        for start in range(step, len(values), step):
            part = slice(start, start + step)
            points[part] = change(values[part].astype(np.float64))
    return points


def lp_norms(differences: Floats, p: float) -> Floats:
    """ℓp norms of the rows, scaled by the largest entry so that no power overflows.

    For p = 0 the number of entries other than 0.
    """
    if p == 0:
        counts: Floats = np.count_nonzero(differences, axis=1).astype(np.float64)
        return counts
    sizes = np.abs(differences)
    largest: Floats = sizes.max(axis=1, initial=0.0)
    if math.isinf(p):
        return largest
    scaled = sizes / np.where(largest > 0, largest, 1.0)[:, None]
    norms: Floats = largest * np.power(scaled, p).sum(axis=1) ** (1 / p)
    return norms
