"""Guarantee: the largest coverage whose accuracy on IK is certified.

Choosing a setting by its validation figures and then quoting those figures is not honest: the best
of many looks better than it is. Here the validation data is split at random into two halves.

On the first half candidates are found: for several prices of an error, the setting that maximises
right IK answers minus price times wrong ones, exactly (`deepest_point` takes negative weights).
They are put in order, the one most likely to pass first, by that half alone.

On the second half each candidate in turn is tested against "its accuracy on IK is below the
target". Given the number of IK samples their errors are binomial, so

    p = P(Binomial(known, 1 - target) <= errors)

is an exact p-value, and a candidate passes if p <= 1 - confidence. The first that fails ends the
test. In such a fixed sequence no correction is needed: for a bad candidate to be accepted, the
first bad one in the order, which does not depend on the second half, must pass, and that has
probability at most 1 - confidence. This is fixed-sequence testing in the sense of Learn then Test
(Angelopoulos and others, 2021). Of those that pass, the one of largest coverage is chosen.

With `each_class` a candidate passes only if the samples of every class believed in the validation
data pass by themselves. As all of them must, no correction is needed for that either (an
intersection-union test). Which classes those are is read off the beliefs, and given the beliefs
the errors of every class are still binomial.

What is promised: over the draw of the validation data, the probability that a setting is certified
whose accuracy on IK is below the target is at most 1 - `confidence`, for data drawn as the
validation data was. It counts one call on independent samples. Drift breaks it, and so do samples
that come in related groups, and trying several seeds, rules or targets on the same data until one
passes: those are further tests, and each may fail with probability 1 - `confidence`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

import numpy as np
from scipy.stats import beta, binom

from iknow.core.arrays import Floats, Ints, Labels
from iknow.core.evidence import Evidence
from iknow.core.neighborhood import Neighborhood, has_k, has_radius
from iknow.errors import InputError, SelectionError
from iknow.selection.boxes import AXES
from iknow.selection.choice import check_validation
from iknow.selection.depth import deepest_point
from iknow.selection.objective import make_objective
from iknow.selection.selection import (
    Certificate,
    Selection,
    find_known,
    record_selection,
)

PRICES = (0, 1, 2, 3, 4, 6, 8, 11, 16, 22, 32, 45, 64, 100, 200, 500, 1000)
"""What an error costs in right answers: from coverage alone to almost no error at any cost."""

Candidate = dict[str, Neighborhood]


def certify(
    evidence: Mapping[str, Evidence],
    belief: Ints,
    truth: Ints,
    rule: type[Neighborhood],
    *,
    accuracy: float,
    confidence: float = 0.95,
    each_class: bool = False,
    classes: Labels | None = None,
    k: int | None = None,
    time_limit: float = 60.0,
    seed: int = 0,
) -> Selection:
    """The setting of largest coverage whose accuracy on IK is certified to reach the target.

    evidence: by layer, about n validation samples. belief, truth: class codes of shape (n,).
    classes: labels to name classes by. Raises SelectionError, saying how far it got and about how
    many samples would do, if nothing can be certified; there is no fallback.
    """
    check_validation(evidence, belief, truth)
    _check_probability(accuracy, "accuracy")
    _check_probability(confidence, "confidence")
    if rule not in AXES or not has_radius(rule):
        raise SelectionError(
            f"only rules with a radius can be certified: {', '.join(r.__name__ for r in AXES)}; "
            f"got {rule.__name__}"
        )
    if has_k(rule) and k is None:
        raise InputError(f"{rule.__name__} needs k, the number of neighbours; got None")
    n_classes = next(iter(evidence.values())).n_classes
    names = [str(label) for label in (range(n_classes) if classes is None else classes)]
    groups = {names[code]: int(code) for code in np.unique(belief)} if each_class else None
    order = np.random.default_rng(seed).permutation(len(belief))
    first, second = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    _check_enough(belief[second], groups, accuracy, confidence)
    candidates = _find_candidates(
        _part(evidence, first), belief[first], truth[first], rule, k, time_limit
    )
    ranked = _rank(
        candidates, _part(evidence, first), belief[first], truth[first], groups, accuracy
    )
    tests = [
        _Test(candidate, _part(evidence, second), belief[second], truth[second], groups)
        for candidate in ranked
    ]
    best, tested = _best_that_passes(tests, accuracy, confidence)
    bounds = best.bounds(confidence)
    certificate = Certificate(
        accuracy=accuracy,
        confidence=confidence,
        bound=float(bounds.min()),
        known=int(best.known.sum()),
        errors=int((best.known & best.wrong).sum()),
        n_samples=len(second),
        tested=tested,
        procedure="fixed-sequence exact binomial tests on a held-out half",
        by_class=None if groups is None else dict(zip(groups, bounds.tolist(), strict=True)),
    )
    return record_selection(
        evidence, belief, truth, best.candidate, method="certified", certificate=certificate
    )


def _best_that_passes(
    tests: Sequence[_Test], accuracy: float, confidence: float
) -> tuple[_Test, int]:
    """The widest of the candidates before the first that fails, and how many were tested."""
    passed = list(takewhile(lambda test: test.p_value(accuracy) <= 1 - confidence, tests))
    if not passed:
        raise _nothing_certified(tests, accuracy, confidence)
    return max(passed, key=lambda test: test.known.mean()), min(len(passed) + 1, len(tests))


class _Test:
    """One candidate's IK samples and errors, in all or in each group: name and class code."""

    def __init__(
        self,
        candidate: Candidate,
        evidence: Mapping[str, Evidence],
        belief: Ints,
        truth: Ints,
        groups: Mapping[str, int] | None,
    ) -> None:
        self.candidate = candidate
        self.names = [None] if groups is None else list(groups)
        self.known = find_known(evidence, belief, candidate)
        self.wrong = belief != truth
        members = (
            [np.ones(len(belief), bool)]
            if groups is None
            else [belief == code for code in groups.values()]
        )
        self.counts = np.array([(self.known & group).sum() for group in members])
        self.errors = np.array([(self.known & self.wrong & group).sum() for group in members])

    def p_value(self, accuracy: float) -> float:
        """The exact p-value of "some group's accuracy is below the target"; 1 without samples."""
        return float(np.max(binom.cdf(self.errors, self.counts, 1 - accuracy)))

    def bounds(self, confidence: float) -> Floats:
        """The lower confidence bound (Clopper and Pearson) on each group's accuracy."""
        right = self.counts - self.errors
        lower = beta.ppf(1 - confidence, np.maximum(right, 1), self.errors + 1)
        return np.where(right > 0, lower, 0.0)

    def total_needed(self, accuracy: float, confidence: float) -> int | None:
        """About how many samples, both halves, would certify it at its rates of errors, if any."""
        shares = []
        for count, errors in zip(self.counts, self.errors, strict=True):
            needed = samples_needed(accuracy, confidence, errors / count) if count else None
            if needed is None:
                return None
            shares.append(needed / count)
        return int(np.ceil(2 * len(self.known) * max(shares)))


