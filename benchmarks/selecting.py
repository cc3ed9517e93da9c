"""What tuning costs: exact selection with its proof, next to Bayesian optimization and sorting."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.mnist import FIRST_LAYER, Digits
from benchmarks.racing import best_of, timed
from benchmarks.recording import Recorder
from benchmarks.records import Quantity
from iknow.classifier.estimator import EpistemicClassifier
from iknow.errors import MissingExtraError
from iknow.models import PrecomputedModel
from iknow.rules import Ball, BallElseNearest, BallWithNearest
from iknow.selection import Goal, Validation, select
from iknow.selection.exact.boxes import sample_boxes
from iknow.selection.exact.depth import deepest_point

K = 5
REPEATS = 3
EXACT, BAYES, SORT = "exact", "Bayes, 50 trials", "np.sort of the ends"


def measure_selection(digits: Digits, sizes: tuple[int, ...], record: Recorder) -> None:
    """`tune` as a whole, then selection alone by rule and number of layers, then its growth."""
    _measure_tune(digits, record)
    layers = (FIRST_LAYER, *digits.layers)
    evidence = digits.evidence(layers, K)
    for some in (layers[2:], layers[1:], layers):
        for rule in (Ball, BallElseNearest, BallWithNearest):
            part = {name: evidence[name] for name in some}
            n = f"{len(some)} layer{'s' if len(some) > 1 else ''}"
            _compare(f"{rule.__name__}, {n}", part, rule, digits, record)
    _measure_growth(digits, sizes, record)


def _measure_tune(digits: Digits, record: Recorder) -> None:
    record.say("selection: tune on precomputed outputs")
    n = len(digits.val.y_true)
    what = f"two layers, {n:,} validation samples"
    train = (digits.train.outputs.scores, _two(digits, digits.train.outputs.activations))
    val = (digits.val.outputs.scores, _two(digits, digits.val.outputs.activations))
    classifier = EpistemicClassifier(PrecomputedModel(), progress=False)
    classifier.fit(train, digits.train.y_true)
    whole = best_of(lambda: classifier.tune(val, digits.val.y_true), REPEATS)
    record.add(Quantity("tuning", "mnist", what, "tune, with the search", 1e3 * whole, "ms"))
    belief, y_true = digits.val.outputs.belief, digits.val.y_true
    known = Validation(digits.evidence(digits.layers), belief, y_true)
    alone = best_of(lambda: select(Goal(), known, Ball), REPEATS)
    record.add(Quantity("tuning", "mnist", what, "select, from evidence", 1e3 * alone, "ms"))


def _two(digits: Digits, activations: Any) -> dict[str, Any]:
    return {name: activations[name] for name in digits.layers}


def _compare(
    what: str, evidence: dict[str, Any], rule: Any, digits: Digits, record: Recorder
) -> None:
    record.say(f"selection: {what}")
    validation = Validation(evidence, digits.val.outputs.belief, digits.val.y_true)
    exact, seconds = timed(lambda: select(Goal(k=K), validation, rule))
    proof = "proven" if exact.optimal else f"gap {exact.gap:.4f}"
    note = f"exact {exact.coverage:.4f}, {proof}"
    record.add(Quantity("selection", "mnist", what, EXACT, 1e3 * seconds, "ms", note))
    try:
        bayes, seconds = timed(lambda: select(Goal("bayes", k=K), validation, rule))
    except MissingExtraError as error:
        record.leave_out("mnist", what, BAYES, str(error))
        return
    note = f"Bayes {bayes.coverage:.4f}"
    record.add(Quantity("selection", "mnist", what, BAYES, 1e3 * seconds, "ms", note))


def _measure_growth(digits: Digits, sizes: tuple[int, ...], record: Recorder) -> None:
    """Two layers, samples redrawn with a jitter, next to sorting the ends of their boxes."""
    belief = digits.val.outputs.belief
    lows, highs = sample_boxes(digits.evidence(digits.layers), belief, Ball)
    rng = np.random.default_rng(0)
    for size in sizes:
        record.say(f"selection: {size:,} samples")
        drawn = rng.integers(len(lows), size=size)
        low = lows[drawn] * rng.uniform(0.95, 1.05, (size, 2))
        high = highs[drawn] * rng.uniform(0.95, 1.05, (size, 2))
        ends, weights = np.concatenate([low, high]), np.ones(size)
        what = f"two layers, {size:,} samples"
        exact = best_of(partial(deepest_point, low, high, weights), REPEATS)
        sort = best_of(partial(np.sort, ends, axis=0), REPEATS)
        record.add(Quantity("growth", "mnist", what, EXACT, 1e3 * exact, "ms"))
        record.add(Quantity("growth", "mnist", what, SORT, 1e3 * sort, "ms"))
