"""The accuracy of samples without labels, estimated from how likely each belief is right.

It takes for granted that these samples come like the labeled ones that taught the probabilities
(`iknow.core.calibration`). Where they do not it is wrong, and no figure can say by how much; but
what resembles nothing seen before is at level 0, where a belief is thought more likely wrong, and
every such sample widens the interval. So the share of these is told beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from iknow.cards import bar, card, heading, mark, paragraphs, table
from iknow.core.arrays import Ints
from iknow.core.assertion import Assertion
from iknow.core.calibration import Calibration
from iknow.core.text import percent
from iknow.explain.assessment import Assessment


@dataclass(frozen=True, eq=False)
class Estimate:
    """The estimated accuracy of samples without labels; `evaluate` makes it.

    The sum of two is that of all their samples, if one classifier assessed them.

    Attributes:
        calibration: Where the probabilities come from.
        tally: Number of samples by assertion (IDK, IMK, IK) and step of the calibration, the first
            of which is level 0, of shape (3, n_steps + 1).
        unanswered: Number of samples without a belief, by assertion, of shape (3,).
    """

    calibration: Calibration
    tally: Ints
    unanswered: Ints

    def __add__(self, other: Estimate) -> Estimate:
        unanswered = self.unanswered + other.unanswered
        return replace(self, tally=self.tally + other.tally, unanswered=unanswered)

    @property
    def n_samples(self) -> int:
        return int(self.counts.sum())

    @property
    def counts(self) -> Ints:
        """Number of samples by assertion, of shape (3,)."""
        return np.asarray(self.tally.sum(axis=1) + self.unanswered)

    @property
    def accuracy(self) -> float:
        """The estimated accuracy of the belief, whatever was asserted; NaN without a belief."""
        return self.of(*Assertion)[0]

    @property
    def interval(self) -> tuple[float, float]:
        """Between which two numbers the accuracy is, in 19 of 20 cases."""
        return self.of(*Assertion)[1:]

    @property
    def unseen(self) -> float:
        """The share of samples with a belief at level 0."""
        return float(self.tally[:, 0].sum() / max(self.tally.sum(), 1))

    def of(self, *assertions: Assertion) -> tuple[float, float, float]:
        """Return the estimated accuracy among some `assertions`, and its interval."""
        return self.calibration.estimate(self.tally[list(assertions)].sum(axis=0))

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values for JSON; an accuracy of no samples is None."""
        accuracy, low, high = (None if np.isnan(x) else x for x in self.of(*Assertion))
        counts = {each.name: int(self.counts[each]) for each in Assertion}
        return {"n_samples": self.n_samples, "accuracy": accuracy, "low": low, "high": high,
                "unseen": self.unseen, **counts}  # fmt: skip

    def rows(self, dash: str = "–") -> list[tuple[str, int, str, str, str]]:
        """Return name, count, fraction, estimated accuracy and its interval of each assertion.

        An accuracy of no samples is a `dash`.
        """
        return [
            (a.name, n, percent(n / self.n_samples), percent(found[0], dash), _between(found, dash))
            for a in reversed(Assertion)
            for n, found in ((int(self.counts[a]), self.of(a)),)
        ]

    def remarks(self) -> list[str]:
        """What the figures take for granted, and how much is like nothing seen before."""
        taught = self.calibration.counts
        usual = percent(taught[0] / taught.sum())
        silent = int(self.unanswered.sum())
        return [
            f"if they come like the {taught.sum():,} labeled samples that tune learned from",
            f"unlike anything seen before: {percent(self.unseen)}; of the labeled ones {usual}",
            *([f"no answer: {silent}, not counted as right or wrong"] if silent else []),
        ]

    def __str__(self) -> str:
        rows = [("", "samples", "fraction", "accuracy", "between"), *self.rows("-")]
        lines = ["{:<8}{:>9}{:>10}{:>10}   {:<}".format(*row) for row in rows]
        return "\n".join([f"{self._title}", "", *lines, "", *self.remarks()])

    def _repr_html_(self) -> str:
        counts = {assertion: int(self.counts[assertion]) for assertion in reversed(Assertion)}
        rows = [(mark(Assertion[name]), f"{n:,}", *told) for name, n, *told in self.rows()]
        return card(
            heading("Estimate", self._title),
            bar(counts, self.n_samples),
            table(("", "samples", "fraction", "accuracy", "between"), rows, margin="12px 0 0"),
            paragraphs(self.remarks()),
        )

    @property
    def _title(self) -> str:
        found = self.of(*Assertion)
        return (
            f"{self.n_samples:,} samples without labels, estimated accuracy {percent(found[0])}, "
            f"between {_between(found, '-')}"
        )


def _between(found: tuple[float, float, float], dash: str) -> str:
    return dash if np.isnan(found[0]) else f"{percent(found[1])} and {percent(found[2])}"


def estimate(assessment: Assessment) -> Estimate | None:
    """The estimate of an assessment; None if nothing says how likely its beliefs are right."""
    if (calibration := assessment.calibration) is None:
        return None
    assertion = np.asarray(assessment.assertion)
    level, probability = assessment.level, assessment.probability
    groups = [assertion == each for each in Assertion]
    return Estimate(
        calibration,
        tally=np.stack([calibration.tally(level[one], probability[one]) for one in groups]),
        unanswered=np.array([int((one & ~assessment.answered).sum()) for one in groups]),
    )
