"""The method that serves what a user asks tuning for.

Rules off the path of levels are chosen here: for the largest coverage (`select`), or for a coverage
to match, which a rule knows how to (`Rule.match`).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import beta

from iknow.core.arrays import Floats, Labels
from iknow.core.rule import Rule, has_k, speaks_for
from iknow.errors import InputError, MissingExtraError, SelectionError, warn
from iknow.rules import RULES
from iknow.selection.exact.boxes import Objective, make_objective
from iknow.selection.exact.cells import Deadline
from iknow.selection.exact.depth import deepest_point
from iknow.selection.goal import Goal
from iknow.selection.guarantee import certify
from iknow.selection.levels import choose_level
from iknow.selection.selection import Candidate, Selection, record_choice
from iknow.selection.validation import Validation

if TYPE_CHECKING:
    import optuna

UNCERTAIN = 0.4  # width of the interval for a coverage from which on we warn


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
        >>> largest = choose(Goal(), validation, Ball)
        >>> print(f"{largest.coverage:.3f}", largest.optimal)
        0.827 True
        >>> sure = choose(Goal(accuracy=0.9, confidence=0.9), validation, Ball)
        >>> print(f"at least {sure.certificate.bound:.3f} on {sure.coverage:.2f}")
        at least 0.914 on 0.76
    """
    if not len(validation):
        raise InputError("tuning needs at least one validation sample; got none")
    if rule.by_level and goal.method == "exact":
        return choose_level(goal, validation, reference, classes)
    if reference is not None or goal.false_alarm is not None:
        raise InputError(
            f"false_alarm and reference need a rule with levels, such as RelativeBall; got "
            f"{rule.__name__}"
        )
    if validation.y_true is None:
        raise InputError(f"tuning {rule.__name__} needs labels: give y too")
    if goal.coverage is not None:
        if not speaks_for(rule, "match"):
            able = [n for n, each in RULES.items() if each.by_level or speaks_for(each, "match")]
            raise SelectionError(
                f"a coverage can be matched by {' and '.join(able)}; {rule.__name__} can be tuned "
                "for the largest coverage: leave coverage out"
            )
        data = validation.contrasts, validation.belief, np.asarray(validation.y_true)
        return record_choice(validation, Candidate(rule.match(*data, goal.coverage)), "matched")
    if goal.accuracy is not None:
        return certify(goal, validation, rule, classes)
    return select(goal, validation, rule)


def warn_if_uncertain(matched: Selection) -> None:
    """Warn if a coverage was matched on so few samples that it says little about new ones.

    A level that k of n samples reach is reached by a new one with a probability that has the
    distribution Beta(k, n + 1 - k) over the draw of the samples.
    """
    n, k = matched.n_samples, round(matched.coverage * matched.n_samples)
    low, high = (beta.ppf(p, max(k, 0.5), max(n + 1 - k, 0.5)) for p in (0.05, 0.95))
    if high - low > UNCERTAIN:
        warn(
            f"a coverage matched on {n} validation sample{'s' * (n > 1)} lies between {low:.0%} "
            f"and {high:.0%} on new ones, with a probability of 90%: give a hundred or more"
        )


def select(goal: Goal, validation: Validation, rule: type[Rule], n_trials: int = 50) -> Selection:
    """Choose the parameters of the largest coverage on validation data.

    Ties in coverage go to the setting with the most correct beliefs, then to the middle of its
    plateau.

    The method "exact" finds the true maximum, or reports the gap left when the time is up. "grid"
    and "bayes" (needs Optuna) try `n_trials` settings, as the paper does, and exist for comparison.
    """
    if (why := rule.why_not_for_coverage()) is not None:
        raise SelectionError(why)
    numbers: list[int | None] = [None]
    if has_k(rule):
        numbers = [] if goal.k is None else np.atleast_1d(goal.k).tolist()
    if not numbers:
        raise InputError(f"{rule.__name__} needs k, one number or several to try; got {goal.k!r}")
    deadline, objectives, failed = Deadline(goal.time_limit), [], None
    for k in numbers:
        try:
            objectives.append(make_objective(validation, rule, k))
        except SelectionError as error:  # another k may let some sample be IK
            failed = error
    if failed is not None and not objectives:
        raise failed
    tries: list[tuple[int, Objective, Floats, float]] = []
    for position, objective in enumerate(objectives):
        bound = np.inf
        if goal.method == "exact":
            share = deadline.left() / (len(objectives) - position)
            found = deepest_point(objective.lows, objective.highs, objective.weights, share)
            assert found.point is not None  # as weights are positive, and some box holds a point
            point, bound = found.point, found.bound
        elif goal.method == "grid":
            point = search_grid(objective, n_trials)
        else:
            point = search_bayes(objective, n_trials, goal.random_state)
        tries.append((objective.value(point), objective, point, bound))
    value, objective, point, _ = max(tries, key=lambda one: one[0])
    highest = max(bound for *_, bound in tries)
    return record_choice(
        validation,
        Candidate(objective.neighborhoods(point)),
        goal.method,
        optimal=highest <= value,
        best_possible=1.0 if np.isinf(highest) else objective.coverage(highest),
    )


# Grid search and Bayesian optimization, as the paper has them, beside the exact optimum.


def search_grid(objective: Objective, n_trials: int) -> Floats:
    """The best of about `n_trials` points, spaced evenly in the logarithm of each parameter."""
    low, high = search_range(objective)
    per_axis = max(2, round(n_trials ** (1 / len(low))))
    axes = [np.geomspace(a, b, per_axis) for a, b in zip(low, high, strict=True)]
    points = [np.array(point) for point in itertools.product(*axes)]
    return max(points, key=objective.value)


def search_bayes(objective: Objective, n_trials: int, random_state: int) -> Floats:
    """The best of `n_trials` points proposed by a tree-structured Parzen estimator."""
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("selection by Bayesian optimization", "bayes") from error
    low, high = search_range(objective)
    names = [str(axis) for axis in range(len(low))]

    def evaluate(trial: optuna.Trial) -> float:
        axes = zip(names, low, high, strict=True)
        point = [trial.suggest_float(name, a, b, log=True) for name, a, b in axes]
        return float(objective.value(np.array(point)))

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        sampler = optuna.samplers.TPESampler(seed=random_state)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(evaluate, n_trials=n_trials)
    finally:
        optuna.logging.set_verbosity(verbosity)
    return np.array([study.best_params[name] for name in names])


def search_range(objective: Objective) -> tuple[Floats, Floats]:
    """The smallest and largest positive number at which anything changes, each of shape (n_axes,):
    what a search that does not know the boxes would take from the distances.
    """
    ends = np.concatenate([objective.lows, objective.highs])
    usable = np.isfinite(ends) & (ends > 0)
    low = np.min(ends, axis=0, where=usable, initial=np.inf)
    high = np.max(ends, axis=0, where=usable, initial=0.0)
    low = np.where(np.isinf(low), 1.0, low)  # nothing ever changes
    return low, np.maximum(low, high)
