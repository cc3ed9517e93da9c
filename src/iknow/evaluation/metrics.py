"""Figures: how much is known, and how often rightly.

F_IK, F_IMK, F_IDK are the fractions of the assertions; A_IK and A_¬IK the accuracies of the belief
inside and outside IK. The augmented confusion matrix, one for each assertion, holds all of it.
Tallies of parts of the samples add up, so that no more than a part need be in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from iknow.cards import COLORS, FAINT, SOFT, bar, card, heading, mark, paragraphs, table, text
from iknow.core.arrays import Bools, Ints, Labels
from iknow.core.assertion import Assertion, Reason
from iknow.core.codes import UNKNOWN, for_json, positions_of
from iknow.core.text import name, percent, shown
from iknow.errors import InputError
from iknow.explain.assessment import Assessment
from iknow.models.labels import as_vector

NO_ANSWER = "no answer"
LARGEST_MATRIX = 1 << 30  # bytes
MOST_CELLS_IN_JSON = 1_000_000

Value = TypeVar("Value")


def _fraction(assertion: Assertion) -> Any:
    return property(lambda figures: figures.fraction(assertion))


def _accuracy(*assertions: Assertion) -> Any:
    return property(lambda figures: figures.accuracy(*assertions))


class Figures(Generic[Value]):
    """The paper's five figures, from the `fraction` and `accuracy` of assertions."""

    f_ik: Value = _fraction(Assertion.IK)
    f_imk: Value = _fraction(Assertion.IMK)
    f_idk: Value = _fraction(Assertion.IDK)
    a_ik: Value = _accuracy(Assertion.IK)
    a_not_ik: Value = _accuracy(Assertion.IMK, Assertion.IDK)


@dataclass(frozen=True, eq=False)
class Tally(Figures[float]):
    """Counts of what was said and what is true, and all figures that follow; see `Evaluation`."""

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
        return self.count(*Assertion)

    def count(self, *assertions: Assertion) -> int:
        """Return how many samples have one of the `assertions`."""
        silent = self.unanswered[list(assertions)]
        return int(self._pairs_of(assertions)[:, 3].sum() + silent.sum())

    def wrong(self, *assertions: Assertion) -> int:
        """Return how many samples with one of the `assertions` have a belief that is wrong."""
        _, belief, truth, count = self._pairs_of(assertions).T
        return int(count[belief != truth].sum())

    def fraction(self, assertion: Assertion) -> float:
        """Return the fraction of samples with `assertion`."""
        return self.count(assertion) / self.n_samples

    def accuracy(self, *assertions: Assertion) -> float:
        """Return the fraction of correct beliefs among the `assertions`; NaN without any."""
        total = int(self._pairs_of(assertions)[:, 3].sum())
        return (total - self.wrong(*assertions)) / total if total else float("nan")

    def _pairs_of(self, assertions: Sequence[Assertion]) -> Ints:
        return self.pairs[np.isin(self.pairs[:, 0], assertions)]

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
            counts = {"pairs": {a.name: self._pairs_of([a])[:, 1:].tolist() for a in Assertion}}
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
            for n in (self.count(*group),)
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


def merge_tallies(one: Tally, other: Tally) -> Tally:
    """The tally of all samples, from those of two parts of them by the same classifier."""
    unknown = [part.true_classes[len(part.classes) :] for part in (one, other)]
    true_classes = np.concatenate([one.classes, np.unique(np.concatenate(unknown))])
    pairs = np.concatenate([one.pairs, other.pairs])
    codes = [
        positions_of(each.true_classes, true_classes)[each.pairs[:, 2]] for each in (one, other)
    ]
    pairs[:, 2] = np.concatenate(codes)
    shape = (len(Assertion), len(one.classes), len(true_classes))
    return Tally(
        classes=one.classes,
        true_classes=true_classes,
        pairs=_count_pairs(pairs[:, :3].T, shape, pairs[:, 3]),
        unanswered=one.unanswered + other.unanswered,
        reasons={reason: one.reasons[reason] + other.reasons[reason] for reason in Reason},
    )


