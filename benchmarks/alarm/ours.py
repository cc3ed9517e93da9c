"""iknow's alarm on a stream."""

from __future__ import annotations

import numpy as np

from benchmarks.alarm.scenes import Scene
from benchmarks.alarm.streams import Stream
from iknow.core.arrays import Floats
from iknow.selection import make_watch
from iknow.serve.monitor import DriftAlarm

RATE = 0.01
STEP = 20
OURS, ALONE = "iknow", "iknow, no reference"


def make_alarm(scene: Scene, stream: Stream, seed: int, *, alone: bool = False) -> DriftAlarm:
    known = stream.reference
    watch = make_watch(known.level, known.belief, known.layers, scene.layers)
    return DriftAlarm(None if alone else watch, scene.classes, scene.layers, RATE, seed)


def ring(scene: Scene, stream: Stream, seed: int, *, alone: bool = False) -> int | None:
    """The number of the sample at which any detector rings first; None if none does."""
    alarm, samples = make_alarm(scene, stream, seed, alone=alone), stream.samples
    for first in range(0, len(samples), 250):
        part = samples[first : first + 250]
        if found := alarm.update(part.level, part.belief, part.layers):
            return min(each.sample for each in found)
    return None


def trace(scene: Scene, stream: Stream, seed: int) -> Floats:
    """The evidence of the detector nearest to ringing as a part of what it takes, after every
    `STEP` samples: the logarithm to base 10, of shape (n,).
    """
    alarm, found = make_alarm(scene, stream, seed), []
    for first in range(0, len(stream.samples), STEP):
        part = stream.samples[first : first + STEP]
        alarm.update(part.level, part.belief, part.layers)
        detectors = alarm.report().detectors
        found.append(max(d.log2_evidence - np.log2(d.threshold) for d in detectors))
    evidence: Floats = np.array(found) * np.log10(2)
    return evidence
