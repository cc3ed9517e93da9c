"""Guarantee: the largest coverage whose accuracy on IK is certified.

The best of many settings looks better on its validation data than it is, so we cannot quote those
figures. Instead we split the validation data at random into two parts.

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
and so do samples in related groups or duplicates, and trying several seeds, rules or targets on the
same data until one passes: each try is another test, which may fail with probability
1 - `confidence`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from iknow.core.arrays import Floats, Ints, Labels
from iknow.core.rule import Rule, axes_of, has_k
from iknow.core.text import as_real
from iknow.errors import InputError, SelectionError
from iknow.rules import RULES
from iknow.selection.binomial import least_samples, lower_bounds, p_values, samples_needed
from iknow.selection.candidates import Candidate, Part, find_candidates, rank
from iknow.selection.coverage import check_validation
from iknow.selection.selection import Certificate, Selection, ValidationEvidence, record_selection

SHARE_TO_CHOOSE = 5
"""One sample in five chooses and four certify: a bound takes many samples and a choice few."""


def certify(
    evidence: ValidationEvidence,
    belief: Ints,
    y_true: Ints,
    rule: type[Rule],
    *,
    accuracy: float,
    confidence: float = 0.95,
    each_class: bool = False,
    classes: Labels | None = None,
    k: int | None = None,
    time_limit: float = 60.0,
    random_state: int = 0,
) -> Selection:
    """Choose the setting of largest coverage whose accuracy on IK is certified to reach a target.

    Args:
        evidence: Evidence about n validation samples, by layer.
        belief: What the model believes, as class codes of shape (n,).
        y_true: The truth, as class codes of shape (n,).
        rule: A rule with a radius, such as `Ball`.
        accuracy: The accuracy on IK to certify, between 0 and 1.
        confidence: Probability, over the draw of the validation data, that the promise holds.
        each_class: Certify each class by itself; classes that fail are never IK.
        classes: Labels of shape (n_classes,), to name classes in the certificate and in errors.
        k: Number of neighbors, for rules that use it.
        time_limit: Seconds that the search for candidates may take.
        random_state: Seed for the split into samples that choose and samples that certify.

    Raises:
        SelectionError: Nothing can be certified. The message says how close it came and about how
            many samples it would take. There is no fallback.

    Examples:
        >>> sure = certify(evidence, belief, y_true, Ball, accuracy=0.9, confidence=0.9)
        >>> print(f"at least {sure.certificate.bound:.3f} on {sure.coverage:.2f}")
        at least 0.914 on 0.76
    """
    data = evidence, belief, y_true
    check_validation(*data)
    if not axes_of(rule):
        able = ", ".join(name for name, each in RULES.items() if axes_of(each))
        raise SelectionError(
            f"only rules with parameters to choose can be certified: {able}; got {rule.__name__}"
        )
    if has_k(rule) and k is None:
        raise InputError(f"{rule.__name__} needs k, the number of neighbors; got None")
    first, second = split(Part(*data), random_state)
    least = check_enough(second, each_class, accuracy, confidence)
    eligible = find_eligible(second, least) if each_class else None
    settings, proven = find_candidates(first, rule, k, time_limit)
    ranked = rank(settings, first, eligible, accuracy, least / len(second))
    best, certificate = try_in_turn(ranked, second, accuracy, confidence, classes, proven)
    return record_selection(
        *data,
        best.neighborhoods,
        method="certified",
        certificate=certificate,
        knowable=best.classes,
    )


def try_in_turn(
    candidates: Sequence[Candidate],
    second: Part,
    accuracy: float,
    confidence: float,
    classes: Labels | None,
    proven: bool = True,
) -> tuple[Candidate, Certificate]:
    """The candidate of largest coverage among those that pass before the first that fails.

    candidates: in an order that does not depend on `second`, the samples that certify.
    """
    tests = (_Test(candidate, second) for candidate in candidates)  # none after the first failure
    passed = list(takewhile(lambda test: test.p_value(accuracy) <= 1 - confidence, tests))
    if not passed:
        every = [_Test(candidate, second) for candidate in candidates]
        raise _nothing_certified(every, accuracy, confidence, classes)
    best = max(passed, key=lambda test: int(test.counts.sum()))
    bounds = best.bounds(confidence)
    by_class, knowable = None, best.candidate.classes
    if knowable is not None:
        named = [_name(code, classes) for code in knowable]
        by_class = dict(zip(named, bounds.tolist(), strict=True))
    certificate = Certificate(
        accuracy=float(accuracy),
        confidence=float(confidence),
        bound=float(bounds.min()),
        known=int(best.counts.sum()),
        errors=int(best.errors.sum()),
        n_samples=len(second),
        tested=min(len(passed) + 1, len(candidates)),
        procedure="fixed-sequence exact binomial tests on held-out samples",
        proven=proven,
        by_class=by_class,
    )
    return best.candidate, certificate


def split(whole: Part, random_state: int, share: int = SHARE_TO_CHOOSE) -> tuple[Part, Part]:
    """The samples that choose, one in `share`, and those that certify, drawn at random."""
    order = np.random.default_rng(random_state).permutation(len(whole))
    cut = max(1, len(order) // share)
    return whole[np.sort(order[:cut])], whole[np.sort(order[cut:])]


class _Test:
    """The IK samples and errors of a candidate, in total or for each of its classes."""

    def __init__(self, candidate: Candidate, part: Part) -> None:
        self.candidate = candidate
        self.n_samples = len(part)
        self.counts, self.errors = candidate.count(part)

    def p_value(self, accuracy: float) -> float:
        """The exact p-value of "some class's accuracy is below the target"; 1 without samples."""
        return float(p_values(self.errors, self.counts, accuracy).max())

    def bounds(self, confidence: float) -> Floats:
        """The lower confidence bound on the accuracy in each class."""
        return lower_bounds(self.errors, self.counts, confidence)

    def total_needed(self, accuracy: float, confidence: float) -> int | None:
        """About how many samples, in both parts, would certify it if its error rates stay."""
        shares = []
        for count, errors in zip(self.counts, self.errors, strict=True):
            needed = samples_needed(accuracy, confidence, errors / count) if count else None
            if needed is None:
                return None
            shares.append(needed / count)
        return _with_those_that_choose(self.n_samples * max(shares))


def _nothing_certified(
    tests: Sequence[_Test], accuracy: float, confidence: float, classes: Labels | None
) -> SelectionError:
    """The error that says how close it came and about how many samples it would take."""
    if not tests:
        return SelectionError(
            "nothing can be certified: wherever there are IK samples, too many of them are wrong, "
            "or each class has too few"
        )
    failed = tests[0]  # the others were not tested: only their error rates count below
    bounds = failed.bounds(confidence)
    weakest = int(bounds.argmin())
    whose = ""
    if (tested := failed.candidate.classes) is not None:
        whose = f" believed to be {_name(tested[weakest], classes)}"
    message = (
        f"no setting is certified to be right on {accuracy:.4g} of IK with confidence "
        f"{confidence:.4g}: the most promising reaches a lower bound of "
        f"{bounds[weakest]:.4g} ({failed.counts[weakest]} IK samples{whose}, "
        f"{failed.errors[weakest]} wrong). "
    )
    totals = [test.total_needed(accuracy, confidence) for test in tests]
    enough = min((total for total in totals if total is not None), default=None)
    if enough is None:
        return SelectionError(
            message + "At these error rates no number of samples would be enough: ask for less, "
            "or use other layers, another rule or a better model"
        )
    given = _with_those_that_choose(failed.n_samples)
    amount = f"About {enough}" if enough > given else f"More than {given}"
    return SelectionError(
        message + f"{amount} validation samples would be needed if the error rates stay; "
        "or ask for less, on other samples: each further try on these adds its own risk"
    )


def _with_those_that_choose(n_certifying: float) -> int:
    """The least number of samples that leaves `n_certifying` to certify."""
    return int(np.ceil(n_certifying * SHARE_TO_CHOOSE / (SHARE_TO_CHOOSE - 1)))


def find_eligible(certifying: Part, least: int) -> Ints:
    """Codes of the classes that are believed often enough to be certified one by one."""
    codes, counts = np.unique(certifying.belief, return_counts=True)
    return np.asarray(codes[counts >= least])


def check_enough(certifying: Part, each_class: bool, accuracy: float, confidence: float) -> int:
    """The number of samples that a certificate takes without any error; refuse to try with less."""
    for value, name in ((accuracy, "accuracy"), (confidence, "confidence")):
        as_real(value, name, "lie between 0 and 1, both excluded", lambda number: 0 < number < 1)
    least = least_samples(accuracy, confidence)
    held, among = len(certifying), ""
    if each_class:
        held = int(np.bincount(certifying.belief, minlength=1).max())
        among = " in a believed class"
    if held < least:
        raise SelectionError(
            f"too few samples: certifying an accuracy of {accuracy:.4g} with confidence "
            f"{confidence:.4g} takes at least {least} IK samples without an error{among}, and the "
            f"part that certifies holds {held}: give at least {_with_those_that_choose(least)}"
            f"{among}"
        )
    return least


def _name(code: int, classes: Labels | None) -> str:
    return str(code if classes is None else classes[code])
