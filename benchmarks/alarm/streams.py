"""Streams: reference samples and what comes after them, drawn from a scene.

Each stream draws its own reference samples, so that false alarms are counted over both, as the
promise is. Without a change it has `QUIET` samples. With one it has `BEFORE` ordinary samples, then
changed ones: all of them for noise; one in ten of a new class, the others ordinary; or pictures
turned by `DEGREES` more with every sample.

iknow's alarm runs on them here; its peers are asked by `peers`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.alarm.scenes import ANGLES, Scene, Scores, join
from iknow.core.arrays import Floats
from iknow.selection import make_watch
from iknow.serve.monitor import DriftAlarm

REFERENCE = 5_000
"""Reference samples at most; fewer where too few would be left for a quiet stream."""

QUIET = 4_000
BEFORE = 500
AFTER = 3_500
NEW = 0.1
DEGREES = 0.02
NO_CHANGE, NOISE, NEW_CLASS, ROTATION = "no change", "noise", "new class", "rotation"


@dataclass(frozen=True, eq=False)
class Stream:
    """change: when it comes, a number of samples; None for never."""

    reference: Scores
    samples: Scores
    change: int | None


def kinds_of(scene: Scene) -> tuple[str, ...]:
    kinds = (NO_CHANGE, *scene.changed)
    return (*kinds, ROTATION) if scene.rotated else kinds


def draw_stream(scene: Scene, kind: str, seed: int) -> Stream:
    """A stream of a kind; the same seed draws the same reference."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(scene.ordinary))
    n = min(REFERENCE, len(order) - QUIET)
    reference, fresh = scene.ordinary[order[:n]], scene.ordinary[order[n:]]
    if kind == NO_CHANGE:
        return Stream(reference, fresh[:QUIET], None)
    if kind == ROTATION:
        after = _turn(scene, rng)
    else:
        changed = scene.changed[kind]
        picked = changed[rng.integers(len(changed), size=AFTER)]
        after = picked
        if kind == NEW_CLASS:
            rows = np.where(rng.random(AFTER) < NEW, np.arange(AFTER), AFTER + np.arange(AFTER))
            after = join([picked, fresh[BEFORE : BEFORE + AFTER]])[rows]
    return Stream(reference, join([fresh[:BEFORE], after]), BEFORE)


def _turn(scene: Scene, rng: np.random.Generator) -> Scores:
    angles = np.rint(DEGREES * np.arange(1, AFTER + 1)).astype(int).clip(ANGLES[0], ANGLES[-1])
    each = len(scene.rotated[0])
    return join(list(scene.rotated))[angles * each + rng.integers(each, size=AFTER)]


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
