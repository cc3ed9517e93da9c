"""Assessments, explanations and pictures as HTML, for notebooks; all data is escaped."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from itertools import cycle

import numpy as np

from iknow.cards import (
    CELL,
    COLORS,
    MEANINGS,
    badge,
    bar,
    card,
    heading,
    legend,
    paragraphs,
    table,
    text,
)
from iknow.core.assertion import Assertion, Reason
from iknow.core.text import name
from iknow.explain.assessment import Assessment
from iknow.explain.explanation import Exemplar, Explanation, LayerExplanation
from iknow.explain.picture import Image, Picture, Series, png_bytes, scale

SERIES_COLORS = ("#0063a6", "#a83279", "#4aa8e0", "#777777")
WIDTH, HEIGHT = 180, 72
FEATURES_SHOWN = 12


def to_html(explanation: Explanation) -> str:
    """The explanation as a small card."""
    assertion = explanation.assertion
    belief = "none" if explanation.belief is None else text(explanation.belief)
    sample = "" if explanation.picture is None else picture_to_html(explanation.picture)
    headings = ("layer", "for", "against", "within reach", "turns")
    standing = [f"{_capital(explanation.standing)}."] if explanation.standing else []
    rests = [f"{_capital(explanation.foundation)}."] if assertion == Assertion.IK else []
    return card(
        f"<div>{badge(assertion)} {MEANINGS[assertion]}, sample {explanation.index}, belief "
        f"<b>{belief}</b></div>",
        f'<p style="margin:8px 0">{escape(_capital(explanation.sentence))}.</p>',
        f'<div style="display:flex;flex-wrap:wrap;gap:8px 32px"><div>{sample}</div>',
        table(headings, map(_layer_row, explanation.layers)),
        "</div>",
        paragraphs(standing + rests),
        color=COLORS[assertion],
    )


def assessment_to_html(assessment: Assessment) -> str:
    """The assessment as a small card."""
    counts = {a: int((assessment.assertion == a).sum()) for a in reversed(Assertion)}
    reasons = {reason: int((assessment.reason == reason).sum()) for reason in Reason}
    given = ", ".join(f"{reason.name.lower()} {n:,}" for reason, n in reasons.items() if n)
    rules = [(text(layer), text(repr(rule))) for layer, rule in assessment.neighborhoods.items()]
    return card(
        heading("Assessment", f"of {len(assessment):,} predictions"),
        bar(counts, len(assessment)),
        legend(counts, len(assessment)),
        table(("layer", "rule"), rules, margin="12px 0 0"),
        paragraphs([f"reasons: {given}"] if given else []),
    )


def picture_to_html(picture: Picture) -> str:
    """A picture as an image, a drawing or a table."""
    if isinstance(picture, Image):
        data = base64.b64encode(png_bytes(picture.pixels)).decode()
        return (
            f'<img src="data:image/png;base64,{data}" alt="the sample" '
            'style="height:96px;image-rendering:pixelated">'
        )
    if isinstance(picture, Series):
        return _draw(picture)
    names = picture.names or tuple(f"[{i}]" for i in range(len(picture.values)))
    shown = list(zip(names, picture.values, strict=True))[:FEATURES_SHOWN]
    n_more = picture.n_more + len(picture.values) - len(shown)
    rows = "".join(
        f'<tr><td style="{CELL};opacity:0.7">{escape(title)}</td><td style="{CELL}">'
        f"{escape(value if isinstance(value, str) else f'{value:.4g}')}</td></tr>"
        for title, value in shown
    )
    more = f'<tr><td style="{CELL}" colspan="2">and {n_more} more</td></tr>' if n_more else ""
    return f'<table style="border-collapse:collapse;font-size:85%">{rows}{more}</table>'


def _layer_row(layer: LayerExplanation) -> tuple[str, ...]:
    support = ", ".join(map(name, layer.support)) or "nothing"
    needed, contradicting = layer.quorum
    return (
        text(layer.layer),
        _exemplars(layer.samples_for, needed),
        _exemplars(layer.samples_against, contradicting),
        f"{escape(support)}<br>{layer.extent}",
        "" if layer.slack is None else escape(str(layer.slack)),
    )


def _exemplars(exemplars: Sequence[Exemplar], needed: int) -> str:
    """Pictures in a row, over the words that a text has; without pictures the words alone."""
    pictures = [picture_to_html(each.picture) for each in exemplars if each.picture is not None]
    row = f'<div style="display:flex;flex-wrap:wrap;gap:4px">{"".join(pictures)}</div>'
    few = f"of {needed} needed" if 0 < len(exemplars) < needed else ""
    words = [*(escape(str(each)) for each in exemplars), few]
    return (row if pictures else "") + ("<br>".join(filter(None, words)) or "no sample")


def _draw(series: Series) -> str:
    """The channels of a series as lines over one another, on a common scale."""
    values = series.values
    low, high = float(values.min()), float(values.max())
    heights = HEIGHT - 3 - scale(values, low, high) * (HEIGHT - 6)
    places = np.linspace(2, WIDTH - 2, values.shape[1])
    lines = ""
    for channel, color in zip(heights, cycle(SERIES_COLORS), strict=False):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(places, channel, strict=True))
        lines += f'<polyline fill="none" stroke="{color}" stroke-width="1.5" points="{points}"/>'
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="a series from {low:.4g} to {high:.4g}">{lines}</svg>'
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
