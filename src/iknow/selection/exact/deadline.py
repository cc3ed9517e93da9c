"""Deadline: when a search must hand over what it has found so far."""

from __future__ import annotations

import time

from iknow.core.text import as_real


class OutOfTimeError(Exception):
    """A deadline passed in the middle of a search."""


class Deadline:
    """A moment some seconds from now."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds until then; 0 when it is over."""
        return max(0.0, self._end - time.monotonic())

    @property
    def is_over(self) -> bool:
        return self.left() == 0

    def check(self) -> None:
        if self.is_over:
            raise OutOfTimeError


def check_time_limit(seconds: object) -> None:
    """Check that a time limit is a number of seconds; inf for none."""
    as_real(seconds, "time_limit", "be a number of seconds >= 0", lambda number: number >= 0)
