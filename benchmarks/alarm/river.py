"""river's detectors on a number per sample, as they come; they take no reference, so the reference
samples come first.

Each is reported once: river starts a detector anew after it rang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import numpy as np
from river import drift

from iknow.core.arrays import Floats

VERSION = f"river {version('river')}"
DETECTORS: dict[str, tuple[Callable[[], Any], int]] = {
    "river ADWIN": (drift.ADWIN, 5_000),
    "river PageHinkley": (drift.PageHinkley, 5_000),
    "river KSWIN": (lambda: drift.KSWIN(seed=0), 500),  # slow, and it remembers 100
}
"""Detectors with river's own settings, and how many reference samples come first at most."""


def ring(reference: Floats, stream: Floats) -> Iterator[tuple[str, int | None]]:
    """For each detector, the sample of the stream at which it rings first."""
    for name, (make, most) in DETECTORS.items():
        detector, first, before = make(), None, reference[-most:]
        for i, value in enumerate(np.concatenate([before, stream]).tolist()):
            detector.update(value)
            if detector.drift_detected and i >= len(before):
                first = i - len(before) + 1
                break
        yield name, first
