"""Selection: chosen neighborhoods, how they perform, and how they were found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from iknow.cards import COLORS, LINE, bar, card, heading, legend, paragraphs, table, text
from iknow.core.arrays import Bools, Ints
from iknow.core.assertion import Assertion, may_be_known
from iknow.core.calibration import Calibration
from iknow.core.level import Levels
from iknow.core.rule import Rule
from iknow.core.support import find_support
from iknow.core.text import as_real, names, percent
from iknow.errors import InputError
from iknow.selection.goal import Goal
from iknow.selection.record import from_plain, to_plain
from iknow.selection.validation import Validation
from iknow.selection.watch import Watch

# What None stands for in JSON, which has no such numbers.
NOT_FINITE = {"accuracy": np.nan, "accuracy_outside": np.nan, "least_confidence": -np.inf}


@dataclass(frozen=True)
class Certificate:
    """What is promised about accuracy on IK, with what probability, and on what evidence.

    Attributes:
        accuracy: The target that holds.
        confidence: The probability, over the draw of the validation data, that it holds.
        bound: The exact binomial lower confidence bound for the chosen setting alone.
        known: Number of IK samples among those that certify.
        errors: Number of wrong ones among them.
        n_samples: Number of samples that certify.
        tested: Number of settings tested.
        procedure: Name of the test.
        proven: Whether the tested settings are proven to be the best; False if the search ran out
            of time. The promise is the same, but more time may find more coverage.
        by_class: Lower bounds by class label, if each was certified; no other class is ever IK.
    """

    accuracy: float
    confidence: float
    bound: float
    known: int
    errors: int
    n_samples: int
    tested: int
    procedure: str
    proven: bool = False
    by_class: Mapping[str, float] | None = None


@dataclass(frozen=True)
class View:
    """A kind of views of a sample, and whether the confidence is averaged over them.

    Attributes:
        kind: Its name.
        passes: How many there are: so often the model runs more for each sample.
        agreement: Of the samples that the model is surest of, the share of which it answers the
            same in each of them.
        is_used: Whether it agrees so often that they count as harmless.
    """

    kind: str
    passes: int
    agreement: float
    is_used: bool


@dataclass(frozen=True)
class Selection:
    """Chosen neighborhoods and how they perform on the validation data that chose them.

    Attributes:
        neighborhoods: Rules by layer.
        coverage: Fraction of IK.
        accuracy: Fraction of correct beliefs among IK; NaN if there are none.
        accuracy_outside: Fraction of correct beliefs among the others; NaN if there are none.
        method: How they were chosen.
        optimal: Whether it is proven that no setting of the rule does better.
        best_possible: A coverage that no setting exceeds; equal to `coverage` if optimal.
        n_samples: Number of validation samples.
        certificate: What is promised about the accuracy, if you asked for that.
        knowable: Codes of the classes that may be IK, if each class was certified; None means all.
        levels: The path through all settings, if the neighborhoods lie on one.
        level: Where on it they lie: the samples of at least this level are IK.
        least_confidence: Below it, the model's own doubt makes a sample IMK; -inf for never.
        false_alarm: The promised bound on how often an ordinary sample is not IK, if asked for.
        views: The kinds of views that the model was given, if any (see `iknow.models.views`).
        note: What could not be promised, and what to ask for instead.
        calibration: How likely a belief is right, if labels taught it.
        watch: Scores of samples that nothing was fitted to, for an alarm to compare a stream with.
        goal: What they were chosen for, to choose them again; None if nobody knows.
        stale: When and why the evidence changed after they were chosen; "" if it did not. What was
            promised was about the evidence before.
    """

    neighborhoods: Mapping[str, Rule]
    coverage: float
    accuracy: float
    accuracy_outside: float
    method: str
    optimal: bool
    best_possible: float
    n_samples: int
    certificate: Certificate | None = None
    knowable: tuple[int, ...] | None = None
    levels: Levels | None = field(default=None, repr=False, compare=False)
    level: float | None = None
    least_confidence: float = -np.inf
    false_alarm: float | None = None
    views: tuple[View, ...] = ()
    note: str = ""
    calibration: Calibration | None = field(default=None, repr=False, compare=False)
    watch: Watch | None = field(default=None, repr=False, compare=False)
    goal: Goal | None = field(default=None, repr=False, compare=False)
    stale: str = ""

    def __post_init__(self) -> None:
        rules, levels, watch = self.neighborhoods, self.levels, self.watch
        if (levels is None) != (self.level is None):
            raise InputError("levels and a level on them go together; one of the two is missing")
        if levels is not None:
            quorums = {rule.quorum for rule in rules.values()}
            if set(levels.layers) != set(rules) or quorums != {levels.quorum}:
                raise InputError(
                    "levels must be about the layers that have neighborhoods, with the same "
                    f"quorum; got {names(levels.layers)} with {levels.quorum}"
                )
            as_real(self.level, "a level", "lie in (0, 1]", lambda level: 0 < level <= 1)
        as_real(self.least_confidence, "a least confidence", "be a number")
        if self.least_confidence > -np.inf and (levels is None or not levels.hears_model):
            raise InputError("a least confidence needs levels that hear the model's confidence")
        if self.false_alarm is not None:
            as_real(self.false_alarm, "false_alarm", "lie between 0 and 1", lambda x: 0 < x < 1)
        if watch is not None and sorted(watch.layers) != sorted(rules):
            raise InputError(
                f"a watch must be about the layers {names(rules)}; got {names(watch.layers)}"
            )
        if self.knowable is None and self.certificate and self.certificate.by_class is not None:
            raise InputError(
                "the certificate for each class does not say which classes may be known: tune "
                "again with each_class=True"
            )

    @property
    def gap(self) -> float:
        """The most coverage that a better setting could add."""
        return max(0.0, self.best_possible - self.coverage)

    @property
    def is_certified(self) -> bool:
        """Whether an accuracy is promised, of the evidence as it is."""
        return self.certificate is not None and not self.stale

    def sentences(self) -> list[str]:
        """How the neighborhoods perform, and what is promised about them, in words."""
        largest = ", the largest possible" if self.optimal else ""
        accuracy = "" if np.isnan(self.accuracy) else f"; accuracy on it {percent(self.accuracy)}"
        said = [
            f"On {self.n_samples:,} validation samples: coverage {percent(self.coverage)}"
            f"{largest}{accuracy}"
        ]
        if self.levels is not None:
            said.append(f"Share of ordinary data that each voice may hold back: {self.levels}")
            needed, against = self.levels.quorum
            few = "one of its samples is" if needed == 1 else f"{needed} of its samples are"
            said.append(f"A class counts when {few} near if it is believed, else {against}")
        if self.views:
            used, left = (
                [f"{v.kind} ({percent(v.agreement)} alike)" for v in self.views if v.is_used is on]
                for on in (True, False)
            )
            n = 1 + sum(each.passes for each in self.views if each.is_used)
            said.append(
                f"Confidence is averaged over {n} passes of the model for each sample: as it is"
                + "".join(f", {each}" for each in used)
            )
            if left:
                said.append(f"Views left out, as the model changes its answers: {', '.join(left)}")
        guaranteed = "Was guaranteed" if self.stale else "Guaranteed"
        if self.stale:
            said.append(
                f"Stale: the evidence has changed, {self.stale}. Nothing is guaranteed until "
                "recertify renews it"
            )
        if self.false_alarm is not None:
            said.append(
                f"{guaranteed}: an ordinary sample is not IK with probability {self.false_alarm:g} "
                "at most"
            )
        if self.note:
            said.append(f"Nothing is guaranteed: {self.note}")
        if (promise := self.certificate) is None:
            return said
        said.append(
            f"{guaranteed} with confidence {promise.confidence:g}: accuracy on IK at least "
            f"{promise.accuracy:g} ({promise.errors} wrong of {promise.known:,} IK among "
            f"{promise.n_samples:,} samples that certify)"
        )
        if promise.by_class is not None:
            n = len(promise.by_class)
            said.append(f"That holds for each of {n} classes; beliefs in any other are never IK")
        if not promise.proven:
            said.append("The search ran out of time: more time may find more coverage")
        return said

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def _repr_html_(self) -> str:
        known = {Assertion.IK: round(self.coverage * self.n_samples)}
        rows = [(text(layer), text(repr(rule))) for layer, rule in self.neighborhoods.items()]
        return card(
            heading("Selection", f"of neighborhoods, method {self.method}"),
            bar(known, self.n_samples),
            legend(known, self.n_samples),
            table(("layer", "rule"), rows, margin="12px 0 0"),
            paragraphs(self.sentences()),
            color=COLORS[Assertion.IK] if self.is_certified else LINE,  # green
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the selection as plain values for JSON.

        None stands for an accuracy that is NaN, a least confidence of -inf, and a radius of inf.
        """
        return dict(to_plain(self))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Selection:
        """Return the selection that `to_dict` wrote as `record`."""
        absent = {name: value for name, value in NOT_FINITE.items() if record.get(name, 0) is None}
        return from_plain(cls, {**record, **absent}, "a selection")


