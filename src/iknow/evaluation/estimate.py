"""The accuracy of samples without labels, estimated from how likely each belief is right.

It takes for granted that these samples come like the labeled ones that taught the probabilities
(`iknow.core.calibration`). Where they do not it is wrong, and no figure can say by how much; but
every sample like nothing seen before widens the interval, and their share is told beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from iknow.cards import bar, card, heading, mark, paragraphs, table
from iknow.core.arrays import Ints
from iknow.core.assertion import Assertion
from iknow.core.calibration import Calibration
from iknow.core.text import percent
from iknow.explain.assessment import Assessment

HEADINGS = ("", "samples", "fraction", "accuracy", "between")


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

    counts = property(lambda self: self.tally.sum(axis=1) + self.unanswered)  # by assertion
    n_samples = property(lambda self: int(self.counts.sum()))
    accuracy = property(lambda self: self.of(*Assertion)[0])
    interval = property(lambda self: self.of(*Assertion)[1:])
    unseen = property(lambda self: float(self.tally[:, 0].sum() / max(self.tally.sum(), 1)))

    def __add__(self, other: Estimate) -> Estimate:
        unanswered = self.unanswered + other.unanswered
        return replace(self, tally=self.tally + other.tally, unanswered=unanswered)

    def of(self, *assertions: Assertion) -> tuple[float, float, float]:
        """Return the estimated accuracy of the beliefs among some `assertions`, and between which
        two numbers it is in 19 of 20 cases; NaN without a belief.
        """
        return self.calibration.estimate(self.tally[list(assertions)].sum(axis=0))

    def __str__(self) -> str:
        lines = ["{:<8}{:>9}{:>10}{:>10}   {}".format(*row) for row in (HEADINGS, *self._rows())]
        return "\n".join([self._title(), "", *lines, "", *self._remarks()])

    def _repr_html_(self) -> str:
        counts = {assertion: int(self.counts[assertion]) for assertion in reversed(Assertion)}
        rows = [(mark(Assertion[name]), *told) for name, *told in self._rows()]
        return card(
            heading("Estimate", self._title()),
            bar(counts, self.n_samples),
            table(HEADINGS, rows, margin="12px 0 0"),
            paragraphs(self._remarks()),
        )

    def _title(self) -> str:
        told = ", between ".join(_told(self.of(*Assertion)))
        return f"{self.n_samples:,} samples without labels, estimated accuracy {told}"

    def _rows(self) -> list[tuple[str, ...]]:
        n, counts = self.n_samples, self.counts.tolist()
        return [
            (each.name, f"{counts[each]:,}", percent(counts[each] / n), *_told(self.of(each)))
            for each in reversed(Assertion)
        ]

    def _remarks(self) -> list[str]:
        taught, silent = self.calibration.counts, int(self.unanswered.sum())
        usual = percent(taught[0] / taught.sum())
        return [
            f"if they come like the {taught.sum():,} labeled samples that tune learned from",
            f"unlike anything seen before: {percent(self.unseen)}; of the labeled ones {usual}",
            *([f"no answer: {silent}, not counted as right or wrong"] if silent else []),
        ]


def _told(found: tuple[float, float, float]) -> tuple[str, str]:
    accuracy, low, high = (percent(each, "-") for each in found)
    return accuracy, f"{low} and {high}"


def estimate(assessment: Assessment) -> Estimate | None:
    """The estimate of an assessment; None if nothing says how likely its beliefs are right."""
    if (calibration := assessment.calibration) is None:
        return None
    level, probability = assessment.level, assessment.probability
    groups = [np.asarray(assessment.assertion) == each for each in Assertion]
    tally = np.stack([calibration.tally(level[one], probability[one]) for one in groups])
    return Estimate(calibration, tally, np.array([one.sum() for one in groups]) - tally.sum(axis=1))
