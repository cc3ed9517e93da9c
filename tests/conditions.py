"""Waiting for a condition, as long as it takes and no longer; and one of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def wait_until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    """Return as soon as a condition holds; fail if it does not within some seconds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.01)


def is_running(process: int) -> bool:
    """Whether a process, by its number, has not ended; one that nobody waited for has."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