@dataclass(frozen=True)
class Candidate:
    """A setting and the codes of the classes to certify one by one; None for all at once.

    least_confidence: below which the model's confidence makes a sample IMK. level: see
    `iknow.core.level`, if the setting is on a path.
    """

    neighborhoods: Mapping[str, Rule]
    classes: tuple[int, ...] | None = None
    least_confidence: float = -np.inf
    level: float | None = None

    def find_known(self, part: Validation) -> Bools:
        """Which samples are IK, of shape (n,)."""
        known, contrasts = may_be_known(part.belief, self.classes), part.contrasts
        for layer, rule in self.neighborhoods.items():
            evidence = contrasts[layer].as_evidence()  # about the belief, and all other classes
            support = find_support(evidence, rule, evidence.belief)
            known &= support[:, 0] & ~support[:, 1]
        if part.confidence is not None:
            known &= part.confidence >= self.least_confidence
        return known

    def count(self, part: Validation) -> tuple[Ints, Ints]:
        """IK samples and errors among them: of all, or of each class; of shape (1,) or (m,)."""
        known = self.find_known(part)
        wrong = known & part.wrong
        if self.classes is None:
            return np.array([known.sum()]), np.array([wrong.sum()])
        group, size = np.searchsorted(self.classes, part.belief), len(self.classes)
        return np.bincount(group[known], minlength=size), np.bincount(group[wrong], minlength=size)


def record_choice(
    part: Validation,
    chosen: Candidate,
    method: str,
    *,
    best_possible: float = 1.0,
    optimal: bool = False,
    **found: Any,
) -> Selection:
    """The record of a chosen setting, measured by applying it; accuracies are NaN without labels.

    found: further attributes of `Selection`.
    """
    known = chosen.find_known(part)
    right = np.full(len(part), np.nan) if part.y_true is None else ~part.wrong
    coverage, inside, outside = (
        float(np.mean(values)) if len(values) else float("nan")
        for values in (known, right[known], right[~known])
    )
    return Selection(
        neighborhoods=dict(chosen.neighborhoods),
        coverage=coverage,
        accuracy=inside,
        accuracy_outside=outside,
        method=method,
        optimal=optimal,
        best_possible=max(coverage, best_possible),
        n_samples=len(part),
        knowable=chosen.classes,
        level=chosen.level,
        least_confidence=chosen.least_confidence,
        **found,
    )
