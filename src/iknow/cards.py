"""Cards: records as notebooks show them, without scripts or style sheets.

Only assertions have colors, visible on light and on dark paper; the notebook styles the rest. Here
"text" is escaped and "markup" is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from iknow.core.assertion import Assertion
from iknow.core.text import name, percent, visible


class Shades(NamedTuple):
    """A color for filled areas and its ink, on light and on dark paper."""

    light: str
    light_ink: str
    dark: str
    dark_ink: str


SHADES = {
    Assertion.IK: Shades("#00795a", "#00664c", "#2bb28a", "#58d0ab"),
    Assertion.IMK: Shades("#c77700", "#8f5500", "#e69a2e", "#f2b45c"),
    Assertion.IDK: Shades("#6f757d", "#565c63", "#98a0a8", "#b6bec5"),
}
# For when one color must serve on any background.
COLORS = {assertion: shades.light for assertion, shades in SHADES.items()}
MEANINGS = {Assertion.IK: "I know", Assertion.IMK: "I may know", Assertion.IDK: "I don't know"}
CELL = "padding:2px 18px 8px 0;text-align:left;vertical-align:top;border:none"
SOFT = "opacity:0.7"
LINE, FAINT = "#8080807f", "#80808026"


def card(*parts: str, color: str = LINE) -> str:
    """Parts of markup, one below the other in a frame."""
    return (
        f'<div style="border:1px solid {color};border-left-width:6px;border-radius:6px;'
        "padding:10px 14px;max-width:60em;font-family:system-ui,sans-serif;"
        f'font-variant-numeric:tabular-nums">{"".join(parts)}</div>'
    )


def text(value: object) -> str:
    """Any value as escaped text."""
    return escape(name(value))


def heading(title: str, rest: str) -> str:
    """The first line of a card, from text."""
    return f"<div><b>{text(title)}</b> {text(rest)}</div>"


def paragraphs(sentences: Iterable[str]) -> str:
    """Sentences of text, one below the other."""
    return "\n".join(f"<p>{escape(visible(said))}</p>" for said in sentences)


def badge(assertion: Assertion) -> str:
    """An assertion in white on its color."""
    return (
        f'<span style="background:{SHADES[assertion].light_ink};color:#fff;font-weight:bold;'
        f'padding:2px 8px;border-radius:4px">{assertion}</span>'
    )


def bar(counts: Mapping[Assertion, int], total: int) -> str:
    """The share of samples with each assertion, as lengths."""
    lengths = "".join(
        f'<span style="width:{100 * count / total:.3f}%;background:{COLORS[assertion]}"></span>'
        for assertion, count in counts.items()
        if count
    )
    style = "display:flex;height:14px;border-radius:4px;overflow:hidden;margin:10px 0 6px"
    return f'<div style="{style};background:{FAINT}">{lengths}</div>'


def legend(counts: Mapping[Assertion, int], total: int) -> str:
    """What `bar` shows, in words."""
    entries = "".join(
        f'<span title="{MEANINGS[assertion]}">{mark(assertion)} {count:,} '
        f'<span style="{SOFT}">{percent(count / total) if total else ""}</span></span>'
        for assertion, count in counts.items()
    )
    return f'<div style="display:flex;flex-wrap:wrap;gap:2px 24px">{entries}</div>'


def mark(assertion: Assertion) -> str:
    """An assertion after a square of its color."""
    return (
        '<span style="display:inline-block;width:0.7em;height:0.7em;border-radius:2px;'
        f'background:{COLORS[assertion]}"></span> <b>{assertion}</b>'
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], margin: str = "0") -> str:
    """Cells of markup under headings of text."""
    top = "".join(f'<th style="{CELL};{SOFT}">{text(title)}</th>' for title in headings)
    cells = ["".join(f'<td style="{CELL}">{cell}</td>' for cell in row) for row in rows]
    body = "".join(f"<tr>{row}</tr>" for row in [top, *cells] if row)
    style = f"border-collapse:collapse;border:none;font-size:inherit;color:inherit;margin:{margin}"
    return f'<table style="{style}">{body}</table>'
