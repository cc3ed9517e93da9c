"""Waiting for a condition, as long as it takes and no longer."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    """Return as soon as a condition holds; fail if it does not within some seconds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.01)
