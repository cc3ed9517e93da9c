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
fixed grid that does not depend on m̄, as the inequality needs it. (A beta-binomial mixture, Robbins
1970, is about as wide, but needs errors with one and the same probability.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from threading import Lock
from typing import Annotated, Any, Literal, Self

import numpy as np
from msgspec import Meta, Struct

from iknow.core.arrays import Floats
from iknow.core.text import as_real
from iknow.errors import InputError
from iknow.serve.monitor.drift import Alarm
from iknow.serve.monitor.martingale import as_evidence, play, start
from iknow.serve.monitor.state import array_from_text, array_to_text, read_state

TILTS: Floats = 2.0 ** np.arange(-12, 4.5, 0.5)
"""|λ|, from what tells most about ten million samples to what tells most without any error."""

HALVINGS = 60


def bound_errors(errors: int, n: int, alpha: float) -> tuple[float, float]:
    """The interval for the average probability of an error, after `errors` in `n` samples.

    Examples:
        >>> low, high = bound_errors(5, 1000, alpha=0.05)
        >>> print(f"{low:.4f} to {high:.4f}")
        0.0005 to 0.0172
    """
    if n == 0:
        return 0.0, 1.0
    limit, share = np.log(2 / alpha), errors / n

    def speaks_against(average: float, sign: int) -> bool:
        tilts = sign * TILTS
        with np.errstate(divide="ignore"):  # all samples wrong, and the average 0
            logs = tilts * errors - n * np.log1p(np.expm1(tilts) * average)
        highest = logs.max()
        return bool(highest + np.log(np.exp(logs - highest).mean()) >= limit)

    return (
        _last_refuted(0.0, share, lambda average: speaks_against(average, 1)),
        _last_refuted(1.0, share, lambda average: speaks_against(average, -1)),
    )


def _last_refuted(refuted: float, kept: float, is_refuted: Callable[[float], bool]) -> float:
    """The end of the interval between an average that is refuted, if any is, and one that is not.

    Rounded outward: the result itself is refuted, or the end of all averages.
    """
    if not is_refuted(refuted):
        return refuted
    for _ in range(HALVINGS):
        middle = (refuted + kept) / 2
        if is_refuted(middle):
            refuted = middle
        else:
            kept = middle
    return refuted


ODDS: Floats = np.array([1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0])
"""How many times higher than certified the odds of an error may be; the first makes no bet."""

ARRAYS = ("stakes", "exponents")
NUMBERS = ("now", "highest", "samples", "errors", "alarmed_at")
Count = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True)
class AccuracyReport:
    """What labels say about the accuracy on IK.

    Attributes:
        samples: Number of labeled IK.
        right: Number of right ones.
        accuracy: Their share; None without any.
        low: Lower end of the confidence sequence for the average accuracy so far.
        high: Its upper end.
        confidence: Probability that it holds at all times.
        certified: The certified accuracy; None if there is none, and then no alarm.
        evidence: The capital now: evidence that the accuracy is below the certified one.
        highest: The highest evidence so far.
        threshold: The evidence at which the alarm rings.
        alarmed: Whether it rang.
        alarmed_at: The number of the labeled IK at which it rang; None if it did not.
    """

    samples: int
    right: int
    accuracy: float | None
    low: float
    high: float
    confidence: float
    certified: float | None
    evidence: float
    highest: float
    threshold: float
    alarmed: bool
    alarmed_at: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


class AccuracyState(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole state of a monitor; its arrays as base64."""

    format: Literal[1]
    certified: float | None
    rate: float
    now: float
    highest: float
    samples: Count
    errors: Count
    alarmed_at: Count
    stakes: str
    exponents: str


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
        def inside(number: float) -> bool:
            return 0 < number < 1

        self.certified = certified
        if certified is not None:
            self.certified = as_real(certified, "certified", "lie between 0 and 1", inside)
        self.rate = as_real(rate, "rate", "lie between 0 and 1", inside)
        self._lock = Lock()
        self._stakes, self._exponents = start((), len(ODDS))
        self._samples = self._errors = self._alarmed_at = 0
        self._now = self._highest = 0.0

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
            before = self._samples
            self._samples += len(given)
            self._errors += int((~given.astype(bool)).sum())
            if self.certified is None or not len(given):
                return ()
            factors = _factors(1 - self.certified)[(~given).astype(int)]
            self._stakes, self._exponents, found = play(
                self._stakes, self._exponents, factors, before
            )
            self._now = float(found[-1])
            self._highest = max(self._highest, float(found.max()))
            enough = np.flatnonzero(found >= -np.log2(self.rate))
            if self._alarmed_at or not len(enough):
                return ()
            self._alarmed_at = before + int(enough[0]) + 1
            evidence = as_evidence(found[enough[0]])
            return (Alarm("accuracy", "", self._alarmed_at, evidence, 1 / self.rate),)

    def report(self) -> AccuracyReport:
        """Return the accuracy so far and the evidence against the certificate."""
        with self._lock:
            samples, errors = self._samples, self._errors
            now, highest, alarmed_at = self._now, self._highest, self._alarmed_at
        low, high = bound_errors(errors, samples, self.rate)
        return AccuracyReport(
            samples=samples,
            right=samples - errors,
            accuracy=(samples - errors) / samples if samples else None,
            low=1 - high,
            high=1 - low,
            confidence=1 - self.rate,
            certified=self.certified,
            evidence=as_evidence(now),
            highest=as_evidence(highest),
            threshold=1 / self.rate,
            alarmed=bool(alarmed_at),
            alarmed_at=alarmed_at or None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the whole state as plain values for JSON, so that a restart changes nothing."""
        with self._lock:
            return {
                "format": 1,
                "certified": self.certified,
                "rate": self.rate,
                **{key: getattr(self, f"_{key}") for key in NUMBERS},
                **{key: array_to_text(getattr(self, f"_{key}")) for key in ARRAYS},
            }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Return the monitor whose `to_dict` wrote the `record`, to go on where it was.

        Raises:
            InputError: The state is damaged, or of another format.
        """
        state = read_state(record, AccuracyState)
        monitor = cls(state.certified, state.rate)
        for key in ARRAYS:
            fresh = getattr(monitor, f"_{key}")
            setattr(monitor, f"_{key}", array_from_text(getattr(state, key), fresh, key))
        for key in NUMBERS:
            setattr(monitor, f"_{key}", getattr(state, key))
        is_finite = np.isfinite([state.now, state.highest]).all()
        if not (is_finite and state.errors <= state.samples >= state.alarmed_at):
            raise InputError("the numbers in the state of a monitor do not fit each other")
        return monitor

    def resume(self, record: Mapping[str, Any]) -> AccuracyMonitor:
        """Return a monitor that goes on where another one, about the same model, was saved.

        It rings at this one's `rate` from now on.

        Args:
            record: What `to_dict` wrote.

        Raises:
            InputError: The state is damaged.
        """
        found = AccuracyMonitor.from_dict(record)
        found.rate = self.rate
        return found


def _factors(allowed: float) -> Floats:
    """What each bet wins on a right answer and on a wrong one, of shape (2, n_bets)."""
    rates = allowed * ODDS / (1 - allowed + allowed * ODDS)
    return np.stack([(1 - rates) / (1 - allowed), rates / allowed])
