"""Outputs: what a snippet gave, and how a page shows it.

Printed text comes first; then the value of the last expression, if it is a matplotlib figure or has
an HTML form; then links to the HTML files that the snippet wrote. Other values are not shown:
snippets print what a reader should see.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

PIXELS_PER_INCH, WIDEST = 150, 760  # as shown; figures are made for a column of a paper
DOTS_PER_PIXEL = 2  # sharp screens have them


@dataclass(frozen=True)
class Picture:
    """A figure as PNG, what it shows in words, and its width on the page in pixels."""

    png: bytes
    title: str
    width: int


@dataclass(frozen=True)
class Output:
    """What one snippet gave: text, HTML, a picture, and the HTML files it wrote, by name."""

    text: str = ""
    html: str = ""
    picture: Picture | None = None
    files: dict[str, bytes] = field(default_factory=dict)


def to_markdown(output: Output, places: Iterator[str]) -> str:
    """Write what the page shows below the snippet; `places` yields the paths of the pictures."""
    shown = []
    if output.text:
        shown.append(f"````{{ .text .output }}\n{output.text}\n````")
    if output.picture is not None:
        look = f"{{ .figure width={output.picture.width} }}"
        shown.append(f"![{output.picture.title}]({next(places)}){look}")
    if output.html:
        shown.append(f'<div class="shown">\n{output.html}\n</div>')
    shown += [f'[Open {name}]({name}){{ .written target="_blank" }}' for name in output.files]
    return "\n\n".join(shown)


def as_picture(value: Any) -> Picture | None:
    """The picture of a figure, or of the figure that axes are in."""
    figure = getattr(value, "figure", value)
    if not hasattr(figure, "savefig"):
        return None
    inches = figure.get_size_inches()[0]
    width = min(round(PIXELS_PER_INCH * inches), WIDEST)
    png = io.BytesIO()
    dots = DOTS_PER_PIXEL * width / inches
    figure.savefig(png, format="png", dpi=dots, metadata={"Software": None})
    return Picture(png.getvalue(), _describe(figure), width)


def as_html(value: Any) -> str:
    """A value as it shows itself in a notebook, or nothing."""
    if not hasattr(value, "_repr_html_") or hasattr(value, "get_params"):
        return ""  # the diagram of a scikit-learn estimator, which `fit` and `tune` return
    return value._repr_html_() or ""


def _describe(figure: Any) -> str:
    """A figure in words, for those who cannot see it: its titles, else its axes."""
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    labels = [f"{axes.get_ylabel()} against {axes.get_xlabel()}" for axes in figure.axes]
    # What matplotlib reads as formulas, and what would end the text in Markdown.
    return re.sub(r"[\[\]${}_\n]", "", "; ".join(titles or labels).replace("\\neg ", "¬"))
