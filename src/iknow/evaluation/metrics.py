"""Figures: how much is known, and how often rightly.

F_IK, F_IMK, F_IDK are the fractions of the assertions; A_IK and A_¬IK the accuracies of the belief
inside and outside IK. The augmented confusion matrix, one for each assertion, holds all of it.
Evaluations of parts of the samples add up, so that no more than a part need be in memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar, overload

import numpy as np

from iknow.cards import bar, card, heading, mark, paragraphs, table, text
from iknow.core.arrays import Bools, Ints, Labels
from iknow.core.assertion import Assertion, Reason
from iknow.core.codes import UNKNOWN, for_json, positions_of
from iknow.core.text import percent, shown
from iknow.errors import InputError
from iknow.evaluation.estimate import Estimate, estimate
from iknow.explain.assessment import Assessment
from iknow.models.samples import as_vector

NO_ANSWER = "no answer"
LARGEST_MATRIX = 1 << 30  # bytes
MOST_CELLS_IN_JSON = 1_000_000
MOST_CLASSES = 12  # whose matrix fits into a notebook; the page holds more

Value = TypeVar("Value")


class Figures(Generic[Value]):
    """The paper's figures, from numbers of samples by assertion (IDK, IMK, IK).

    All arrays are of shape (3,), or (3, m) for a figure at each of m settings.
    """

    counts: Ints  # of all samples
    answered: Ints  # of those with a belief
    right: Ints  # of those with a correct one

    f_ik = property(lambda self: self.fraction(Assertion.IK))
    f_imk = property(lambda self: self.fraction(Assertion.IMK))
    f_idk = property(lambda self: self.fraction(Assertion.IDK))
    a_ik = property(lambda self: self.accuracy(Assertion.IK))
    a_not_ik = property(lambda self: self.accuracy(Assertion.IMK, Assertion.IDK))

    @property
    def n_samples(self) -> int:
        return int(self.counts.reshape(len(Assertion), -1)[:, 0].sum())

    def fraction(self, assertion: Assertion) -> Value:
        """Return the fraction of samples with `assertion`."""
        return self._share(self.counts[assertion], self.n_samples)

    def accuracy(self, *assertions: Assertion) -> Value:
        """Return the fraction of correct beliefs among the `assertions`; NaN without any."""
        some = list(assertions)
        return self._share(self.right[some].sum(axis=0), self.answered[some].sum(axis=0))

    def _share(self, part: Any, whole: Any) -> Value:
        with np.errstate(invalid="ignore"):  # 0 / 0
            share: Any = np.divide(part, whole)
        return share if share.ndim else share.item()  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Evaluation(Figures[float]):
    """Figures about samples whose truth is known; `evaluate` makes it.

    The sum of two is that of all their samples, if one classifier assessed them.

    Attributes:
        classes: Labels of the predicted classes.
        true_classes: Labels of the true classes: `classes`, then any true label that the classifier
            does not know.
        pairs: Of shape (m, 4), one row per combination that occurs: assertion, predicted class,
            true class, and number of samples, ordered by the first three.
        unanswered: Number of samples without a belief, which are in no pair, by assertion (IDK,
            IMK, IK), of shape (3,).
        reasons: Number of samples per `Reason`.
        counts: Number of samples by assertion, of shape (3,).
        answered: Number of those with a belief.
        right: Number of those with a correct one.
    """

    classes: Labels
    true_classes: Labels
    pairs: Ints
    unanswered: Ints
    reasons: dict[Reason, int]
    counts: Ints = field(init=False, repr=False)
    answered: Ints = field(init=False, repr=False)
    right: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        assertion, belief, truth, n = self.pairs.T
        for what, weights in (("answered", n), ("right", n * (belief == truth))):
            counts = np.bincount(assertion, weights, len(Assertion)).astype(np.int64)
            object.__setattr__(self, what, counts)
        object.__setattr__(self, "counts", self.answered + self.unanswered)

    def __add__(self, other: Evaluation) -> Evaluation:
        n, parts = len(self.classes), (self, other)
        unknown = np.concatenate([part.true_classes[n:] for part in parts])
        true_classes = np.concatenate([self.classes, np.unique(unknown)])
        pairs = np.concatenate([part.pairs for part in parts])
        pairs[:, 2] = np.concatenate(
            [positions_of(each.true_classes, true_classes)[each.pairs[:, 2]] for each in parts]
        )
        shape = (len(Assertion), n, len(true_classes))
        return Evaluation(
            classes=self.classes,
            true_classes=true_classes,
            pairs=_count_pairs(pairs[:, :3].T, shape, pairs[:, 3]),
            unanswered=self.unanswered + other.unanswered,
            reasons={reason: self.reasons[reason] + other.reasons[reason] for reason in Reason},
        )

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

    def wrong(self, *assertions: Assertion) -> int:
        """Return how many samples with one of the `assertions` have a belief that is wrong."""
        return int((self.answered - self.right)[list(assertions)].sum())

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
        silent = int(self.unanswered.sum())
        if len(self.classes) * len(self.true_classes) <= MOST_CELLS_IN_JSON:
            counts = {"matrix": {a.name: self.matrix[a].tolist() for a in Assertion}}
        else:  # predicted class, true class, count
            pairs = {a.name: self.pairs[self.pairs[:, 0] == a, 1:].tolist() for a in Assertion}
            counts = {"pairs": pairs}
        return {
            "n_samples": self.n_samples,
            **{name: None if np.isnan(value) else value for name, value in figures.items()},
            **({"no_answer": silent} if silent else {}),
            "reasons": {reason.name: count for reason, count in self.reasons.items()},
            "classes": for_json(self.classes),
            "true_classes": for_json(self.true_classes),
            **counts,
        }

    def rows(self, dash: str = "–") -> list[tuple[str, int, str, str]]:
        """Return name, count, fraction and accuracy of each assertion, and of all but IK.

        An accuracy of no samples is a `dash`.
        """
        groups: dict[str, list[Assertion]] = {a.name: [a] for a in reversed(Assertion)}
        groups["not IK"] = [Assertion.IMK, Assertion.IDK]
        return [
            (title, n, percent(n / self.n_samples), percent(self.accuracy(*group), dash))
            for title, group in groups.items()
            for n in (int(self.counts[group].sum()),)
        ]

    def __str__(self) -> str:
        rows = [("", "samples", "fraction", "accuracy"), *self.rows("-")]
        lines = ["{:<8}{:>9}{:>10}{:>10}".format(*row) for row in rows]
        title = f"{self.n_samples} samples, accuracy {percent(self.overall_accuracy)}"
        return "\n".join([title, "", *lines, "", *self.remarks()])

    def remarks(self) -> list[str]:
        """What the table of figures does not say: the reasons, and how often there is no answer."""
        reasons = ", ".join(f"{r.name.lower()} {n}" for r, n in self.reasons.items() if n)
        silent = int(self.unanswered.sum())
        unanswered = [f"{NO_ANSWER}: {silent}, not counted as right or wrong"] if silent else []
        return [f"reasons: {reasons}", *unanswered]

    def _repr_html_(self) -> str:
        counts = {assertion: int(self.counts[assertion]) for assertion in reversed(Assertion)}
        rows = [
            (mark(Assertion[group]) if group in Assertion.__members__ else group, f"{n:,}", *shares)
            for group, n, *shares in self.rows()
        ]
        matrix: list[tuple[str, ...]] = []
        if max(len(self.classes), len(self.true_classes)) <= MOST_CLASSES:
            matrix = [
                (mark(assertion), text(label), *(f"{n:,}" if n else "" for n in row))
                for assertion in counts
                for label, row in zip(self.classes, self.matrix[assertion].tolist(), strict=True)
                if any(row)
            ]
        headings = ("", "belief down, truth across", *map(str, self.true_classes))
        accuracy = percent(self.overall_accuracy)
        return card(
            heading("Evaluation", f"on {self.n_samples:,} samples, {accuracy} right"),
            bar(counts, self.n_samples),
            table(("", "samples", "fraction", "accuracy"), rows, margin="12px 0 0"),
            table(headings, matrix, margin="8px 0 0") if matrix else "",
            paragraphs(self.remarks()),
        )


def _count_pairs(said: Ints, shape: tuple[int, ...], counts: Ints | None = None) -> Ints:
    """`Evaluation.pairs` of samples: said holds assertion, belief and truth, of shape (3, n), of
    as many kinds as `shape` says. counts: how often each occurs, of shape (n,); once by default.
    """
    keys, places = np.unique(np.ravel_multi_index(tuple(said), shape), return_inverse=True)
    totals = np.bincount(places, counts)
    return np.column_stack([*np.unravel_index(keys, shape), totals]).astype(np.int64)


@overload
def evaluate(assessment: Assessment, y_true: None = None) -> Evaluation | Estimate: ...
@overload
def evaluate(assessment: Assessment, y_true: Any) -> Evaluation: ...
def evaluate(assessment: Assessment, y_true: Any = None) -> Evaluation | Estimate:
    """Compare an assessment with the true labels; without any, estimate the accuracy.

    The estimate is for samples that come like those `tune` learned from, with an interval. If they
    do not, only labels can tell.

    Args:
        assessment: What `assess` returned for n samples.
        y_true: True labels of shape (n,). They may include labels that the classifier does not
            know; no answer about those is right. Default: those that came with the samples, if a
            loader had any; else there is an `Estimate`, if `tune` had labels.

    Examples:
        >>> report = evaluate(a, y_true)
        >>> print(f"IK {report.f_ik:.3f}, right {report.a_ik:.3f}")
        IK 0.747, right 0.982
    """
    if y_true is None and isinstance(assessment, Assessment) and assessment.y_true is None:
        found = estimate(assessment)
        if found is not None and len(assessment):
            return found
    true_classes, truth = read_truth(assessment, y_true)
    classes, belief, answered = assessment.classes, assessment.belief_codes, assessment.answered
    said = np.stack([assessment.assertion, belief, truth])
    return Evaluation(
        classes=classes,
        true_classes=true_classes,
        pairs=_count_pairs(said[:, answered], (len(Assertion), len(classes), len(true_classes))),
        unanswered=np.bincount(assessment.assertion[~answered], minlength=len(Assertion)),
        reasons={reason: int((assessment.reason == reason).sum()) for reason in Reason},
    )


def read_truth(assessment: Assessment, y_true: Any = None) -> tuple[Labels, Ints]:
    """The classes that are true of assessed samples, and the position of each sample's among them.

    The classifier's classes come first, so a belief is right where its code is that position; then
    any true label that it does not know. y_true: as for `evaluate`.
    """
    if not isinstance(assessment, Assessment):
        raise InputError(
            f"evaluate needs an Assessment, as assess(X) returns it; got {shown(assessment)}"
        )
    if y_true is None and (y_true := assessment.y_true) is None:
        raise InputError(
            "evaluate needs the true labels, as evaluate(a, y_true): a has none, and without them "
            "it estimates the accuracy only if tune had labels"
        )
    y_true = as_vector(y_true, "y_true")
    if y_true.shape != (len(assessment),):
        raise InputError(
            f"y_true must hold one label for each of the {len(assessment)} assessed samples; "
            f"got shape {y_true.shape}"
        )
    if len(y_true) == 0:
        raise InputError("there is nothing to evaluate: the assessment is empty")
    classes = assessment.classes
    if (y_true.dtype.kind in "OUS") != (classes.dtype.kind in "OUS"):
        raise InputError(
            f"y_true must hold labels like the classifier's, such as {shown(classes.tolist()[0])}; "
            f"got {shown(y_true.tolist()[0])}"
        )
    unknown: Bools = positions_of(y_true, classes) == UNKNOWN
    true_classes = np.concatenate([classes, np.unique(y_true[unknown])])
    return true_classes, positions_of(y_true, true_classes)
