"""Guarantee: the largest coverage whose accuracy on IK is certified.

Choosing a setting by its validation figures and then quoting those figures is not honest: the best
of many looks better than it is. Here the validation data is split at random into two parts.

On a fifth of it candidates are found: for several prices of an error, the setting that maximises
right IK answers minus price times wrong ones, exactly (`deepest_point` takes negative weights).
They are put in order, the one most likely to pass first, by that part alone.

On the rest each candidate in turn is tested against "its accuracy on IK is below the target". Given
the number of IK samples their errors are binomial, so

    p = P(Binomial(known, 1 - target) <= errors)

is an exact p-value, and a candidate passes if p <= 1 - confidence. The first that fails ends the
test. In such a fixed sequence no correction is needed: for a bad candidate to be accepted, the
first bad one in the order, which does not depend on the second part, must pass, and that has
probability at most 1 - confidence. This is fixed-sequence testing in the sense of Learn then Test
(Angelopoulos and others, 2021). Of those that pass, the one of largest coverage is chosen.

With `each_class` a candidate is a setting together with the classes that a belief may be in to be
IK; beliefs in any other are never IK (`Selection.knowable`). It passes only if the samples of every
one of its classes pass by themselves. As all of them must, no correction is needed for that either
(an intersection-union test). Which classes these are is decided by the first part; of the second
only its beliefs are looked at, and given the beliefs the errors of a class are still binomial. So a
class that is rarely believed, or often wrong, cannot slip through by not being seen: who has no
certificate is not known.

What is promised: over the draw of the validation data, the probability that a setting is certified
whose accuracy on IK (in some class that may be IK) is below the target is at most 1 - `confidence`,
for data drawn as the validation data was. It counts one call on independent samples. Drift breaks
it, and so do samples that come in related groups or several times, and trying several seeds, rules
or targets on the same data until one passes: those are further tests, and each may fail with
probability 1 - `confidence`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from numbers import Real
from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Ints, Labels
from iknow.core.neighborhood import Neighborhood, axes_of, has_k
from iknow.errors import InputError, SelectionError
from iknow.rules import RULES
from iknow.selection.binomial import least_samples, lower_bounds, p_values, samples_needed
from iknow.selection.candidates import Candidate, Part, find_candidates, rank
from iknow.selection.coverage import check_validation
from iknow.selection.selection import (
    Certificate,
    Selection,
    ValidationEvidence,
    record_selection,
)

SHARE_TO_CHOOSE = 5
"""One sample in so many chooses; the others certify, as a bound takes many and a choice few."""


def certify(
    evidence: ValidationEvidence,
    belief: Ints,
    y_true: Ints,
    rule: type[Neighborhood],
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
        rule: A neighborhood with a radius, such as `Ball`.
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
    check_validation(evidence, belief, y_true)
    _check_probability(accuracy, "accuracy")
    _check_probability(confidence, "confidence")
    if not axes_of(rule):
        able = ", ".join(name for name, each in RULES.items() if axes_of(each))
        raise SelectionError(
            f"only rules with parameters to choose can be certified: {able}; got {rule.__name__}"
        )
    if has_k(rule) and k is None:
        raise InputError(f"{rule.__name__} needs k, the number of neighbours; got None")
    names = _Names(classes)
    first, second = split(Part(evidence, belief, y_true), random_state)
    least = least_samples(accuracy, confidence)
    eligible = _find_eligible(second.belief, least, each_class)
    _check_enough(second, eligible, least, accuracy, confidence)
    settings, proven = find_candidates(first, rule, k, time_limit)
    ranked = rank(settings, first, eligible, accuracy, least / len(second))
    tests = [_Test(candidate, second) for candidate in ranked]
    best, tested = _best_that_passes(tests, accuracy, confidence, names)
    bounds = best.bounds(confidence)
    knowable = best.candidate.classes
    certificate = Certificate(
        accuracy=float(accuracy),
        confidence=float(confidence),
        bound=float(bounds.min()),
        known=int(best.counts.sum()),
        errors=int(best.errors.sum()),
        n_samples=len(second),
        tested=tested,
        procedure="fixed-sequence exact binomial tests on held-out samples",
        proven=proven,
        by_class=None
        if knowable is None
        else dict(zip(map(names.of, knowable), bounds.tolist(), strict=True)),
    )
    return record_selection(
        evidence,
        belief,
        y_true,
        best.candidate.neighborhoods,
        method="certified",
        certificate=certificate,
        knowable=knowable,
    )


def split(whole: Part, random_state: int) -> tuple[Part, Part]:
    """The samples that choose and those that certify, drawn at random."""
    order = np.random.default_rng(random_state).permutation(len(whole))
    cut = max(1, len(order) // SHARE_TO_CHOOSE)
    return whole[np.sort(order[:cut])], whole[np.sort(order[cut:])]


@dataclass(frozen=True)
class _Names:
    """Classes by the names their users know."""

    classes: Labels | None

    def of(self, code: int) -> str:
        return str(code if self.classes is None else self.classes[code])


class _Test:
    """One candidate's IK samples and errors, in all or in each of its classes."""

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
        """About how many samples, in both parts, would certify it at its rates of errors."""
        shares = []
        for count, errors in zip(self.counts, self.errors, strict=True):
            needed = samples_needed(accuracy, confidence, errors / count) if count else None
            if needed is None:
                return None
            shares.append(needed / count)
        return _with_those_that_choose(self.n_samples * max(shares))


