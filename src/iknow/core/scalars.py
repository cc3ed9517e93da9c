"""Scalars: one number or one flag that a user gave, checked to be one.

An array has no truth value, text is no limit, and True is no count. What is not refused here would
fail later, or be taken for something else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np

from iknow.core.text import shown
from iknow.errors import InputError

NO_NUMBERS = (bool, np.bool_, np.timedelta64)
"""Types of what counts as a whole number somewhere, and is none here."""


def as_flag(value: Any, what: str) -> bool:
    """True or False, also numpy's."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{what} must be True or False; got {shown(value)}")
    return bool(value)


def as_whole(value: Any, what: str, do: str) -> int:
    """A whole number, of any size. do: what it must, in words for the error."""
    if not isinstance(value, Integral) or isinstance(value, NO_NUMBERS):
        raise InputError(f"{what} must {do}; got {shown(value)}")
    return int(value)


def as_real(
    value: Any, what: str, do: str, fits: Callable[[float], bool] = lambda _: True
) -> float:
    """A real number that float64 can hold, and that fits. do: as for `as_whole`."""
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, NO_NUMBERS):
        try:
            number = float(value)
        except OverflowError:  # a whole number, or a fraction, that is too large
            number = math.nan
    if math.isnan(number) or not fits(number):
        raise InputError(f"{what} must {do}; got {shown(value)}")
    return number
