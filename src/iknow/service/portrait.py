"""Portraits: a sample's picture and the evidence about it as plain values, small enough to send.

Nothing here is markup. Numbers that JSON cannot express become None, names are visible and short
(`iknow.core.text`), and an image becomes a PNG of at most `LONGEST_SIDE` pixels a side.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Any

from iknow.core.text import name
from iknow.explain.explanation import Explanation
from iknow.explain.layer import Exemplar, LayerExplanation
from iknow.explain.picture import Image, Picture, Series
from iknow.explain.png import png_bytes
from iknow.report.album import shrink_image, shrink_series

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
