"""The method that serves what a user asks tuning for."""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Labels
from iknow.core.rule import Rule
from iknow.errors import InputError
from iknow.selection.coverage import match_coverage, select
from iknow.selection.goal import Goal
from iknow.selection.guarantee import certify
from iknow.selection.levels import certify_level, choose_usual, limit_false_alarm, match_level
from iknow.selection.selection import Selection
from iknow.selection.validation import Validation, check_validation, split


def choose(
    goal: Goal,
    validation: Validation,
    rule: type[Rule],
    classes: Labels | None = None,
    *,
    reference: Validation | None = None,
) -> Selection:
    """Choose the neighborhoods that serve a goal on validation data.

    Args:
        goal: What to tune for.
        validation: What is known about n samples; their labels, if the goal needs them.
        rule: The rule whose parameters to choose, such as `Ball`.
        classes: Labels of shape (n_classes,), to name classes in certificates and errors.
        reference: Further samples, without labels, that say what is ordinary.

    Examples:
        >>> validation = Validation(evidence, belief, y_true)
        >>> choose(Goal(coverage=0.8), validation, Nearest).neighborhoods["input"]
        Nearest(k=6)
    """
    if rule.by_level and goal.method == "exact":
        return _choose_level(goal, validation, reference, classes)
    if reference is not None or goal.false_alarm is not None:
        raise InputError(
            f"false_alarm and reference need a rule with levels, such as RelativeBall; got "
            f"{rule.__name__}"
        )
    if validation.y_true is None:
        raise InputError(f"tuning {rule.__name__} needs labels: give y too")
    data = validation.evidence, validation.belief, validation.y_true, rule
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
    goal: Goal, whole: Validation, reference: Validation | None, classes: Labels | None
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
