"""What was said: the answers about n rows in plain columns, cheap to send between processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.arrays import Floats, Ints
from iknow.core.assertion import Assertion, Reason
from iknow.core.codes import NO_BELIEF, for_json
from iknow.core.evidence import NO_EXEMPLAR, distances_for_and_against
from iknow.explain.assessment import Assessment
from iknow.serve.audit import Columns
from iknow.serve.monitor.scores import watch_scores
from iknow.serve.rows import Rows, as_inputs
from iknow.serve.seen import Looker, Seen

ASSERTIONS = {int(each): each.name for each in Assertion}
REASONS = {int(each): each.name for each in Reason}


@dataclass(frozen=True)
class Wanted:
    """What to tell besides the answers. Only requests that want the same are joined."""

    evidence: bool = False
    exemplars: bool = False
    scores: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Said(Seen):
    """The answers about n rows.

    Attributes:
        watched: What the alarm looks at, of shape (n,), and by layer, of shape (n, n_layers).
        exemplars: By layer, the nearest training row of the believed class, of shape (n,), if
            wanted.
        scores: Of shape (n, n_classes), if wanted.
        evidence: Of length n, in plain values, if wanted.
    """

    watched: Floats
    watched_layers: Floats
    exemplars: Mapping[str, Ints]
    scores: Floats | None = None
    evidence: list[Any] | None = None

    def __getitem__(self, rows: slice) -> Said:
        """The answers about some rows, of one request among those joined."""
        unknown = tuple(
            each | {"row": each["row"] - rows.start}
            for each in self.unknown
            if rows.start <= each["row"] < rows.stop
        )
        exemplars = {layer: each[rows] for layer, each in self.exemplars.items()}
        columns: dict[str, Any] = {
            each.name: None if (column := getattr(self, each.name)) is None else column[rows]
            for each in fields(self)
            if each.name not in ("exemplars", "unknown")
        }
        return replace(self, **columns, exemplars=exemplars, unknown=unknown)


@dataclass(frozen=True)
class Recorded:
    """Answers as the audit takes them. labels: the classes as JSON has them."""

    said: Said
    labels: list[Any]

    @property
    def exemplars(self) -> Mapping[str, Ints]:
        return self.said.exemplars

    def __len__(self) -> int:
        return len(self.said)

    def records(self) -> Columns:
        """Beliefs as JSON, assertions, reasons and levels."""
        said, labels = self.said, [*map(json.dumps, self.labels), "null"]
        return (
            [labels[code] for code in said.belief.tolist()],
            [ASSERTIONS[code] for code in said.assertion.tolist()],
            [REASONS[code] for code in said.reason.tolist()],
            [None] * len(said) if said.level is None else said.level.tolist(),
        )


def say(classifier: EpistemicClassifier, looker: Looker, rows: Rows, wanted: Wanted) -> Said:
    """Ask a classifier about shaped rows. looker: sees what the page shows."""
    assessment = classifier.assess(as_inputs(classifier, rows))
    seen = looker.look(assessment, rows.values)
    watched, _, watched_layers = watch_scores(assessment)
    return Said(
        **vars(seen),
        watched=watched,
        watched_layers=watched_layers,
        exemplars=assessment.own_exemplars if wanted.exemplars else {},
        scores=assessment.scores if wanted.scores else None,
        evidence=describe_evidence(assessment) if wanted.evidence else None,
    )


def as_answers(said: Said, labels: list[Any], *, exemplars: bool) -> list[dict[str, Any]]:
    """The answers as a response holds them. labels: the classes as JSON has them."""
    levels = [None] * len(said) if said.level is None else said.level.tolist()
    answers = [
        {
            "belief": None if code == NO_BELIEF else labels[code],
            "assertion": ASSERTIONS[assertion],
            "reason": REASONS[reason],
            "level": level,
        }
        for code, assertion, reason, level in zip(
            said.belief.tolist(), said.assertion.tolist(), said.reason.tolist(), levels, strict=True
        )
    ]
    if exemplars:
        for i, answer in enumerate(answers):
            answer["exemplars"] = {layer: int(row[i]) for layer, row in said.exemplars.items()}
    if said.evidence is not None:
        for answer, evidence in zip(answers, said.evidence, strict=True):
            answer["evidence"] = evidence
    return answers


def labels_of(classifier: EpistemicClassifier) -> list[Any]:
    """The classes as JSON has them."""
    return for_json(classifier.classes_)


def describe_evidence(assessment: Assessment) -> list[dict[str, Any]]:
    """For each of n samples, by layer: the distances for and against, the reach, what is found
    within it, and the training rows nearest of the believed class and of the nearest other.
    """
    rows = np.arange(len(assessment))
    answered, labels = assessment.answered, for_json(assessment.classes)
    codes = np.where(answered, assessment.belief_codes, 0)
    told: list[dict[str, Any]] = [{} for _ in rows]
    for layer, weighed in assessment.weighed.items():
        own, other = distances_for_and_against(weighed, codes)
        reach = assessment.neighborhoods[layer].reach(weighed)
        reach = reach[rows, codes] if reach.ndim == 2 else reach
        others = weighed.class_distances.copy()
        others[rows, codes] = np.inf
        against = others.argmin(axis=1)
        for i in rows:
            told[i][layer] = {
                "for": _number(own[i]) if answered[i] else None,
                "for_row": _row(weighed.exemplars[i, codes[i]]) if answered[i] else None,
                "against": _number(other[i]),
                "against_row": _row(weighed.exemplars[i, against[i]]),
                "against_class": labels[against[i]] if np.isfinite(others[i, against[i]]) else None,
                "reach": _number(reach[i]),
                "supported": [labels[c] for c in np.flatnonzero(assessment.supports[layer][i])],
            }
    return told


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _row(value: Any) -> int | None:
    return None if value == NO_EXEMPLAR else int(value)
