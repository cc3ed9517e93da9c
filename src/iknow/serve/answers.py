"""Answers to a request: what is said about its rows, with what was wanted besides.

An assessment holds evidence, or the way to it, and so the model: too much to keep, and too much to
send between processes. Its answers are small columns (`iknow.explain.answers`). Evidence about an
IDK takes a search, so a `Portrayer` gathers it for the page for a few rows a second at most, spread
over those that came together; the others are only counted.

A portrait is a sample's image and the evidence about it as plain values, small enough to send.
Nothing in it is markup. Numbers that JSON cannot express become None, names are visible and short
(`iknow.core.text`), and the image becomes a PNG of at most `LONGEST_SIDE` pixels a side.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.arrays import Floats, Ints
from iknow.core.assertion import Assertion, Reason
from iknow.core.codes import for_json
from iknow.core.evidence import NO_EXEMPLAR
from iknow.core.text import name
from iknow.explain.answers import Answers
from iknow.explain.assessment import Assessment
from iknow.explain.explanation import finite
from iknow.explain.picture import Image, Picture, Renderer, png_bytes, take_sample
from iknow.locking import Lock
from iknow.report.album import shrink_image
from iknow.serve.bodies import Rows, as_inputs
from iknow.serve.schema import Label, RowAnswer

ASSERTIONS = {int(each): each.name for each in Assertion}
REASONS = {int(each): each.name for each in Reason}
PER_SECOND = 2.0
MOST_AT_ONCE = 5
LONGEST_SIDE = 64  # pixels: the page asks for all pictures every two seconds


class Wanted(NamedTuple):
    """What to tell besides the answers. Only requests that want the same are joined."""

    evidence: bool = False
    exemplars: bool = False
    scores: bool = False
    explain: bool = False
    training: bool = False  # whether explanations tell values of training samples


@dataclass(frozen=True, eq=False, kw_only=True)
class RequestAnswers(Answers):
    """The answers about n rows; they can be sent to another process.

    Attributes:
        exemplars: By layer, the nearest training row of the believed class, of shape (n,), if
            wanted.
        scores: Of shape (n, n_classes), if wanted.
        evidence: Of length n, in plain values, if wanted.
        explanations: Likewise.
        portraits: Of some IDKs, for JSON, each with its `row`.
    """

    exemplars: Mapping[str, Ints]
    scores: Floats | None = None
    evidence: list[Any] | None = None
    explanations: list[Any] | None = None
    portraits: tuple[dict[str, Any], ...] = ()

    def __len__(self) -> int:
        return len(self.belief)

    def __getitem__(self, rows: slice) -> RequestAnswers:
        """The answers about some rows, of one request among those joined."""
        columns = {name: each for name, each in vars(self).items() if name != "classes"}
        part: dict[str, Any] = {
            name: each[rows]
            for name, each in columns.items()
            if isinstance(each, np.ndarray | list)
        }
        part["exemplars"] = {layer: each[rows] for layer, each in self.exemplars.items()}
        part["portraits"] = tuple(
            each | {"row": each["row"] - rows.start}
            for each in self.portraits
            if rows.start <= each["row"] < rows.stop
        )
        return replace(self, **part)

    def to_schema(self, labels: Sequence[Label], *, exemplars: bool) -> tuple[RowAnswer, ...]:
        """The answers as a reply holds them.

        labels: the classes as JSON has them. exemplars: whether the nearest training rows are told.
        """
        beliefs = [*labels, None]  # the last one for no belief, -1
        nearest: Any = repeat(None)
        if exemplars and self.exemplars:
            columns = zip(*(each.tolist() for each in self.exemplars.values()), strict=True)
            nearest = (dict(zip(self.exemplars, row, strict=True)) for row in columns)
        rows = zip(
            self.belief.tolist(),
            np.asarray(self.assertion).tolist(),
            np.asarray(self.reason).tolist(),
            repeat(None) if self.level is None else self.level.tolist(),
            repeat(None) if self.probability is None else map(finite, self.probability.tolist()),
            nearest,
            repeat(None) if self.evidence is None else self.evidence,
            repeat(None) if self.explanations is None else self.explanations,
            strict=False,  # what repeats has no end
        )
        return tuple(
            RowAnswer(beliefs[belief], ASSERTIONS[assertion], REASONS[reason], *others)  # type: ignore[arg-type]
            for belief, assertion, reason, *others in rows
        )


def assess(
    classifier: EpistemicClassifier, portrayer: Portrayer, rows: Rows, wanted: Wanted
) -> RequestAnswers:
    """Ask a classifier about shaped rows."""
    inputs = as_inputs(classifier, rows)
    assessment = classifier.assess(inputs)
    explained = (assessment.explain(i, samples=inputs) for i in range(len(assessment)))
    return RequestAnswers(
        **vars(assessment.answers) | {"index": None},
        exemplars=assessment.own_exemplars if wanted.exemplars else {},
        scores=assessment.scores if wanted.scores else None,
        evidence=describe_evidence(assessment) if wanted.evidence else None,
        explanations=[e.to_dict(wanted.training) for e in explained] if wanted.explain else None,
        portraits=portrayer.portray(assessment, rows.values),
    )


def describe_evidence(assessment: Assessment) -> list[dict[str, Any]]:
    """For each of n samples, by layer: the distances for and against, the reach, what is found
    within it, and the training rows nearest of the believed class and of the nearest other.
    """
    labels = [*for_json(assessment.classes), None]  # the last one for no class, -1
    told: list[dict[str, Any]] = [{} for _ in range(len(assessment))]
    for layer, supports in assessment.supports.items():
        found = assessment.for_and_against(layer)
        for i, said in enumerate(told):
            row = {name: column[i] for name, column in found.items()}
            against = row["against_row"]
            said[layer] = {
                "for": finite(row["for"]),
                "for_row": None if row["for_row"] == NO_EXEMPLAR else int(row["for_row"]),
                "against": finite(row["against"]),
                "against_row": None if against == NO_EXEMPLAR else int(against),
                "against_class": labels[row["against_class"]],
                "reach": finite(row["reach"]),
                "supported": [labels[c] for c in np.flatnonzero(supports[i])],
            }
    return told


class Portrayer:
    """Makes portraits of some of the IDKs, a few each second. Threads may share one.

    Args:
        picture: Makes pictures of the samples, such as `as_image(28, 28)`. Without it nothing of an
            input is kept.
        clock: Seconds that never run backward.
    """

    def __init__(
        self, picture: Renderer | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._picture, self._clock = picture, clock
        self._lock = Lock()
        self._left, self._since = float(MOST_AT_ONCE), clock()

    def portray(self, assessment: Assessment, inputs: Any = None) -> tuple[dict[str, Any], ...]:
        """Portraits of IDKs among n rows. inputs: the assessed rows, to draw those."""
        unknown = np.flatnonzero(np.asarray(assessment.assertion) == Assertion.IDK)
        rows = self._choose(unknown).tolist() if len(unknown) else []
        if not rows:
            return ()
        few, samples = assessment[np.array(rows)], None
        if self._picture is not None and inputs is not None:
            samples = {place: take_sample(inputs, row) for place, row in enumerate(rows)}
        return tuple(
            {
                "row": row,
                "belief": None if belief is None else name(belief),
                "reason": few.reason[place].name,
                **self._explain(few, place, samples),
            }
            for place, (row, belief) in enumerate(zip(rows, few.belief.tolist(), strict=True))
        )

    def _choose(self, unknown: Ints) -> Ints:
        """As many of the rows as there is time for, evenly spread over all of them."""
        with self._lock.held():
            now = self._clock()
            earned = max(now - self._since, 0.0) * PER_SECOND
            self._left, self._since = min(self._left + earned, float(MOST_AT_ONCE)), now
            count = min(int(self._left), len(unknown))
            self._left -= count
        return unknown[np.linspace(0, len(unknown) - 1, count).astype(np.int64)]

    def _explain(self, few: Assessment, place: int, samples: Any) -> dict[str, Any]:
        # It searches an index and calls a renderer, both possibly the user's. What they raise is no
        # reason to lose an answer that is given already.
        try:
            # Without a renderer nothing of an input is kept, and no value of a feature.
            shown = few if self._picture is not None else replace(few, measured=None)
            found = shown.explain(place, samples=samples, renderer=self._picture)
            picture = None if found.picture is None else as_plain_picture(found.picture)
            return found.to_dict(training=False) | {"picture": picture}
        except Exception:
            return {"sentence": "", "decides": "", "level": None, "layers": [], "picture": None}


def as_plain_picture(picture: Picture) -> dict[str, Any] | None:
    """An image for JSON, as a PNG; None for any other picture."""
    if not isinstance(picture, Image):
        return None
    pixels = shrink_image(picture.pixels, LONGEST_SIDE)
    source = f"data:image/png;base64,{base64.b64encode(png_bytes(pixels)).decode()}"
    return {"png": source, "width": pixels.shape[1], "height": pixels.shape[0]}
