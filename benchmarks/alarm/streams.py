"""Streams: reference samples and what comes after them, drawn from a scene.

Each stream draws its own reference samples, so that false alarms are counted over both, as the
promise is. Without a change it has `QUIET` samples. With one it has `BEFORE` ordinary samples, then
changed ones: all of them for noise; one in ten of a new class, the others ordinary; or pictures
turned by `DEGREES` more with every sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.alarm.scenes import ANGLES, Scene, Scores, join

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
