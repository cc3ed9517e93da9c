"""Goals: the method that serves what a user asks tuning for."""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Floats, Ints, Labels
from iknow.core.rule import Rule
from iknow.errors import InputError
from iknow.selection.candidates import Part
from iknow.selection.coverage import check_validation, select
from iknow.selection.goal import Goal
from iknow.selection.guarantee import certify, split
from iknow.selection.level_guarantee import certify_level, choose_usual
from iknow.selection.levels import limit_false_alarm, match_level
from iknow.selection.matching import match_coverage
from iknow.selection.selection import Selection, ValidationEvidence


def choose(
    goal: Goal,
    evidence: ValidationEvidence,
    belief: Ints,
    y_true: Ints | None,
    rule: type[Rule],
    classes: Labels | None = None,
    *,
    confidence: Floats | None = None,
    from_probabilities: bool = False,
    reference: Part | None = None,
) -> Selection:
    """Choose the neighborhoods that serve a goal on validation data.

    Args:
        goal: What to tune for.
        evidence: Evidence about n validation samples, by layer.
        belief: What the model believes, as class codes of shape (n,).
        y_true: The truth, as class codes of shape (n,); None if the goal needs no labels.
        rule: The rule whose parameters to choose, such as `Ball`.
        classes: Labels of shape (n_classes,), to name classes in certificates and errors.
        confidence: The model's, of shape (n,), as one more voice that levels may hear.
        from_probabilities: Whether it was found from probabilities.
        reference: Further samples, without labels, that say what is ordinary.

    Examples:
        >>> choose(Goal(coverage=0.8), evidence, belief, y_true, Nearest).neighborhoods["input"]
        Nearest(k=6)
    """
    if rule.by_level and goal.method == "exact":
        whole = Part(evidence, belief, y_true, confidence, from_probabilities)
        return _choose_level(goal, whole, reference, classes)
    if reference is not None or goal.false_alarm is not None:
        raise InputError(
            f"false_alarm and reference need a rule with levels, such as RelativeBall; got "
            f"{rule.__name__}"
        )
    if y_true is None:
        raise InputError(f"tuning {rule.__name__} needs labels: give y too")
    data = evidence, belief, y_true, rule
    if goal.coverage is not None:
        return match_coverage(*data, goal.coverage)
    if goal.accuracy is not None:
        if not isinstance(goal.k, (int, np.integer, type(None))):
            raise InputError(f"a guarantee needs one k, not several; got {goal.k}")
        return certify(
            *data,
            accuracy=goal.accuracy,
            confidence=goal.confidence,
            each_class=goal.each_class,
            classes=classes,
            k=None if goal.k is None else int(goal.k),
            time_limit=goal.time_limit,
            random_state=goal.random_state,
        )
    return select(
        *data,
        method=goal.method,
        k=goal.k,
        time_limit=goal.time_limit,
        random_state=goal.random_state,
    )


def _choose_level(
    goal: Goal, whole: Part, reference: Part | None, classes: Labels | None
) -> Selection:
    """Choose a level on the path that reference samples fix."""
    truth = whole.belief if whole.y_true is None else whole.y_true
    check_validation(whole.evidence, whole.belief, truth)
    if goal.needs_labels and whole.y_true is None:
        raise InputError("an accuracy needs labels: give y too, or ask for coverage or false_alarm")
    heard = goal.model_confidence
    if goal.coverage is not None:
        laying = whole if reference is None else reference
        return match_level(whole, laying, goal.coverage, heard is True)
    if goal.false_alarm is not None:
        first, rest = (reference, whole)
        if first is None:  # both parts rank samples, and take as many
            first, rest = split(whole, goal.random_state, share=2)
        return limit_false_alarm(rest, first, goal.false_alarm, heard is True)
    if goal.accuracy is None:
        return choose_usual(whole, reference, goal.confidence, heard is True, goal.random_state)
    return certify_level(
        whole,
        reference,
        accuracy=goal.accuracy,
        confidence=goal.confidence,
        each_class=goal.each_class,
        confident=heard,
        classes=classes,
        random_state=goal.random_state,
    )
