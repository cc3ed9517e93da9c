"""The trade-off: how accurate the known predictions are at each coverage.

Every method has one knob, and each setting of it a coverage and an accuracy. For softmax it is the
threshold on the highest score; for a rule with only a radius to choose, a common factor on the
radii of all layers; for another what its `sweep` says, such as k. A rule with several parameters to
choose has no line.

For each possible coverage we take the strictest setting that has it: the highest threshold, the
largest k, the smallest ball, which extrapolates least. (Past a point a growing ball loses coverage
again, to overlap.) It is the largest ball if the rule says that its strictest is the widest. The
choice never uses the truth: a line is no better than what a user of the method would get.

Radii are tried at every factor where anything changes, so no coverage is missed. No method covers a
sample that is not finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from iknow.core.arrays import Bools, Floats
from iknow.core.assertion import Assertion
from iknow.core.neighborhood import Neighborhood, axes_of, make_rule, parameters_of, says
from iknow.core.quorum import ONE
from iknow.errors import InputError
from iknow.evaluation.metrics import evaluate
from iknow.explain.assessment import Assessment
from iknow.rules import RULES
from iknow.selection.exact.boxes import sample_boxes
from iknow.selection.exact.depth import profile

SOFTMAX = "softmax"


@dataclass(frozen=True, eq=False)
class TradeoffLine:
    """Accuracy against coverage for one method.

    Attributes:
        method: Name of the method.
        settings: Thresholds, numbers k, or factors on the radii, of shape (m,).
        coverage: Coverage at each setting, of shape (m,); strictly ascending from above 0.
        accuracy: Accuracy at each setting, of shape (m,).
        chosen: Coverage and accuracy of k and the radii as given; NaN accuracy if they cover
            nothing, None for softmax.
    """

    method: str
    settings: Floats
    coverage: Floats
    accuracy: Floats
    chosen: tuple[float, float] | None


@dataclass(frozen=True, eq=False)
class Tradeoff:
    """A line for each method; `tradeoff` makes it.

    Attributes:
        lines: One line per method.
        overall_accuracy: Accuracy if you believe everything.
        n_samples: Number of samples.
    """

    lines: tuple[TradeoffLine, ...]
    overall_accuracy: float
    n_samples: int

    def __getitem__(self, method: str) -> TradeoffLine:
        return next(line for line in self.lines if line.method == method)


def tradeoff(
    assessment: Assessment,
    y_true: Any,
    k: int = 5,
    radii: Mapping[str, float] | None = None,
    confidence: Any = None,
) -> Tradeoff:
    """Compute accuracy against coverage for softmax and every rule that has one knob.

    Every rule asks for the quorums of the assessment.

    Args:
        assessment: What `assess` returned for n samples.
        y_true: True labels of shape (n,).
        k: Number of neighbors, for rules that use it. The evidence must hold at least this many,
            and `Nearest` tries all that it holds.
        radii: Radii by layer, scaled together. Default: those of the assessment.
        confidence: What the threshold is on, of shape (n,). Default: the highest score, after a
            softmax if scores are not probabilities.

    Examples:
        >>> "softmax" in [line.method for line in tradeoff(a, y_true).lines]
        True
    """
    report = evaluate(assessment, y_true)  # refuses labels that do not fit
    right: Bools = assessment.belief == np.asarray(y_true)
    given = _check_radii(assessment, radii)
    if confidence is None:
        confidence = highest_probability(assessment.scores)
    confident = np.asarray(confidence, dtype=np.float64)
    if confident.shape != right.shape:
        raise InputError(
            f"confidence must hold one number for each of the {len(right)} assessed samples; "
            f"got shape {confident.shape}"
        )
    knobs = [r for r in RULES.values() if axes_of(r) == ("radius",) or says(r, "sweep")]
    plain = all(rule.quorum == ONE for rule in assessment.neighborhoods.values())
    rules = [r for r in knobs if plain or "quorum" in parameters_of(r)]
    lines = (
        _softmax_line(np.where(assessment.invalid, np.nan, confident), right),
        *(_rule_line(assessment, right, rule, given, k) for rule in rules),
    )
    return Tradeoff(lines, report.overall_accuracy, len(right))


def highest_probability(scores: Floats) -> Floats:
    """The highest probability in each row of scores, of shape (n, n_classes).

    NaN where a score is NaN or infinite; the other rows do not depend on such a row.
    """
    usable = (scores < np.inf).all(axis=1)  # also false for NaN
    given = scores[usable]
    rows_are_shares = (given >= 0).all() and np.allclose(given.sum(axis=1), 1, atol=1e-4)
    highest: Floats = np.full(len(scores), np.nan)
    if usable.any():
        highest[usable] = (given if rows_are_shares else softmax(given, axis=1)).max(axis=1)
    return highest


def _softmax_line(confidence: Floats, right: Bools) -> TradeoffLine:
    """Equal scores are covered together: no threshold separates them."""
    asked = ~np.isnan(confidence)
    # As the threshold falls, a sample is covered from its confidence on, for good.
    ends = np.full(asked.sum(), np.inf)
    falling, known, correct = _profiles(-confidence[asked], ends, right[asked])
    return _line(SOFTMAX, -falling[:-1], known[:-1], correct[:-1], len(right), None)


def _rule_line(
    assessment: Assessment,
    right: Bools,
    rule: type[Neighborhood],
    radii: Mapping[str, float],
    k: int,
) -> TradeoffLine:
    evidence, belief = assessment.weighed, assessment.belief_codes
    quorums = {layer: each.quorum for layer, each in assessment.neighborhoods.items()}
    swept = rule.sweep(evidence, belief) if says(rule, "sweep") else None
    if swept is not None:
        low, high = swept
        chosen = {layer: make_rule(rule, k, quorums[layer]) for layer in evidence}
    else:
        lows, highs = sample_boxes(evidence, belief, rule, k)
        each = np.array([radii[layer] for layer in evidence])
        # Radii that grow together: a sample is IK while every layer is pure.
        low, high = (lows / each).max(axis=1), (highs / each).min(axis=1)
        chosen = {
            layer: make_rule(rule, k, quorums[layer], radius=radius)
            for layer, radius in radii.items()
        }
    active = (low < high) & ~assessment.never_known
    factors, known, correct = _profiles(low[active], high[active], right[active])
    finite = np.isfinite(factors)
    order = slice(None, None, -1 if rule.strictest_is_widest else 1)  # the strictest first
    return _line(
        rule.__name__,
        np.abs(factors[finite][order]),  # a knob that is turned down comes negated
        known[finite][order],
        correct[finite][order],
        len(right),
        _outcome(assessment, chosen, right),
    )


def _profiles(low: Floats, high: Floats, right: Bools) -> tuple[Floats, Floats, Floats]:
    """Where intervals [low, high) begin or end, and how many and how many right are open there."""
    places, known = profile(low, high, np.ones(len(low)))
    _, correct = profile(low, high, right.astype(np.float64))
    return places, known, correct


def _line(
    method: str,
    settings: Floats,
    known: Floats,
    correct: Floats,
    n_samples: int,
    chosen: tuple[float, float] | None,
) -> TradeoffLine:
    """Of settings from strict to lax, those that cover more than any stricter one."""
    more = known > np.maximum.accumulate(np.append(0, known))[:-1]
    known, correct = known[more], correct[more]
    return TradeoffLine(method, settings[more], known / n_samples, correct / known, chosen)


def _outcome(
    assessment: Assessment, rules: Mapping[str, Neighborhood], right: Bools
) -> tuple[float, float]:
    known = assessment.under(rules).assertion == Assertion.IK
    return float(known.mean()), float(right[known].mean()) if known.any() else float("nan")


def _check_radii(assessment: Assessment, radii: Mapping[str, float] | None) -> dict[str, float]:
    if radii is None:
        rules = assessment.neighborhoods
        radii = {layer: getattr(rule, "radius", np.nan) for layer, rule in rules.items()}
    valid = all(np.ndim(radius) == 0 and 0 < radius < np.inf for radius in radii.values())
    if set(radii) != set(assessment.evidence) or not valid:
        raise InputError(
            f"a radius > 0 is needed for each of the layers {list(assessment.evidence)}: give "
            f"radii=..., by layer, or assess with a radius in every layer; got {dict(radii)}"
        )
    return {layer: float(radii[layer]) for layer in assessment.evidence}
