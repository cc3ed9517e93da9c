"""Memory of this process, as the system counts it.

On Linux the system's own peak can be reset; if it cannot, a thread samples the resident set every
millisecond. Other systems report only the peak of the whole process, so there we measure the growth
of that peak.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")
STATM = Path("/proc/self/statm")
SET_PEAK_BACK = "5"
EVERY_S = 0.001


def peak_growth(work: Callable[[], Any]) -> tuple[Any, int]:
    """The result of a call, and by how many bytes memory grew at its peak."""
    _release()
    if not STATM.exists():
        before = _lifelong_peak()
        result = work()
        return result, _lifelong_peak() - before
    try:
        CLEAR.write_text(SET_PEAK_BACK)
    except OSError:
        return _sampled(work)
    before = resident()
    result = work()
    return result, max(0, _from_status("VmHWM") - before)


def resident() -> int:
    """Bytes of memory that this process holds now; 0 if unknown."""
    if not STATM.exists():
        return 0
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _sampled(work: Callable[[], Any]) -> tuple[Any, int]:
    before = peak = resident()
    done = threading.Event()

    def look() -> None:
        nonlocal peak
        while not done.wait(EVERY_S):
            peak = max(peak, resident())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        result = work()
    finally:
        peak = max(peak, resident())
        done.set()
        thread.join()
    return result, peak - before


def _from_status(name: str) -> int:
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return resident()


def _lifelong_peak() -> int:
    # Imported here because Windows does not have it.
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _release() -> None:
    """Return free memory to the system: memory kept for later would hide what a call needs."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return  # not glibc
