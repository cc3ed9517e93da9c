"""What is seen of an assessment: one code or number per row, and portraits of a few IDKs.

An assessment holds evidence, or the way to it, and so the model: too much to keep, and too much to
send between processes. What is seen of it is small. Evidence about an IDK takes a search, so a
`Looker` gathers it for a few rows a second at most, spread over those that came together; the
others are only counted.

A portrait is a sample's picture and the evidence about it as plain values, small enough to send.
Nothing in it is markup. Numbers that JSON cannot express become None, names are visible and short
(`iknow.core.text`), and an image becomes a PNG of at most `LONGEST_SIDE` pixels a side.
"""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats, Ints
from iknow.core.assertion import Assertion
from iknow.core.text import name
from iknow.explain.assessment import Assessment
from iknow.explain.explanation import Exemplar, Explanation, LayerExplanation
from iknow.explain.picture import Image, Picture, Renderer, Series, png_bytes, take_sample
from iknow.locking import Lock
from iknow.report.album import shrink_image, shrink_series

PER_SECOND = 2.0
MOST_AT_ONCE = 5


@dataclass(frozen=True, eq=False)
class Seen:
    """What is seen of n rows; it can be sent to another process.

    Attributes:
        assertion: Codes of `Assertion`, of shape (n,).
        reason: Codes of `Reason`, of shape (n,).
        belief: Class codes of shape (n,); `NO_BELIEF` for none.
        level: Of shape (n,); None without levels.
        unknown: Portraits of some IDKs, for JSON, each with its `row`.
    """

    assertion: NDArray[np.int8]
    reason: NDArray[np.int8]
    belief: Ints
    level: Floats | None
    unknown: tuple[dict[str, Any], ...] = ()

    def __len__(self) -> int:
        return len(self.belief)


class Looker:
    """Sees what an assessment says. Threads may share one.

    Args:
        picture: Makes pictures of the samples, such as `as_image(28, 28)`. Without it nothing of an
            input is kept.
        per_second: How many IDKs get a portrait each second, in the long run.
        most: How many of them at once.
        clock: Seconds that never run backward.
    """

    def __init__(
        self,
        picture: Renderer | None = None,
        *,
        per_second: float = PER_SECOND,
        most: int = MOST_AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._picture = picture
        self._per_second = per_second
        self._most = most
        self._clock = clock
        self._lock = Lock()
        self._left = float(most)
        self._since = clock()

    def look(self, assessment: Assessment, inputs: Any = None) -> Seen:
        """See n rows. inputs: the assessed rows, to draw those that get a portrait."""
        assertion = np.asarray(assessment.assertion)
        unknown = np.flatnonzero(assertion == Assertion.IDK)
        rows = self._choose(unknown) if len(unknown) else unknown
        return Seen(
            assertion=assertion,
            reason=np.asarray(assessment.reason),
            belief=assessment.belief_codes,
            level=None if assessment.levels is None else assessment.level,
            unknown=tuple(self._portraits(assessment, rows, inputs)) if len(rows) else (),
        )

    def _choose(self, unknown: Ints) -> Ints:
        """As many of the rows as there is time for, evenly spread over all of them."""
        with self._lock.held():
            now = self._clock()
            earned = max(now - self._since, 0.0) * self._per_second
            self._left, self._since = min(self._left + earned, float(self._most)), now
            count = min(int(self._left), len(unknown))
            self._left -= count
        return unknown[np.linspace(0, len(unknown) - 1, count).astype(np.int64)]

    def _portraits(self, assessment: Assessment, rows: Ints, inputs: Any) -> list[dict[str, Any]]:
        few, samples = assessment[rows], None
        if self._picture is not None and inputs is not None:
            samples = {place: take_sample(inputs, row) for place, row in enumerate(rows.tolist())}
        return [
            {"row": row, **self._answer(few, place), **self._evidence(few, place, samples)}
            for place, row in enumerate(rows.tolist())
        ]

    def _answer(self, few: Assessment, place: int) -> dict[str, Any]:
        belief, reason = few.belief.tolist()[place], few.reason[place]
        level = None if few.levels is None else finite(few.level[place])
        return {
            "belief": None if belief is None else name(belief),
            "reason": reason.name,
            "level": level,
        }

    def _evidence(self, few: Assessment, place: int, samples: Any) -> dict[str, Any]:
        # It searches an index and calls a renderer, both possibly the user's. What they raise is no
        # reason to lose an answer that is given already.
        try:
            return portray(few.explain(place, samples=samples, renderer=self._picture))
        except Exception:
            return {"sentence": "", "weakest": "", "layers": [], "picture": None}


LONGEST_SIDE = 64  # pixels: the page asks for all pictures every two seconds
LONGEST_SENTENCE = 1000
MOST_STEPS = 120
MOST_CHANNELS = 4
MOST_FEATURES = 40
MOST_EXEMPLARS = 4  # and the one that decides, where a quorum asks for more


def portray(explanation: Explanation) -> dict[str, Any]:
    """What is known about one sample, for JSON."""
    return {
        "sentence": name(explanation.sentence, LONGEST_SENTENCE),
        "weakest": name(explanation.weakest),
        "layers": [_layer(layer) for layer in explanation.layers],
        "picture": None if explanation.picture is None else as_plain_picture(explanation.picture),
    }


def as_plain_picture(picture: Picture) -> dict[str, Any]:
    """A picture for JSON: `kind` is "image", "series" or "features"."""
    if isinstance(picture, Image):
        pixels = shrink_image(picture.pixels, LONGEST_SIDE)
        png = base64.b64encode(png_bytes(pixels)).decode()
        height, width = pixels.shape[:2]
        source = f"data:image/png;base64,{png}"
        return {"kind": "image", "png": source, "width": width, "height": height}
    if isinstance(picture, Series):
        values = shrink_series(picture.values[:MOST_CHANNELS], MOST_STEPS)
        channels = [[float(f"{value:.4g}") for value in channel] for channel in values.tolist()]
        return {"kind": "series", "values": channels}
    names = None if picture.names is None else list(picture.names[:MOST_FEATURES])
    kept = list(picture.values[:MOST_FEATURES])
    more = picture.n_more + len(picture.values) - len(kept)
    return {"kind": "features", "values": kept, "names": names, "more": more}


def finite(value: float | None) -> float | None:
    """A number that JSON can express; None for any other."""
    return None if value is None or not math.isfinite(value) else float(value)


def _layer(layer: LayerExplanation) -> dict[str, Any]:
    return {
        "layer": name(layer.layer),
        "reach": finite(layer.reach),
        "support": [name(label) for label in layer.support],
        "for": _exemplars(layer.samples_for),
        "against": _exemplars(layer.samples_against),
    }


def _exemplars(exemplars: Sequence[Exemplar]) -> list[dict[str, Any]]:
    most = MOST_EXEMPLARS
    kept = [*exemplars[:most], *exemplars[most:][-1:]]
    return [
        {"row": each.row, "label": name(each.label), "distance": finite(each.distance)}
        for each in kept
    ]