def _count_pairs(said: Ints, shape: tuple[int, ...], counts: Ints | None = None) -> Ints:
    """`Evaluation.pairs` of samples: said holds assertion, belief and truth, of shape (3, n), of
    as many kinds as `shape` says. counts: how often each occurs, of shape (n,); once by default.
    """
    keys, places = np.unique(np.ravel_multi_index(tuple(said), shape), return_inverse=True)
    totals = np.bincount(places, counts)
    return np.column_stack([*np.unravel_index(keys, shape), totals]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Evaluation(Tally):
    """Figures about an assessment whose truth is known; `evaluate` makes it.

    Attributes:
        classes: Labels of the predicted classes.
        true_classes: Labels of the true classes: `classes`, then any true label that the classifier
            does not know.
        pairs: Of shape (m, 4), one row per combination that occurs: assertion, predicted class,
            true class, and number of samples, ordered by the first three.
        unanswered: Number of samples without a belief, which are in no pair, by assertion (IDK,
            IMK, IK), of shape (3,).
        reasons: Number of samples per `Reason`.
        assessment: What was evaluated.
        y_true: True labels of shape (n,).
    """

    assessment: Assessment = field(repr=False)
    y_true: Labels = field(repr=False)

    def _repr_html_(self) -> str:
        counts = {assertion: self.count(assertion) for assertion in reversed(Assertion)}
        rows = [
            (mark(Assertion[group]) if group in Assertion.__members__ else group, f"{n:,}", *shares)
            for group, n, *shares in self.rows()
        ]
        accuracy, matrices = percent(self.overall_accuracy), ""
        if max(len(self.classes), len(self.true_classes)) <= MOST_CLASSES:
            found = [_matrix(self, each) for each in counts if self.matrix[each].any()]
            matrices = (
                f'<div style="display:flex;flex-wrap:wrap;gap:8px 28px">{"".join(found)}</div>'
            )
        return card(
            heading("Evaluation", f"on {self.n_samples:,} samples, {accuracy} right"),
            bar(counts, self.n_samples),
            table(("", "samples", "fraction", "accuracy"), rows, margin="12px 0 0"),
            matrices,
            paragraphs(self.remarks()),
        )


def evaluate(assessment: Assessment, y_true: Any = None) -> Evaluation:
    """Compare an assessment with the true labels.

    Args:
        assessment: What `assess` returned for n samples.
        y_true: True labels of shape (n,). They may include labels that the classifier does not
            know; no answer about those is right. Default: those that came with the samples, if a
            loader had any.

    Examples:
        >>> report = evaluate(a, y_true)
        >>> print(f"IK {report.f_ik:.3f}, right {report.a_ik:.3f}")
        IK 0.747, right 0.982
    """
    if not isinstance(assessment, Assessment):
        raise InputError(
            f"evaluate needs an Assessment, as assess(X) returns it; got {shown(assessment)}"
        )
    if y_true is None and (y_true := assessment.y_true) is None:
        raise InputError("evaluate needs the true labels, as evaluate(a, y_true): a has none")
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
    true_codes = positions_of(y_true, true_classes)
    answered = assessment.belief_codes >= 0
    said = np.stack([assessment.assertion, assessment.belief_codes, true_codes])
    return Evaluation(
        classes=classes,
        true_classes=true_classes,
        pairs=_count_pairs(said[:, answered], (len(Assertion), len(classes), len(true_classes))),
        unanswered=np.bincount(assessment.assertion[~answered], minlength=len(Assertion)),
        reasons={reason: int((assessment.reason == reason).sum()) for reason in Reason},
        assessment=assessment,
        y_true=y_true,
    )


WRONG = "#b3123c"
MOST_CLASSES = 12  # whose matrix fits into a notebook; the page holds more
FAINTEST, STRONGEST = 0.12, 0.6
SQUARE = "min-width:2em;height:1.8em;padding:0 3px;text-align:center;border:none"


def _matrix(report: Evaluation, assertion: Assertion) -> str:
    """The confusion matrix of an assertion; the darker a cell, the more samples."""
    counts = report.matrix[assertion]
    rows = [f'<th style="{SQUARE}"></th>{"".join(map(_label, report.true_classes.tolist()))}']
    for place, label in enumerate(report.classes.tolist()):
        cells = [_label(label)]
        for true, count in enumerate(counts[place].tolist()):
            strength = FAINTEST + (STRONGEST - FAINTEST) * np.sqrt(count / counts.max())
            color = COLORS[assertion] if true == place else WRONG
            shade = f"{color}{round(255 * strength):02x}" if count else FAINT
            cells.append(
                f'<td style="{SQUARE};background:{shade}">{f"{count:,}" if count else ""}</td>'
            )
        rows.append("".join(cells))
    style = "border-collapse:separate;border-spacing:1px;border:none;font-size:85%;margin:4px 0 0"
    return (
        f'<div style="margin:8px 0 0"><div>{mark(assertion)} '
        f'<span style="{SOFT}">belief down, truth across</span></div>'
        f'<table style="{style}">{"".join(f"<tr>{row}</tr>" for row in rows)}</table></div>'
    )


def _label(label: object) -> str:
    shown = name(label)
    short = shown if len(shown) <= 9 else shown[:8] + "…"
    return f'<th style="{SQUARE};{SOFT}" title="{text(label)}">{text(short)}</th>'
