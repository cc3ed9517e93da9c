"""The schema: what requests and replies of the service hold, for server, client and OpenAPI alike.

A request may hold nothing but its fields, and a number is no text and no flag. A reply may grow:
a client leaves out what a newer service tells besides.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, to_builtins

from iknow.errors import IknowError

REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)
JSON, NPY, BYTES = "application/json", "application/x-npy", "application/octet-stream"
Label = str | int | float | bool
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""The number of a sample, or the position of a row in its request."""


class Refusal(IknowError):  # noqa: N818 - it is an answer too
    """A request that is not answered, and why.

    Args:
        status: The HTTP status.
        message: What was expected, what came, and what to do.
        retry_after: Seconds after which the same request may succeed; None if it never will.
    """

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        self.status, self.retry_after = status, retry_after
        super().__init__(message)


class Failure(Struct, frozen=True):
    """Why a request was not answered."""

    error: str


class AssessRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Samples to assess: rows, or a list for each input of a model with several.

    A row is a list of numbers, a text, or an object by feature; null is a missing number.
    """

    rows: list[Any] | None = None
    inputs: dict[str, list[Any]] | None = None


class Flags(Struct, frozen=True):
    """What the query of a request for answers may say.

    Attributes:
        evidence: Whether to tell the distances for and against.
        exemplars: Whether to tell the nearest training rows.
        explain: Whether to explain each answer; for up to 100 rows.
        watch: Whether the alarm may look at these samples; not at those of a test.
    """

    evidence: bool = False
    exemplars: bool = False
    explain: bool = False
    watch: bool = True


class RowAnswer(Struct, frozen=True, omit_defaults=True, gc=False):
    """What was said about one sample.

    Attributes:
        belief: What the model answers; None if it gave no answer.
        level: How ordinary the sample is, from 0 to 1; None without levels.
        probability: How likely the belief is right; None if no labels taught it.
        exemplars: By layer, the training row of the believed class that is nearest, -1 for none; if
            asked for.
        evidence: By layer, the distances for and against; if asked for.
        explanation: Which voice decides and how, in a sentence, and for each layer the samples for
            and against with the features that matter; if asked for.
    """

    belief: Label | None
    assertion: Literal["IK", "IMK", "IDK"]
    reason: str
    level: float | None
    probability: float | None = None
    exemplars: dict[str, int] | None = None
    evidence: dict[str, Any] | None = None
    explanation: dict[str, Any] | None = None


EXAMPLE = to_builtins(RowAnswer("setosa", "IK", "KNOWN", level=0.83, probability=0.996))


class AssessReply(Struct, frozen=True):
    """What was said about the samples of a request, in their order.

    Attributes:
        bundle: The sha256 of the model's bundle; empty if it was not loaded from one.
        request: The id of the request, by which the audit and labels know it.
    """

    model: str
    version: str
    bundle: str
    request: str
    answers: Annotated[tuple[RowAnswer, ...], Meta(examples=[[EXAMPLE]])]


class TrueLabel(Struct, frozen=True, forbid_unknown_fields=True):
    """The truth about one row of an earlier request."""

    request: str
    row: Number
    label: Label


class LabelsRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Labels that came late."""

    labels: Annotated[list[TrueLabel], Meta(min_length=1)]


class LabelCounts(Struct, frozen=True):
    """What became of labels.

    Attributes:
        counted: Labels of IKs, which are compared with the certificate.
        others: Labels of other answers.
        repeated: Labels of rows that had one before.
        unknown: Labels of rows that the audit does not hold.
    """

    counted: int = 0
    others: int = 0
    repeated: int = 0
    unknown: int = 0


class ModelInfo(Struct, frozen=True):
    """A model that is served.

    Attributes:
        bundle: The sha256 of its bundle; empty if it was not loaded from one.
        created: When the bundle was made, if that is known.
        note: What its maker wrote down.
        features: Their names, if it was fitted with names.
        promises: What is promised, in sentences.
        stale: Since when nothing is promised, as the evidence changed; empty if all holds.
        changes: How often the evidence changed.
    """

    name: str
    version: str
    bundle: str
    created: str | None
    note: str
    classes: tuple[Label | None, ...]
    features: tuple[str, ...] | None
    n_features: int | None
    layers: tuple[str, ...]
    promises: tuple[str, ...]
    stale: str
    changes: int


class ModelList(Struct, frozen=True):
    """All models that are served, each in all its versions."""

    models: tuple[ModelInfo, ...]


class Relabel(Struct, frozen=True, forbid_unknown_fields=True):
    """Another label for a sample."""

    id: Number
    label: Label


class Addition(Struct, frozen=True, forbid_unknown_fields=True):
    """Samples to add, with their labels, and perhaps numbers to name them by."""

    rows: Annotated[list[Any], Meta(min_length=1)]
    labels: list[Label]
    ids: list[Number] | None = None


class ChangeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Samples to remove, to relabel and to add, in this order; why, for the log.

    Attributes:
        after: The sha256 of the bundle that the caller saw; another one is a conflict.
    """

    remove: list[Number] = []
    relabel: list[Relabel] = []
    add: Addition | None = None
    why: str = ""
    after: str | None = None


class ChangeEntry(Struct, frozen=True):
    """One change of a model's evidence: who made it, when in UTC, and to which samples.

    Attributes:
        classes: Labels of classes that came with it.
    """

    what: Literal["add", "remove", "relabel"]
    when: str
    who: str
    why: str
    ids: tuple[int, ...]
    classes: tuple[Label | None, ...]


class Changes(Struct, frozen=True):
    """What happened to a model's evidence, the first change first."""

    changes: tuple[ChangeEntry, ...]


class Changed(Struct, frozen=True):
    """What became of a change. bundle: the sha256 from now on, before: until then."""

    model: str
    version: str
    bundle: str
    before: str
    changes: tuple[ChangeEntry, ...]


class Reloaded(Struct, frozen=True):
    """What became of one model at a reload. error: why its new bundle was refused, or None."""

    name: str
    version: str
    bundle: str
    changed: bool
    error: str | None


class Reloads(Struct, frozen=True):
    """What became of all models at a reload."""

    models: tuple[Reloaded, ...]