def _find_candidates(
    evidence: Mapping[str, Evidence],
    belief: Ints,
    truth: Ints,
    rule: type[Neighborhood],
    k: int | None,
    time_limit: float,
) -> list[Candidate]:
    """For each price of an error, the best setting on the given samples."""
    objective = make_objective(evidence, belief, truth, rule, k)
    found: dict[tuple[float, ...], Candidate] = {}
    for price in PRICES:
        weights = np.where(objective.right == 1, 1, -price)
        try:
            deepest = deepest_point(
                objective.lows, objective.highs, weights, time_limit / len(PRICES)
            )
        except SelectionError:  # nothing is worth such a price
            continue
        found[tuple(deepest.point)] = objective.neighborhoods(deepest.point)
    return list(found.values())


def _rank(
    candidates: Sequence[Candidate],
    evidence: Mapping[str, Evidence],
    belief: Ints,
    truth: Ints,
    groups: Mapping[str, int] | None,
    accuracy: float,
) -> list[Candidate]:
    """The candidates by how surely they reach the target on the half they were found on."""
    if groups is not None:  # those of the other half alone must not matter here
        groups = {name: code for name, code in groups.items() if (belief == code).any()}
    tests = [_Test(candidate, evidence, belief, truth, groups) for candidate in candidates]
    return [test.candidate for test in sorted(tests, key=lambda test: test.p_value(accuracy))]


