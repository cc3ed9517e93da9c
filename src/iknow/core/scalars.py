"""Scalars: checks that an argument is one number or one flag, as an array, text or True in place of
a number would fail later or be taken for something else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np

from iknow.core.text import shown
from iknow.errors import InputError

NO_NUMBERS = (bool, np.bool_, np.timedelta64)  # though Python or numpy count them as numbers


def as_flag(value: Any, what: str) -> bool:
    """A Python or numpy boolean, as a bool."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{what} must be True or False; got {shown(value)}")
    return bool(value)


def as_whole(value: Any, what: str, do: str) -> int:
    """A whole number of any size. do: completes "must ..." in the error message."""
    if not isinstance(value, Integral) or isinstance(value, NO_NUMBERS):
        raise InputError(f"{what} must {do}; got {shown(value)}")
    return int(value)


def as_real(
    value: Any, what: str, do: str, fits: Callable[[float], bool] = lambda _: True
) -> float:
    """A real number that fits in float64 and satisfies `fits`. do: as in `as_whole`."""
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, NO_NUMBERS):
        try:
            number = float(value)
        except OverflowError:  # an integer or a fraction that is too large
            number = math.nan
    if math.isnan(number) or not fits(number):
        raise InputError(f"{what} must {do}; got {shown(value)}")
    return number
