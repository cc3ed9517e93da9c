"""Deadline: when a search must hand over what it has found so far."""

from __future__ import annotations

import time
from numbers import Real
from typing import Any

from iknow.errors import InputError


class OutOfTimeError(Exception):
    """A deadline passed in the middle of something."""


class Deadline:
    """A moment some seconds from now."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds until then, 0 when it is over."""
        return max(0.0, self._end - time.monotonic())

    @property
    def is_over(self) -> bool:
        return self.left() == 0

    def check(self) -> None:
        """Raise OutOfTimeError when it is over."""
        if self.is_over:
            raise OutOfTimeError


def check_time_limit(seconds: Any) -> None:
    """A time limit must be a number of seconds, not negative; inf for none."""
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not float(seconds) >= 0:
        raise InputError(f"time_limit must be a number of seconds >= 0; got {seconds!r}")
