"""The method that serves what a user asks tuning for.

Rules off the path of levels are chosen here: for the largest coverage (`select`), or for a coverage
to match, which a rule knows how to (`Rule.match`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from iknow.core.arrays import Floats, Ints, Labels
from iknow.core.rule import Rule, check_k, has_k, speaks_for
from iknow.errors import InputError, SelectionError
from iknow.rules import RULES
from iknow.selection.exact.boxes import Objective, make_objective
from iknow.selection.exact.cells import Deadline, check_time_limit
from iknow.selection.exact.depth import deepest_point
from iknow.selection.goal import Goal
from iknow.selection.guarantee import certify
from iknow.selection.levels import certify_level, choose_usual, limit_false_alarm, match_level
from iknow.selection.search import search_bayes, search_grid
from iknow.selection.selection import Candidate, Selection, ValidationEvidence, record_choice
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
        return choose_usual(whole, reference, goal)
    return certify_level(whole, reference, goal, classes)


Method = Literal["exact", "grid", "bayes"]


def select(
    evidence: ValidationEvidence,
    belief: Ints,
    y_true: Ints,
    rule: type[Rule],
    *,
    method: Method = "exact",
    k: int | Sequence[int] | None = None,
    time_limit: float = 60.0,
    n_trials: int = 50,
    random_state: int = 0,
) -> Selection:
    """Choose the radii of the largest coverage on validation data.

    Ties in coverage go to the setting with the most correct beliefs, then to the middle of its
    plateau.

    Args:
        evidence: Evidence about n validation samples, by layer.
        belief: What the model believes, as class codes of shape (n,).
        y_true: The truth, as class codes of shape (n,).
        rule: The rule whose parameters to choose, such as `Ball`.
        method: "exact" finds the true maximum, or reports the gap left after `time_limit` seconds.
            "grid" and "bayes" (needs Optuna) try `n_trials` settings, as the paper does, and exist
            for comparison.
        k: Number of neighbors, or several to try, for rules that use it.
        time_limit: Seconds that "exact" may take.
        n_trials: Number of settings that "grid" and "bayes" try.
        random_state: Seed for "bayes".

    Examples:
        >>> selection = select(evidence, belief, y_true, Ball)
        >>> print(f"{selection.coverage:.3f}", selection.optimal)
        0.827 True
    """
    check_validation(evidence, belief, y_true)
    if (why := rule.why_not_for_coverage()) is not None:
        raise SelectionError(why)
    tries: list[tuple[int, Objective, Floats, float]] = []
    check_time_limit(time_limit)
    deadline, objectives = Deadline(time_limit), _make_objectives(evidence, belief, y_true, rule, k)
    for position, objective in enumerate(objectives):
        bound = np.inf
        if method == "exact":
            share = deadline.left() / (len(objectives) - position)
            found = deepest_point(objective.lows, objective.highs, objective.weights, share)
            point, bound = found.point, found.bound
        elif method == "grid":
            point = search_grid(objective, n_trials)
        elif method == "bayes":
            point = search_bayes(objective, n_trials, random_state)
        else:
            raise InputError(f"method must be 'exact', 'grid' or 'bayes'; got {method!r}")
        tries.append((objective.value(point), objective, point, bound))
    value, objective, point, _ = max(tries, key=lambda one: one[0])
    highest = max(bound for *_, bound in tries)
    return record_choice(
        Validation(evidence, belief, y_true),
        Candidate(objective.neighborhoods(point)),
        method,
        optimal=highest <= value,
        best_possible=1.0 if np.isinf(highest) else objective.coverage(highest),
    )


def tunes_for_coverage(rule: type[Rule]) -> bool:
    """Return whether `select` can choose the parameters of `rule`."""
    return rule.why_not_for_coverage() is None


def _make_objectives(
    evidence: ValidationEvidence,
    belief: Ints,
    y_true: Ints,
    rule: type[Rule],
    k: int | Sequence[int] | None,
) -> list[Objective]:
    """One for each k that lets some sample be IK; the last error if none does."""
    if not has_k(rule):
        return [make_objective(evidence, belief, y_true, rule, None)]
    numbers = [] if k is None else [k] if np.ndim(k) == 0 else list(k)  # type: ignore[arg-type]
    if not numbers:
        raise InputError(f"{rule.__name__} needs k, one number or several to try; got {k!r}")
    made: list[Objective] = []
    for position, number in enumerate([check_k(each) for each in numbers], start=1):
        try:
            made.append(make_objective(evidence, belief, y_true, rule, number))
        except SelectionError:
            if position == len(numbers) and not made:
                raise
    return made


def match_coverage(
    evidence: ValidationEvidence,
    belief: Ints,
    y_true: Ints,
    rule: type[Rule],
    coverage: float,
) -> Selection:
    """Choose the setting of a rule whose coverage is closest to a target.

    Args:
        evidence: Evidence about n validation samples, by layer.
        belief: What the model believes, as class codes of shape (n,).
        y_true: The truth, as class codes of shape (n,).
        rule: One that can be matched, such as `Nearest` or `RelativeBall`.
        coverage: The fraction of IK to match, in (0, 1].

    Examples:
        >>> match_coverage(evidence, belief, y_true, RelativeBall, 0.8).coverage
        0.8
    """
    data = evidence, belief, y_true
    check_validation(*data)
    if not 0 < coverage <= 1:
        raise InputError(f"a coverage to match must lie in (0, 1]; got {coverage}")
    if not speaks_for(rule, "match"):
        able = " and ".join(name for name, each in RULES.items() if speaks_for(each, "match"))
        raise SelectionError(
            f"a coverage can be matched by {able}; {rule.__name__} can be tuned for the largest "
            "coverage: leave coverage out"
        )
    chosen = Candidate(rule.match(*data, coverage))
    return record_choice(Validation(*data), chosen, "matched")
