"""The accuracy on IK, from labels that arrive later, against what was certified.

Two statements, each valid at all times however often one looks:

An alarm. The hypothesis is that each labeled IK is wrong with a probability, given the past, of at
most q = 1 - certified. A gambler who expects errors at a rate r > q multiplies the capital by r / q
for an error and by (1 - r) / (1 - q) for a right answer. Under the hypothesis the expected factor
is at most 1, so the capital ever reaches 1 / rate with probability `rate` at most. It is
spread over several r, and again and again (`iknow.serve.monitor.martingale`), so that a late
change shows too.

A confidence sequence for the average accuracy so far, of confidence 1 - rate.

Both are about the answers whose labels arrive. If labels arrive for the wrong answers first, as
complaints do, neither says anything about the others: label a random part. And a certificate holds
itself only with its confidence: where it fails, the alarm is right to ring.

Such a sequence is an interval for an average that is right at all times at once. Errors e_1,
e_2, ... are 0 or 1, and m_t is the probability of an error given the past. For any λ

    exp(λ k_n) / Π_t (1 + (e^λ - 1) m_t),        k_n = e_1 + ... + e_n

is a martingale that starts at 1: each factor has conditional mean 1. The logarithm of
1 + (e^λ - 1) m is concave in m, so the product is at most the power with the average m̄ of the m_t:

    W(m̄) = exp(λ k_n) / (1 + (e^λ - 1) m̄)^n  <=  the martingale

and so is a mixture over λ. By Ville's inequality W(m̄) reaches 2/α at any n with probability α/2 at
most. Positive λ speak against an m̄ that is too low, negative ones against one too high. The
averages against which neither speaks form the interval; it covers m̄ at all times at once with
probability 1 - α.

The m_t may change, and depend on the past: the interval is about their average so far. The λ are a
fixed grid that does not depend on m̄, as the inequality needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Annotated, Any, Literal, Self

import numpy as np
from msgspec import Meta

from iknow.core.arrays import Floats
from iknow.errors import InputError
from iknow.selection.record import from_plain, to_plain
from iknow.serve.monitor.gamblers import Alarm, Gamblers, as_rate, check_state
from iknow.serve.monitor.martingale import as_evidence

TILTS: Floats = 2.0 ** np.arange(-12, 4.5, 0.5)
"""|λ|, from what tells most about ten million samples to what tells most without any error."""

HALVINGS = 60
ODDS: Floats = np.array([1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0])
"""How many times higher than certified the odds of an error may be; the first makes no bet."""

Count = Annotated[int, Meta(ge=0)]


def bound_errors(errors: int, n: int, alpha: float) -> tuple[float, float]:
    """The interval for the average probability of an error, after `errors` in `n` samples.

    Examples:
        >>> low, high = bound_errors(5, 1000, alpha=0.05)
        >>> print(f"{low:.4f} to {high:.4f}")
        0.0005 to 0.0172
    """

    def find_end(refuted: float, sign: int) -> float:
        """The last average that is refuted from one end of all, or that end itself."""
        tilts, kept, average = sign * TILTS, errors / n, refuted
        for _ in range(1 + HALVINGS):
            with np.errstate(divide="ignore"):  # all samples wrong, and the average 0
                logs = tilts * errors - n * np.log1p(np.expm1(tilts) * average)
            highest = logs.max()
            if highest + np.log(np.exp(logs - highest).mean()) >= np.log(2 / alpha):
                refuted = average
            else:
                kept = average
            average = (refuted + kept) / 2
        return refuted

    return (find_end(0.0, 1), find_end(1.0, -1)) if n else (0.0, 1.0)


@dataclass(frozen=True)
class AccuracyReport:
    """What labels say about the accuracy on IK.

    Attributes:
        samples: Number of labeled IK.
        right: Number of right ones.
        low: Lower end of the confidence sequence for the average accuracy so far.
        high: Its upper end.
        confidence: Probability that it holds at all times.
        certified: The certified accuracy; None if there is none, and then no alarm.
        evidence: The capital now: evidence that the accuracy is below the certified one.
        highest: The highest evidence so far.
        threshold: The evidence at which the alarm rings.
        alarmed_at: The number of the labeled IK at which it rang; None if it did not.
    """

    samples: int
    right: int
    low: float
    high: float
    confidence: float
    certified: float | None
    evidence: float
    highest: float
    threshold: float
    alarmed_at: int | None

    @property
    def accuracy(self) -> float | None:
        """The share of right ones; None without any label."""
        return self.right / self.samples if self.samples else None

    @property
    def alarmed(self) -> bool:
        """Whether the alarm rang."""
        return self.alarmed_at is not None


@dataclass(eq=False)
class AccuracyState:
    """The whole state of a monitor."""

    format: Literal[1]
    certified: float | None
    rate: float
    samples: Count
    errors: Count
    gamblers: Gamblers


class AccuracyMonitor:
    """Watches the accuracy on IK as labels arrive.

    Args:
        certified: The accuracy to hold, `selection_.certificate.accuracy`; None only estimates.
        rate: The probability that the alarm ever rings while the accuracy holds, at most; and that
            the confidence sequence ever fails.

    Examples:
        >>> monitor = AccuracyMonitor(0.99, rate=0.01)
        >>> monitor.update(np.ones(1000, dtype=bool))
        ()
        >>> monitor.update(np.arange(100) % 10 > 0)[0].sample  # one in ten wrong
        1081
    """

    def __init__(self, certified: float | None, rate: float = 0.01) -> None:
        self.certified = None if certified is None else as_rate(certified, "certified")
        self.rate = as_rate(rate)
        self._lock = Lock()
        gamblers = Gamblers.begin(1, len(ODDS))
        self._state = AccuracyState(1, self.certified, self.rate, 0, 0, gamblers)

    def update(self, right: Any) -> tuple[Alarm, ...]:
        """Take in labels of n answers that were IK, in the order of their arrival.

        Args:
            right: Whether each answer was right, booleans of shape (n,).

        Returns:
            The alarm, if these labels set it off.
        """
        given = np.asarray(right)
        if given.ndim != 1 or (given.dtype != np.bool_ and given.size):
            raise InputError(
                f"right must be booleans of shape (n,); got {given.dtype} of shape {given.shape}"
            )
        with self._lock:
            state, before = self._state, self._state.samples
            state.samples += len(given)
            state.errors += int((~given.astype(bool)).sum())
            if self.certified is None or not len(given):
                return ()
            known, thresholds = len(state.gamblers.rang), np.array([1 / self.rate])
            factors = _factors(1 - self.certified)[(~given).astype(int)]
            found = state.gamblers.play(0, factors)[:, None]
            which = np.zeros(found.shape, dtype=np.int64)
            state.gamblers.ring(which, found, before, thresholds)
            return state.gamblers.alarms([("accuracy", "")], thresholds)[known:]

    def report(self) -> AccuracyReport:
        """Return the accuracy so far and the evidence against the certificate."""
        with self._lock:
            state, gamblers = self._state, self._state.gamblers
            samples, errors = state.samples, state.errors
            evidence, highest = (as_evidence(each[0]) for each in (gamblers.now, gamblers.highest))
            alarmed_at = int(gamblers.rang_at[0]) or None
        low, high = bound_errors(errors, samples, self.rate)
        return AccuracyReport(
            samples=samples,
            right=samples - errors,
            low=1 - high,
            high=1 - low,
            confidence=1 - self.rate,
            certified=self.certified,
            evidence=evidence,
            highest=highest,
            threshold=1 / self.rate,
            alarmed_at=alarmed_at,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the whole state as plain values for JSON, so that a restart changes nothing."""
        with self._lock:
            return dict(to_plain(self._state))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], rate: float | None = None) -> Self:
        """Return the monitor whose `to_dict` wrote the `record`, to go on where it was.

        It rings at this `rate` from now on; None keeps that of the record. An `InputError` says
        that the state is damaged, or of another format.
        """
        state = from_plain(AccuracyState, record, "the state of a monitor")
        monitor = cls(state.certified, state.rate if rate is None else rate)
        check_state(state, monitor._state)
        if not state.errors <= state.samples >= int(state.gamblers.rang_at[0]):
            raise InputError("the numbers in the state of a monitor do not fit each other")
        monitor._state, state.rate = state, monitor.rate
        return monitor


def _factors(allowed: float) -> Floats:
    """What each bet wins on a right answer and on a wrong one, of shape (2, n_bets)."""
    rates = allowed * ODDS / (1 - allowed + allowed * ODDS)
    return np.stack([(1 - rates) / (1 - allowed), rates / allowed])
