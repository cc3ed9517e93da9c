"""Guarantee: the largest coverage whose accuracy on IK is certified.

The best of many settings looks better on its validation data than it is, so we split that at random
into two parts.

A fifth finds candidates: for several prices of an error, the setting that maximizes right IK
answers minus price times wrong ones, exactly (`deepest_point` takes negative weights). That part
alone also ranks them, the one most likely to pass first.

The rest tests each candidate in turn against "its accuracy on IK is below the target". Given the
number of IK samples their errors are binomial, so

    p = P(Binomial(known, 1 - target) <= errors)

is an exact p-value, and a candidate passes if p <= 1 - confidence. The first that fails ends the
test. Such a fixed sequence needs no correction: for a bad candidate to be accepted, the first bad
one in the order, which does not depend on the second part, must pass, and that has probability at
most 1 - confidence. This is fixed-sequence testing in the sense of Learn then Test (Angelopoulos
and others, 2021). Of those that pass, we choose the one of largest coverage.

With `each_class` a candidate is a setting together with the classes that may be IK; beliefs in any
other never are (`Selection.knowable`). It passes only if the samples of each of its classes pass by
themselves, which needs no correction either (an intersection-union test). The first part decides
which classes these are. Of the second that choice uses only the beliefs, and given the beliefs the
errors of a class are still binomial. So a class that is rarely believed, or often wrong, cannot
slip through unseen: without a certificate it is never IK.

The promise: over the draw of the validation data, the probability of certifying a setting whose
accuracy on IK (in some class that may be IK) is below the target is at most 1 - `confidence`, for
data drawn like the validation data. It is about one call on independent samples. Drift breaks it,
and so do samples in related groups, as copies are (`iknow.selection.repeats` looks for them), and
trying several seeds, rules or targets on the same data until one passes: each try is another test,
which may fail with probability 1 - `confidence`.

Nothing that finds and ranks candidates sees the samples that certify; the promise depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

import numpy as np
from scipy.stats import beta, binom

from iknow.core.arrays import Floats, Ints, Labels
from iknow.core.rule import Rule, axes_of, has_k
from iknow.errors import InputError, SelectionError
from iknow.rules import RULES
from iknow.selection.exact.boxes import Objective, make_objective
from iknow.selection.exact.cells import Deadline
from iknow.selection.exact.depth import deepest_point
from iknow.selection.goal import Goal
from iknow.selection.selection import Candidate, Certificate, Selection, record_choice
from iknow.selection.validation import SHARE_TO_CHOOSE, Validation, split


def p_values(errors: Ints, counts: Ints, accuracy: float) -> Floats:
    """P(Binomial(count, 1 - accuracy) <= errors); 1 without samples."""
    return np.asarray(binom.cdf(errors, counts, 1 - accuracy), dtype=np.float64)


STEPS = 200  # settings of a sequence to test at most, evenly spaced in coverage
SHARE_OF_FIRST = 5  # a sequence begins within the surest fifth of the samples that certify


def first_count(n: int, accuracy: float, confidence: float) -> int:
    """How many IK samples the first setting of a sequence has at least, of n that certify.

    As many errors are allowed there as fit into the surest fifth; where not even none fits, it is
    the least number of samples that certifies. It depends on n and the goal alone.
    """
    counts = np.arange(1, max(n, 1) + 1)
    allowed = np.asarray(binom.ppf(1 - confidence, counts, 1 - accuracy))  # one more than allowed,
    allowed -= p_values(allowed, counts, accuracy) > 1 - confidence  # or, with luck, as many
    most = max(allowed[max(0, n // SHARE_OF_FIRST - 1)], 0)
    return int(counts[(allowed >= most).argmax()])


def first_to_test(counts: Ints, n_laying: int, n: int, accuracy: float, confidence: float) -> int:
    """Where a sequence of settings, the strictest first, begins to be tested on n samples.

    counts: IK samples of each setting among `n_laying` others, ascending. With those that certify,
    the first setting shall have as many as `first_count` says, but for bad luck. They are not asked
    themselves: the order of the tests must not depend on them.
    """
    share = counts / n_laying
    expected = n * np.maximum(share - 2 * np.sqrt(share * (1 - share) / n_laying), 0.0)
    enough = expected - 2 * np.sqrt(expected) >= first_count(n, accuracy, confidence)
    return int(enough.argmax()) if enough.any() else len(counts) - 1


def least_samples(accuracy: float, confidence: float) -> int:
    """Return the number of samples, all right, below which no `accuracy` can be certified with a
    `confidence`.

    Examples:
        >>> least_samples(0.99, 0.95)
        299
    """
    return max(1, int(np.ceil(np.log(1 - confidence) / np.log(accuracy))))


def samples_needed(accuracy: float, confidence: float, error_rate: float) -> int | None:
    """Return about how few samples, within 5%, certify an `accuracy` with a `confidence` if a share
    `error_rate` of them is wrong; None if no number does.

    Examples:
        >>> samples_needed(0.99, 0.95, error_rate=0.005)
        1357
    """
    if error_rate >= 1 - accuracy:
        return None
    sizes = np.ceil(least_samples(accuracy, confidence) * 1.05 ** np.arange(400))
    enough = binom.cdf(np.ceil(error_rate * sizes), sizes, 1 - accuracy) <= 1 - confidence
    return int(sizes[enough.argmax()]) if enough.any() else None


def certify(
    goal: Goal, validation: Validation, rule: type[Rule], classes: Labels | None = None
) -> Selection:
    """Choose the setting of largest coverage whose accuracy on IK is certified to reach a goal.

    If nothing can be certified, a `SelectionError` says how close it came and about how many
    samples it would take; there is no fallback.
    """
    if not axes_of(rule):
        able = ", ".join(name for name, each in RULES.items() if axes_of(each))
        raise SelectionError(
            f"only rules with parameters to choose can be certified: {able}; got {rule.__name__}"
        )
    k = int(goal.k) if isinstance(goal.k, (int, np.integer)) else None
    if has_k(rule) and k is None:
        raise InputError(
            f"{rule.__name__} needs k, and a guarantee one k, not several; got {goal.k}"
        )
    first, second = split(validation, goal.random_state)
    least, eligible = check_enough(second, goal)
    settings, proven = find_candidates(make_objective(first, rule, k), goal.time_limit)
    ranked = rank(settings, first, eligible, goal.target, least / len(second))
    best, certificate = try_in_turn(ranked, second, goal, classes)
    certificate = replace(certificate, proven=proven)
    return record_choice(validation, best, "certified", certificate=certificate)


def try_in_turn(
    candidates: Sequence[Candidate], second: Validation, goal: Goal, classes: Labels | None = None
) -> tuple[Candidate, Certificate]:
    """The candidate of largest coverage among those that pass before the first that fails.

    candidates: in an order that does not depend on `second`, the samples that certify.
    """
    tests = (_Test(candidate, second) for candidate in candidates)  # none after the first failure
    limit = 1 - goal.confidence
    passed = list(takewhile(lambda test: test.p_value(goal.target) <= limit, tests))
    if not passed:
        every = [_Test(candidate, second) for candidate in candidates]
        raise _nothing_certified(every, goal, classes)
    best = max(passed, key=lambda test: int(test.counts.sum()))
    bounds, codes = best.bounds(goal.confidence), best.candidate.classes
    named = [] if codes is None else [_name(code, classes) for code in codes]
    certificate = Certificate(
        accuracy=goal.target,
        confidence=goal.confidence,
        bound=float(bounds.min()),
        known=int(best.counts.sum()),
        errors=int(best.errors.sum()),
        n_samples=len(second),
        tested=min(len(passed) + 1, len(candidates)),
        procedure="fixed-sequence exact binomial tests on held-out samples",
        proven=True,
        by_class=None if codes is None else dict(zip(named, bounds.tolist(), strict=True)),
    )
    return best.candidate, certificate


class _Test:
    """The IK samples and errors of a candidate, in total or for each of its classes."""

    def __init__(self, candidate: Candidate, part: Validation) -> None:
        self.candidate = candidate
        self.n_samples = len(part)
        self.counts, self.errors = candidate.count(part)

    def p_value(self, accuracy: float) -> float:
        """The exact p-value of "some class's accuracy is below the target"; 1 without samples."""
        return float(p_values(self.errors, self.counts, accuracy).max())

    def bounds(self, confidence: float) -> Floats:
        """The lower confidence bound of Clopper and Pearson on the accuracy in each class."""
        right = self.counts - self.errors
        lower = beta.ppf(1 - confidence, np.maximum(right, 1), self.errors + 1)
        return np.where(right > 0, lower, 0.0)

    def samples_needed(self, goal: Goal) -> float:
        """About how many samples would certify it if its error rates stay; inf if none would."""
        rates = self.errors / np.maximum(self.counts, 1)
        needed = [samples_needed(goal.target, goal.confidence, rate) or np.inf for rate in rates]
        with np.errstate(divide="ignore"):  # where a class has no samples
            return float(self.n_samples * np.max(np.array(needed) / self.counts))


def _nothing_certified(
    tests: Sequence[_Test], goal: Goal, classes: Labels | None
) -> SelectionError:
    """The error that says how close it came and about how many samples it would take."""
    if not tests:
        return SelectionError(
            "nothing can be certified: wherever there are IK samples, too many of them are wrong, "
            "or each class has too few"
        )
    failed = tests[0]  # the others were not tested: only their error rates count below
    bounds, codes = failed.bounds(goal.confidence), failed.candidate.classes
    weakest = int(bounds.argmin())
    whose = "" if codes is None else f" believed to be {_name(codes[weakest], classes)}"
    needed = min(test.samples_needed(goal) for test in tests)
    advice = (
        "At these error rates no number of samples would be enough: ask for less, or use other "
        "layers, another rule or a better model"
    )
    if np.isfinite(needed):
        enough, given = map(_with_those_that_choose, (needed, failed.n_samples))
        advice = (
            f"{_in_words(enough) if enough > given else f'More than {given:,}'} validation samples "
            "would be needed if the error rates stay; or ask for less, on other samples: each "
            "further try on these adds its own risk"
        )
    return SelectionError(
        f"no setting is certified to be right on {goal.target:.4g} of IK with confidence "
        f"{goal.confidence:.4g}: the most promising reaches a lower bound of {bounds[weakest]:.4g} "
        f"({failed.counts[weakest]} IK samples{whose}, {failed.errors[weakest]} wrong). {advice}"
    )


def _with_those_that_choose(n_certifying: float) -> int:
    """The least number of samples that leaves `n_certifying` to certify."""
    return int(np.ceil(n_certifying * SHARE_TO_CHOOSE / (SHARE_TO_CHOOSE - 1)))


def _in_words(n_samples: int) -> str:
    """A number of samples, rounded up to two digits."""
    step = 10 ** max(0, len(str(n_samples)) - 2)
    rounded = -(-n_samples // step) * step
    if rounded < 1_000_000:
        return f"About {rounded:,}"
    return f"About {rounded / 1e6:,.3g} million"


def check_enough(certifying: Validation, goal: Goal) -> tuple[int, Ints | None]:
    """The number of samples that a certificate takes without any error; refuse to try with less.

    Also the codes of the classes that are believed so often, if each is certified by itself.
    """
    least = least_samples(goal.target, goal.confidence)
    codes, counts = np.unique(certifying.belief, return_counts=True)
    held, among = len(certifying), ""
    if goal.each_class:
        held, among = int(counts.max(initial=0)), " in a believed class"
    if held < least:
        raise SelectionError(
            f"too few samples: certifying an accuracy of {goal.target:.4g} with confidence "
            f"{goal.confidence:.4g} takes at least {least} IK samples without an error{among}, and "
            f"the part that certifies holds {held}: give at least {_with_those_that_choose(least)}"
            f"{among}"
        )
    return least, np.asarray(codes[counts >= least]) if goal.each_class else None


def _name(code: int, classes: Labels | None) -> str:
    return str(code if classes is None else classes[code])


# How many right answers an error costs: from coverage alone to almost no errors.
PRICES = (0, 1, 2, 3, 4, 6, 8, 11, 16, 22, 32, 45, 64, 100, 200, 500, 1000)
CAUTION = (0.01, 0.03, 0.1, 0.2, 0.35, 0.6, 1.0)  # limits on the p-values of classes to take


def find_candidates(objective: Objective, time_limit: float) -> tuple[list[Candidate], bool]:
    """The best setting for each price of an error, and whether all are proven to be the best."""
    found: dict[tuple[float, ...], Candidate] = {}
    deadline, proven = Deadline(time_limit), True
    for position, price in enumerate(PRICES):
        weights = np.where(objective.right == 1, 1, -price)
        share = deadline.left() / (len(PRICES) - position)
        deepest = deepest_point(objective.lows, objective.highs, weights, share)
        proven &= deepest.proven
        if deepest.point is not None:  # else the price is too high, or the time too short
            found[tuple(deepest.point)] = Candidate(objective.neighborhoods(deepest.point))
    return list(found.values()), proven


def rank(
    settings: Sequence[Candidate],
    part: Validation,
    eligible: Ints | None,
    accuracy: float,
    least_share: float,
) -> list[Candidate]:
    """Candidates by how surely they reach the target on the samples that found them.

    eligible: codes of the classes to certify one by one; None for all at once. least_share: the
    share of IK samples that a class needs to be certified at all. A setting is a candidate with the
    classes that look sure, and again with less sure ones: the first candidate that fails ends the
    test, so sure classes must not wait for doubtful ones.
    """
    doubts: list[tuple[float, Candidate]] = []
    for setting in settings:
        if eligible is not None:
            setting = replace(setting, classes=tuple(eligible.tolist()))
        counts, errors = setting.count(part)
        doubt = p_values(errors, counts, accuracy)
        if eligible is None:
            doubts.append((float(doubt[0]), setting))
            continue
        enough = counts >= least_share * len(part)
        chosen = [tuple(np.flatnonzero(enough & (doubt <= limit))) for limit in CAUTION]
        for taken in dict.fromkeys(filter(len, chosen)):
            sure = replace(setting, classes=tuple(eligible[list(taken)].tolist()))
            doubts.append((float(doubt[list(taken)].max()), sure))
    return [candidate for _, candidate in sorted(doubts, key=lambda each: each[0])]
