"""Choosing the rules of the largest coverage, or of a coverage to match.

Grid search and Bayesian optimization, as the paper has them, stand beside the exact optimum. A fair
comparison needs equal coverage: a rule knows how to match one (`Rule.match`); its rival is a
threshold on the highest score.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.rule import Rule, check_k, has_k, speaks_for
from iknow.errors import InputError, MissingExtraError, SelectionError
from iknow.rules import RULES
from iknow.selection.exact.boxes import Objective, make_objective
from iknow.selection.exact.cells import Deadline, check_time_limit
from iknow.selection.exact.depth import deepest_point
from iknow.selection.selection import Selection, ValidationEvidence, record_selection
from iknow.selection.validation import check_validation

if TYPE_CHECKING:
    import optuna


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
    data = evidence, belief, y_true
    check_validation(*data)
    if (why := rule.why_not_for_coverage()) is not None:
        raise SelectionError(why)
    tries: list[tuple[int, Objective, Floats, float]] = []
    check_time_limit(time_limit)
    deadline, objectives = Deadline(time_limit), _make_objectives(*data, rule, k)
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
    return record_selection(
        *data,
        objective.neighborhoods(point),
        method=method,
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
    return record_selection(*data, rule.match(*data, coverage), method="matched")


def match_threshold(confidence: Floats, coverage: float) -> float:
    """Return the threshold t for which the fraction of `confidence >= t` is closest to a coverage.

    Args:
        confidence: Confidences such as the highest scores, of shape (n,).
        coverage: The fraction to match.

    Examples:
        >>> match_threshold(np.array([0.5, 0.7, 0.8, 0.9]), 0.5)
        0.8
    """
    candidates = np.append(np.unique(confidence), np.inf)
    fractions = 1 - np.searchsorted(np.sort(confidence), candidates) / len(confidence)
    return float(candidates[np.abs(fractions - coverage).argmin()])
