"""Selections as HTML, for notebooks: the neighborhoods, how they perform, and what is promised."""

from __future__ import annotations

from iknow.cards import COLORS, LINE, bar, card, heading, legend, paragraphs, table, text
from iknow.core.assertion import Assertion
from iknow.selection.selection import Selection


def to_html(selection: Selection) -> str:
    """The selection as a small card; green where an accuracy is certified."""
    known = {Assertion.IK: round(selection.coverage * selection.n_samples)}
    rows = [(text(layer), text(repr(rule))) for layer, rule in selection.neighborhoods.items()]
    return card(
        heading("Selection", f"of neighborhoods, method {selection.method}"),
        bar(known, selection.n_samples),
        legend(known, selection.n_samples),
        table(("layer", "rule"), rows, margin="12px 0 0"),
        paragraphs(selection.sentences()),
        color=COLORS[Assertion.IK] if selection.is_certified else LINE,
    )
