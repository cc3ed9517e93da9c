"""Samples and layers: which of an assessment's are meant."""

from __future__ import annotations

from collections.abc import Collection
from numbers import Integral
from typing import Any

import numpy as np

from iknow.core.arrays import Ints
from iknow.core.text import NO_NUMBERS, names, shown
from iknow.errors import InputError

KINDS = (
    "samples are picked by a position, a slice, positions or a mask, such as a[0], a[:100], "
    "a[[3, 7]] or a[a.assertion == Assertion.IK]"
)


def pick_samples(samples: Any, n: int) -> slice | Ints:
    """Which of n samples are meant: a slice, or positions >= 0 of shape (m,), as numpy would."""
    if isinstance(samples, slice):
        try:
            samples.indices(n)
        except Exception as error:  # not whole numbers, or a step of 0
            raise InputError(f"{KINDS}; got {shown(samples)}: {error}") from error
        return samples
    if isinstance(samples, Integral) and not isinstance(samples, NO_NUMBERS):
        _check_within(samples, n)
        return slice(int(samples) % n, int(samples) % n + 1)
    try:
        given = np.asarray(None if isinstance(samples, tuple) else samples)  # a[0, 1] is a slip
    except Exception as error:  # ragged lists, or an object that refuses
        raise InputError(f"{KINDS}; got {shown(samples)}") from error
    if isinstance(samples, list) and not samples:
        return np.empty(0, dtype=np.int64)
    if given.ndim == 1 and given.dtype == bool:
        if len(given) != n:
            raise InputError(
                f"a mask must have a flag for each of the {n} samples; got {len(given)} flags"
            )
        return np.flatnonzero(given)
    if given.dtype.kind not in "iu" or given.ndim != 1:
        raise InputError(f"{KINDS}; got {shown(samples)}")
    for position in (given.min(), given.max()) if len(given) else ():
        _check_within(position, n)
    return given.astype(np.int64) % max(n, 1)


def _check_within(position: Any, n: int) -> None:
    if not -n <= position < n:
        raise InputError(
            f"sample {shown(int(position))} does not exist: the assessment holds {n} samples"
        )


def choose_layers(layers: Any, there: Collection[str]) -> list[str]:
    """The named layers, at least one; a single name may stand alone."""
    several = isinstance(layers, Collection) and not isinstance(layers, str)
    chosen = list(layers) if several and getattr(layers, "ndim", 1) == 1 else [layers]
    missing = [n for n in chosen if not isinstance(n, str) or n not in there]
    if missing or not chosen:
        raise InputError(
            f"there is evidence for the layers {names(there)}; asked for {names(missing)}"
        )
    return chosen