def _nothing_certified(
    tests: Sequence[_Test], accuracy: float, confidence: float
) -> SelectionError:
    """The error that says how far it got and about how many samples would be needed."""
    if not tests:
        return SelectionError(
            "nothing can be certified: wherever there are IK samples, too many of them are wrong"
        )
    failed = tests[0]  # the others were not tested: they are only asked for their rates of errors
    bounds = failed.bounds(confidence)
    weakest = int(bounds.argmin())
    name = failed.names[weakest]
    whose = "" if name is None else f" believed to be {name}"
    message = (
        f"no setting is certified to be right on {accuracy:.4g} of IK with confidence "
        f"{confidence:.4g}: the lower bound reached by the most promising is "
        f"{bounds[weakest]:.4g} ({failed.counts[weakest]} IK samples{whose}, "
        f"{failed.errors[weakest]} wrong). "
    )
    totals = [test.total_needed(accuracy, confidence) for test in tests]
    enough = min((total for total in totals if total is not None), default=None)
    if enough is None:
        return SelectionError(
            message + "At such rates of errors as many samples as you like would not do: ask for "
            "less, or use other layers, another rule or a better model"
        )
    given = 2 * len(failed.known)
    amount = f"About {enough}" if enough > given else f"More than {given}"
    return SelectionError(
        message + f"{amount} validation samples would be needed if the rates of errors stay; "
        "or ask for less, on other samples: each further try on these adds its own risk"
    )


def samples_needed(accuracy: float, confidence: float, error_rate: float) -> int | None:
    """About the least number of IK samples that certifies a target at a rate of errors, if any.

    It is found in steps of 5 %, of which there are enough for any purpose.
    """
    if error_rate >= 1 - accuracy:
        return None
    sizes = np.ceil(least_samples(accuracy, confidence) * 1.05 ** np.arange(400))
    enough = binom.cdf(np.ceil(error_rate * sizes), sizes, 1 - accuracy) <= 1 - confidence
    return int(sizes[enough.argmax()]) if enough.any() else None


def least_samples(accuracy: float, confidence: float) -> int:
    """The number of IK samples, all right, below which nothing can be certified."""
    return int(np.ceil(np.log(1 - confidence) / np.log(accuracy)))


def _part(evidence: Mapping[str, Evidence], rows: Ints) -> dict[str, Evidence]:
    return {layer: batch[rows] for layer, batch in evidence.items()}


def _check_probability(value: float, name: str) -> None:
    if not 0 < value < 1:
        raise InputError(f"{name} must lie between 0 and 1, both excluded; got {value}")


def _check_enough(
    belief: Ints, groups: Mapping[str, int] | None, accuracy: float, confidence: float
) -> None:
    """Fewer samples than an errorless certificate takes cannot certify anything."""
    least = least_samples(accuracy, confidence)
    if groups is None:
        held, among, whose = len(belief), "", ""
    else:
        rarest = min(groups, key=lambda name: int((belief == groups[name]).sum()))
        held = int((belief == groups[rarest]).sum())
        among, whose = " in each believed class", f" believed to be {rarest}"
    if held < least:
        raise SelectionError(
            f"too few samples: certifying an accuracy of {accuracy:.4g} with confidence "
            f"{confidence:.4g} takes at least {least} IK samples without an error{among}, and the "
            f"half that certifies holds {held}{whose}: give at least {2 * least}{among}"
        )
