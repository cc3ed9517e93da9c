"""Answers: what a service said about the samples of one request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from iknow.core.arrays import Floats, Labels
from iknow.core.assertion import Assertion, Assertions, Reason, Reasons
from iknow.errors import InputError
from iknow.explain.answers import as_frame

Label = str | int | float | bool


@dataclass(frozen=True)
class Answer:
    """What was said about one sample.

    Attributes:
        belief: What the model answers; None if it gave no answer.
        assertion: What is said about the belief.
        reason: Why.
        level: How ordinary the sample is, from 0 to 1; None without levels.
        exemplars: By layer, the training row of the believed class that is nearest, -1 for none; if
            asked for.
        evidence: By layer, the distances for and against; if asked for.
    """

    belief: Label | None
    assertion: Assertion
    reason: Reason
    level: float | None
    exemplars: Mapping[str, int] | None = None
    evidence: Mapping[str, Any] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Answers(Sequence[Answer]):
    """What was said about n samples, in their order: columns, and one `Answer` by its position.

    Attributes:
        model: What answered.
        version: Its version.
        bundle: The sha256 of its bundle; empty if it was not loaded from one.
        request: The id of the request, by which the audit and `Client.labels` know it.
        belief: Labels of shape (n,); None among them where the model gave no answer.
        assertion: Of shape (n,), comparable with `Assertion.IK`.
        reason: Of shape (n,), comparable with `Reason.KNOWN`.
        level: Of shape (n,); NaN without levels.
        exemplars: Of length n, if asked for; see `Answer`.
        evidence: Of length n, if asked for; see `Answer`.

    Examples:
        >>> said = {"belief": 7, "assertion": "IDK", "reason": "EXTRAPOLATION", "level": 0.01}
        >>> about = {"model": "digits", "version": "1", "bundle": "", "request": "r1"}
        >>> answers = read_answers(about | {"answers": [said]})
        >>> answers
        Answers of digits 1: IK 0, IMK 0, IDK 1
        >>> answers[0].belief, answers.level
        (7, array([0.01]))
    """

    model: str
    version: str
    bundle: str
    request: str
    belief: Labels
    assertion: Assertions
    reason: Reasons
    level: Floats
    exemplars: tuple[Mapping[str, int], ...] | None = None
    evidence: tuple[Mapping[str, Any], ...] | None = None

    def __len__(self) -> int:
        return len(self.belief)

    @overload
    def __getitem__(self, i: int) -> Answer: ...
    @overload
    def __getitem__(self, i: slice) -> tuple[Answer, ...]: ...
    def __getitem__(self, i: int | slice) -> Answer | tuple[Answer, ...]:
        if isinstance(i, slice):
            return tuple(self[row] for row in range(*i.indices(len(self))))
        level = float(self.level[i])
        return Answer(
            belief=self.belief.item(i),
            assertion=self.assertion[i],
            reason=self.reason[i],
            level=None if np.isnan(level) else level,
            exemplars=None if self.exemplars is None else self.exemplars[i],
            evidence=None if self.evidence is None else self.evidence[i],
        )

    def __iter__(self) -> Iterator[Answer]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        counts = [f"{a.name} {int((self.assertion == a).sum())}" for a in reversed(Assertion)]
        return f"Answers of {self.model} {self.version}: {', '.join(counts)}"

    def label(self, truth: Sequence[Label | None]) -> list[dict[str, Any]]:
        """The truth about these samples, as `Client.labels` takes it.

        Args:
            truth: Of length n; None for what is not known yet.
        """
        if len(truth) != len(self):
            raise InputError(f"expected {len(self)} labels, one for each answer; got {len(truth)}")
        plain = truth.tolist() if isinstance(truth, np.ndarray) else list(truth)
        return [
            {"request": self.request, "row": i, "label": label}
            for i, label in enumerate(plain)
            if label is not None
        ]

    def to_frame(self) -> Any:
        """The columns as a `pandas.DataFrame`: `belief`, `assertion`, `reason` and `level`.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        columns = ("belief", "assertion", "reason", "level")
        return as_frame({name: getattr(self, name) for name in columns})


def read_answers(said: Mapping[str, Any]) -> Answers:
    """Answers from the JSON of a response; KeyError, TypeError or ValueError if it is another."""
    rows = said["answers"]
    levels = [row["level"] for row in rows]

    def on_request(name: str) -> tuple[Any, ...] | None:
        return tuple(row[name] for row in rows) if rows and name in rows[0] else None

    return Answers(
        model=str(said["model"]),
        version=str(said["version"]),
        bundle=str(said["bundle"]),
        request=str(said["request"]),
        belief=_as_labels([row["belief"] for row in rows]),
        assertion=np.array([Assertion[r["assertion"]] for r in rows], np.int8).view(Assertions),
        reason=np.array([Reason[row["reason"]] for row in rows], np.int8).view(Reasons),
        level=np.array([np.nan if level is None else level for level in levels], np.float64),
        exemplars=on_request("exemplars"),
        evidence=on_request("evidence"),
    )


def _as_labels(labels: list[Any]) -> Labels:
    """Labels as numpy has them if all are of one type; else as objects."""
    kinds = {type(label) for label in labels}
    if len(kinds) == 1 and kinds <= {int, float, str, bool}:
        made = np.array(labels)
        if made.dtype.kind in "ifUb":  # not a whole number beyond 64 bits
            return made
    made = np.empty(len(labels), dtype=object)
    made[:] = labels
    return made
