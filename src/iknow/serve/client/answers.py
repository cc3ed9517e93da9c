"""Answers: what a service said about the samples of one request, and what it tells besides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar, overload

import numpy as np

from iknow.core.arrays import Floats, Labels
from iknow.core.assertion import Assertion, Assertions, Reason, Reasons
from iknow.errors import InputError
from iknow.explain.answers import as_frame

Label = str | int | float | bool
R = TypeVar("R")


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


@dataclass(frozen=True)
class Model:
    """A model that is served.

    Attributes:
        name: What it is called.
        version: Its version.
        bundle: The sha256 of its bundle; empty if it was not loaded from one.
        created: When the bundle was made, if that is known.
        note: What its maker wrote down.
        classes: Its labels.
        features: Their names, if it was fitted with names.
        n_features: How many there are, if that is known.
        layers: Where evidence is searched.
        promises: What is promised, in sentences.
        stale: Since when nothing is promised, as the evidence changed; empty if all holds.
        changes: How often the evidence changed.
    """

    name: str
    version: str
    bundle: str
    created: str | None
    note: str
    classes: tuple[Label, ...]
    features: tuple[str, ...] | None
    n_features: int | None
    layers: tuple[str, ...]
    promises: tuple[str, ...]
    stale: str
    changes: int


@dataclass(frozen=True)
class Learned:
    """What became of labels.

    Attributes:
        counted: Labels of IKs, which are compared with the certificate.
        others: Labels of other answers.
        repeated: Labels of rows that had one before.
        unknown: Labels of rows that the audit does not hold.
    """

    counted: int
    others: int
    repeated: int
    unknown: int


@dataclass(frozen=True)
class Entry:
    """One change of a model's evidence.

    Attributes:
        what: "add", "remove" or "relabel".
        when: The time in UTC.
        who: Who made it.
        why: Why.
        ids: Numbers of the samples.
        classes: Labels of classes that came with it.
    """

    what: str
    when: str
    who: str
    why: str
    ids: tuple[int, ...]
    classes: tuple[Label, ...]


@dataclass(frozen=True)
class Changed:
    """What became of a change. bundle: the sha256 from now on, before: until then."""

    model: str
    version: str
    bundle: str
    before: str
    changes: tuple[Entry, ...]


@dataclass(frozen=True)
class Reloaded:
    """What became of one model at a reload. error: why its new bundle was refused, or None."""

    name: str
    version: str
    bundle: str
    changed: bool
    error: str | None


def read_record(kind: type[R], said: Mapping[str, Any]) -> R:
    """A record from the JSON of a response; what a newer service tells besides is left out.

    Raises:
        KeyError, TypeError: The response holds something else.
    """
    values = {each.name: said[each.name] for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def read_log(said: Mapping[str, Any]) -> tuple[Entry, ...]:
    """The changes in the JSON of a response."""
    return tuple(read_record(Entry, each) for each in said["changes"])


def read_changed(said: Mapping[str, Any]) -> Changed:
    """What became of a change, from the JSON of a response."""
    return read_record(Changed, {**said, "changes": read_log(said)})
