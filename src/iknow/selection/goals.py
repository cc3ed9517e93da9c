"""Goals: what a user may ask tuning for, and the method that serves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from iknow.core.arrays import Floats, Ints, Labels
from iknow.core.neighborhood import Neighborhood, check_k, has_k
from iknow.core.quorum import ONE, Quorum
from iknow.core.scalars import as_flag, as_real
from iknow.core.text import shown
from iknow.errors import InputError
from iknow.selection.candidates import Part
from iknow.selection.coverage import check_validation, select
from iknow.selection.exact.deadline import check_time_limit
from iknow.selection.guarantee import certify, split
from iknow.selection.level_guarantee import certify_level, choose_usual
from iknow.selection.levels import limit_false_alarm, match_level
from iknow.selection.matching import match_coverage
from iknow.selection.per_class import select_per_class
from iknow.selection.selection import Selection, ValidationEvidence


@dataclass(frozen=True)
class Goal:
    """What to tune for: an accuracy, a coverage, a rate of false alarms, or what is usual.

    Attributes:
        method: How to find the largest coverage; "per-class" gives each class its own radius.
        accuracy: Guarantee at least this accuracy on IK instead.
        confidence: Probability with which the guarantee holds.
        each_class: Guarantee the accuracy in each class by itself.
        coverage: Match this coverage instead.
        false_alarm: Bound how often an ordinary sample is not IK instead.
        model_confidence: Whether the model's own confidence is a voice in levels; None leaves it to
            what an accuracy needs.
        k: Number of neighbors, or several to try, for rules that use it.
        time_limit: Seconds that the search may take.
        random_state: Seed for the split that certifies and for method "bayes".

    Examples:
        >>> Goal(coverage=0.8).neighbors_needed(Nearest, n_rows=75)
        75
    """

    method: Literal["exact", "grid", "bayes", "per-class"] = "exact"
    accuracy: float | None = None
    confidence: float = 0.95
    each_class: bool = False
    coverage: float | None = None
    false_alarm: float | None = None
    model_confidence: bool | None = None
    k: int | Sequence[int] | None = None
    time_limit: float = 60.0
    random_state: int = 0

    def __post_init__(self) -> None:
        self._check_types()
        asked = [self.accuracy, self.coverage, self.false_alarm]
        if sum(each is not None for each in asked) > 1:
            raise InputError("ask for one of accuracy, coverage and false_alarm, not for more")
        if self.method != "exact" and any(each is not None for each in asked):
            raise InputError(
                f"method={shown(self.method)} is a way to the largest coverage; leave it out when "
                "you ask for an accuracy, a coverage or a rate of false alarms"
            )
        check_time_limit(self.time_limit)
        if self.each_class and self.accuracy is None:
            raise InputError("each_class needs an accuracy to guarantee")

    @property
    def needs_every_class(self) -> bool:
        """Whether tuning needs the distances to every class, not just to two."""
        return self.method == "per-class"

    def _check_types(self) -> None:
        """Check types alone; the functions that use the values check their ranges."""
        if not isinstance(self.method, str):
            raise InputError(f"method must be text, such as 'exact'; got {shown(self.method)}")
        as_flag(self.each_class, "each_class")
        if self.model_confidence is not None:
            as_flag(self.model_confidence, "confidence")
        for name in ("accuracy", "confidence", "coverage", "false_alarm"):
            value = getattr(self, name)
            if value is not None or name == "confidence":
                object.__setattr__(self, name, as_real(value, name, "lie between 0 and 1"))
        several = isinstance(self.k, np.ndarray) and self.k.ndim == 1
        listed = several or isinstance(self.k, (list, tuple, range))
        for k in self.k if listed else () if self.k is None else (self.k,):  # type: ignore[union-attr]
            check_k(k)

    @property
    def needs_labels(self) -> bool:
        """Whether tuning along a path of levels needs to know the truth."""
        return self.coverage is None and self.false_alarm is None

    def neighbors_needed(self, rule: type[Neighborhood], n_rows: int, quorum: Quorum = ONE) -> int:
        """Return how many neighbor distances it takes to tune `rule` on `n_rows` training rows.

        `quorum`: how many samples the belief needs, and how many another class.
        """
        if rule.by_level:  # whether the nearest agree says what a layer means
            return min(quorum[0], n_rows)
        if rule.neighbors_to_match:
            return min(rule.neighbors_to_match, n_rows)
        return int(np.max(0 if self.k is None else self.k, initial=0)) if has_k(rule) else 0


def choose(
    goal: Goal,
    evidence: ValidationEvidence,
    belief: Ints,
    y_true: Ints | None,
    rule: type[Neighborhood],
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
        rule: The neighborhood whose parameters to choose, such as `Ball`.
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
    if goal.method == "per-class":
        return select_per_class(*data, time_limit=goal.time_limit)
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
