"""Tallies: counts of what was said and what is true, and the figures that follow from them.

F_IK, F_IMK, F_IDK are the fractions of the assertions; A_IK and A_¬IK the accuracies of the belief
inside and outside IK. The augmented confusion matrix, one for each assertion, holds all of it.
Tallies of parts of the samples add up, so that no more than a part need be in memory.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from iknow.core.arrays import Ints, Labels
from iknow.core.assertion import Assertion, Reason
from iknow.core.codes import for_json, positions_of
from iknow.core.text import percent
from iknow.errors import InputError

NO_ANSWER = "no answer"
LARGEST_MATRIX = 1 << 30  # bytes
MOST_CELLS_IN_JSON = 1_000_000

Value = TypeVar("Value")


class Figures(ABC, Generic[Value]):
    """The paper's five figures, from the fraction and accuracy of assertions."""

    @abstractmethod
    def fraction(self, assertion: Assertion) -> Value: ...

    @abstractmethod
    def accuracy(self, *assertions: Assertion) -> Value: ...

    @property
    def f_ik(self) -> Value:
        return self.fraction(Assertion.IK)

    @property
    def f_imk(self) -> Value:
        return self.fraction(Assertion.IMK)

    @property
    def f_idk(self) -> Value:
        return self.fraction(Assertion.IDK)

    @property
    def a_ik(self) -> Value:
        return self.accuracy(Assertion.IK)

    @property
    def a_not_ik(self) -> Value:
        return self.accuracy(Assertion.IMK, Assertion.IDK)


@dataclass(frozen=True, eq=False)
class Tally(Figures[float]):
    """Counts of what was said and what is true, and all figures that follow from them.

    The attributes are those of `iknow.evaluation.Report`. Tallies of parts of the samples add up to
    that of the whole: see `merge_tallies`.
    """

    classes: Labels
    true_classes: Labels
    pairs: Ints
    unanswered: Ints
    reasons: dict[Reason, int]

    @cached_property
    def matrix(self) -> Ints:
        """Counts of shape (3, n_classes, n_true): assertion, predicted class, true class."""
        shape = (len(Assertion), len(self.classes), len(self.true_classes))
        if 8 * math.prod(shape) > LARGEST_MATRIX:
            raise InputError(
                f"the confusion matrix of {shape[1]:,} classes would take "
                f"{8 * math.prod(shape) / 1e9:,.1f} GB: use `pairs`, which holds what occurs"
            )
        matrix: Ints = np.zeros(shape, dtype=np.int64)
        assertion, predicted, true, count = self.pairs.T
        matrix[assertion, predicted, true] = count
        return matrix

    @property
    def n_samples(self) -> int:
        return int(self.pairs[:, 3].sum()) + self._silent

    def count(self, *assertions: Assertion) -> int:
        """Return how many samples have one of the `assertions`."""
        chosen = np.isin(self.pairs[:, 0], assertions)
        return int(self.pairs[chosen, 3].sum() + self.unanswered[list(assertions)].sum())

    def wrong(self, *assertions: Assertion) -> int:
        """Return how many samples with one of the `assertions` have a belief that is wrong."""
        chosen = np.isin(self.pairs[:, 0], assertions) & (self.pairs[:, 1] != self.pairs[:, 2])
        return int(self.pairs[chosen, 3].sum())

    def fraction(self, assertion: Assertion) -> float:
        """Return the fraction of samples with `assertion`."""
        return self.count(assertion) / self.n_samples

    def accuracy(self, *assertions: Assertion) -> float:
        """Return the fraction of correct beliefs among the `assertions`; NaN without any."""
        chosen = self.pairs[np.isin(self.pairs[:, 0], assertions)]
        total = int(chosen[:, 3].sum())
        right = int(chosen[chosen[:, 1] == chosen[:, 2], 3].sum())
        return right / total if total else float("nan")

    @property
    def overall_accuracy(self) -> float:
        """Accuracy of the belief, whatever was asserted."""
        return self.accuracy(*Assertion)

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values for JSON; an undefined accuracy is None."""
        figures = {
            "F_IK": self.f_ik, "F_IMK": self.f_imk, "F_IDK": self.f_idk,
            "A_IK": self.a_ik, "A_notIK": self.a_not_ik, "accuracy": self.overall_accuracy,
        }  # fmt: skip
        return {
            "n_samples": self.n_samples,
            **{name: None if np.isnan(value) else value for name, value in figures.items()},
            **({NO_ANSWER.replace(" ", "_"): self._silent} if self._silent else {}),
            "reasons": {reason.name: count for reason, count in self.reasons.items()},
            "classes": for_json(self.classes),
            "true_classes": for_json(self.true_classes),
            **self._counts_for_json(),
        }

    @property
    def _silent(self) -> int:
        """How many samples have no belief."""
        return int(self.unanswered.sum())

    def _counts_for_json(self) -> dict[str, Any]:
        """The matrix, or for many classes the pairs: predicted class, true class, count."""
        if len(self.classes) * len(self.true_classes) <= MOST_CELLS_IN_JSON:
            return {"matrix": {a.name: self.matrix[a].tolist() for a in Assertion}}
        assertion, pairs = self.pairs[:, 0], self.pairs[:, 1:]
        return {"pairs": {a.name: pairs[assertion == a].tolist() for a in Assertion}}

    def __str__(self) -> str:
        rows: list[tuple[Any, ...]] = [("", "samples", "fraction", "accuracy")]
        for a in reversed(Assertion):
            accuracy = percent(self.accuracy(a), "-")
            rows.append((a.name, self.count(a), percent(self.fraction(a)), accuracy))
        others, accuracy = self.count(Assertion.IDK, Assertion.IMK), percent(self.a_not_ik, "-")
        rows.append(("not IK", others, percent(1 - self.f_ik), accuracy))
        lines = ["{:<8}{:>9}{:>10}{:>10}".format(*row) for row in rows]
        title = f"{self.n_samples} samples, accuracy {percent(self.overall_accuracy)}"
        return "\n".join([title, "", *lines, "", *self.remarks()])

    def remarks(self) -> list[str]:
        """What the table of figures does not say: the reasons, and how often there is no answer."""
        reasons = ", ".join(f"{r.name.lower()} {n}" for r, n in self.reasons.items() if n)
        silent = [f"{NO_ANSWER}: {self._silent}, not counted as right or wrong"]
        return [f"reasons: {reasons}", *(silent if self._silent else [])]


def merge_tallies(one: Tally, other: Tally) -> Tally:
    """The tally of all samples, from those of two parts of them by the same classifier."""
    n = len(one.classes)
    unknown = np.concatenate([one.true_classes[n:], other.true_classes[n:]])
    true_classes = np.concatenate([one.classes, np.unique(unknown)])
    shape = (len(Assertion), n, len(true_classes))
    keys, counts = [], []
    for part in (one, other):
        assertion, predicted, true, count = part.pairs.T
        codes = positions_of(part.true_classes, true_classes)[true]
        keys.append(np.ravel_multi_index((assertion, predicted, codes), shape))
        counts.append(count)
    found, places = np.unique(np.concatenate(keys), return_inverse=True)
    totals = np.zeros(len(found), dtype=np.int64)
    np.add.at(totals, places, np.concatenate(counts))
    return Tally(
        classes=one.classes,
        true_classes=true_classes,
        pairs=np.column_stack([*np.unravel_index(found, shape), totals]).astype(np.int64),
        unanswered=one.unanswered + other.unanswered,
        reasons={reason: one.reasons[reason] + other.reasons[reason] for reason in Reason},
    )
