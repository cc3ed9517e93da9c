"""Approximation: how much an approximate search changed, measured on validation data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from iknow.core.assertion import Assertion, Assertions
from iknow.core.text import percent
from iknow.errors import InputError
from iknow.selection.binomial import lower_bounds


@dataclass(frozen=True)
class Approximation:
    """How the assertions of an approximate search compare with those of exact search.

    Attributes:
        index: The index, with its parameters.
        n_samples: Number of validation samples that were compared.
        differing: How many of them have another assertion.
        known: How many are IK by the approximate search.
        false_known: How many of these are not IK by exact search.
        confidence: Probability, over the draw of the samples, with which each bound below holds.

    Examples:
        >>> a = Approximation("FaissIndex(kind='hnsw', mode='fast')", 1000, 21, 700, 16)
        >>> print(a.differing_share, round(a.most_false_known, 3))
        0.021 0.035
    """

    index: str
    n_samples: int
    differing: int
    known: int
    false_known: int
    confidence: float = 0.95

    def __post_init__(self) -> None:
        counts = self.n_samples, self.differing, self.known, self.false_known
        fits = self.false_known <= min(self.known, self.differing) and min(counts) >= 0
        if not (fits and max(self.differing, self.known) <= self.n_samples):
            raise InputError(
                "of n_samples some differ and some are known, and of both some are falsely known; "
                f"got {counts}"
            )
        if not 0 < self.confidence < 1:
            raise InputError(f"confidence must lie between 0 and 1; got {self.confidence}")

    @property
    def differing_share(self) -> float:
        """The share of samples whose assertion differs; 0 if there are none."""
        return self.differing / max(1, self.n_samples)

    @property
    def false_known_share(self) -> float:
        """The share of the samples that are IK, but not by exact search; 0 if none is IK."""
        return self.false_known / max(1, self.known)

    @property
    def most_differing(self) -> float:
        """The upper confidence bound on the share that differs, exactly binomial."""
        return _upper_bound(self.differing, self.n_samples, self.confidence)

    @property
    def most_false_known(self) -> float:
        """The upper confidence bound on the share of IK that is not IK, exactly binomial."""
        return _upper_bound(self.false_known, self.known, self.confidence)

    def sentence(self) -> str:
        """The same in words."""
        return (
            f"Search is approximate, {self.index}: of {self.n_samples:,} validation samples "
            f"{percent(self.differing_share)} are asserted otherwise than by exact search (at most "
            f"{percent(self.most_differing)}), and of {self.known:,} IK {self.false_known:,} are "
            f"not IK (at most {percent(self.most_false_known)}; each with confidence "
            f"{self.confidence:g})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain values for JSON."""
        return asdict(self)


def compare_assertions(index: str, found: Assertions, exact: Assertions) -> Approximation:
    """How assertions of an approximate search, of shape (n,), compare with exact ones."""
    known = found == Assertion.IK
    return Approximation(
        index,
        len(found),
        int(np.sum(found != exact)),
        int(known.sum()),
        int(np.sum(known & (exact != Assertion.IK))),
    )


def _upper_bound(count: int, n: int, confidence: float) -> float:
    return float(1 - lower_bounds(np.array(count), np.array(n), confidence))