def _best_that_passes(
    tests: Sequence[_Test], accuracy: float, confidence: float, names: _Names
) -> tuple[_Test, int]:
    """The widest of the candidates before the first that fails, and how many were tested."""
    passed = list(takewhile(lambda test: test.p_value(accuracy) <= 1 - confidence, tests))
    if not passed:
        raise _nothing_certified(tests, accuracy, confidence, names)
    return max(passed, key=lambda test: int(test.counts.sum())), min(len(passed) + 1, len(tests))


def _nothing_certified(
    tests: Sequence[_Test], accuracy: float, confidence: float, names: _Names
) -> SelectionError:
    """The error that says how far it got and about how many samples would be needed."""
    if not tests:
        return SelectionError(
            "nothing can be certified: wherever there are IK samples, too many of them are wrong, "
            "or in each class there are too few"
        )
    failed = tests[0]  # the others were not tested: they are only asked for their rates of errors
    bounds = failed.bounds(confidence)
    weakest = int(bounds.argmin())
    classes = failed.candidate.classes
    whose = "" if classes is None else f" believed to be {names.of(classes[weakest])}"
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
    given = _with_those_that_choose(failed.n_samples)
    amount = f"About {enough}" if enough > given else f"More than {given}"
    return SelectionError(
        message + f"{amount} validation samples would be needed if the rates of errors stay; "
        "or ask for less, on other samples: each further try on these adds its own risk"
    )


def _with_those_that_choose(n_certifying: float) -> int:
    """The least number of samples of which so many certify."""
    return int(np.ceil(n_certifying * SHARE_TO_CHOOSE / (SHARE_TO_CHOOSE - 1)))


def _find_eligible(belief: Ints, least: int, each_class: bool) -> Ints | None:
    """The classes believed often enough to be certified one by one, if they are to be."""
    if not each_class:
        return None
    codes, counts = np.unique(belief, return_counts=True)
    eligible: Ints = codes[counts >= least]
    return eligible


def _check_enough(
    certifying: Part, eligible: Ints | None, least: int, accuracy: float, confidence: float
) -> None:
    """Fewer samples than an errorless certificate takes cannot certify anything."""
    held, among = len(certifying), ""
    if eligible is not None:
        held = int(np.bincount(certifying.belief, minlength=1).max())
        among = " in a believed class"
    if held < least:
        raise SelectionError(
            f"too few samples: certifying an accuracy of {accuracy:.4g} with confidence "
            f"{confidence:.4g} takes at least {least} IK samples without an error{among}, and the "
            f"part that certifies holds {held}: give at least {_with_those_that_choose(least)}"
            f"{among}"
        )


def _check_probability(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
        raise InputError(f"{name} must lie between 0 and 1, both excluded; got {value}")
