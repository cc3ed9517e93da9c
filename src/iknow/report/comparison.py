"""Comparison: methods side by side, as a section of the report or a page of its own."""

from __future__ import annotations

import html

from iknow.core.text import name
from iknow.evaluation.comparison import Comparison
from iknow.report.assemble import read_style, style_policy
from iknow.version import __version__

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="iknow {version}">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<header class="top"><h1>{title}</h1></header>
<main>
{section}
</main>
<footer>Made by iknow {version}. This file is complete: it loads nothing and sends nothing.</footer>
</body>
</html>
"""


def make_comparison_page(comparison: Comparison, *, title: str | None = None) -> str:
    """Make a comparison into one self-contained HTML page.

    Args:
        comparison: What `compare` returned.
        title: Title of the page.

    Examples:
        >>> make_comparison_page(comparison)[:15]
        '<!doctype html>'
    """
    style = read_style()
    return PAGE.format(
        policy=style_policy(style),
        version=html.escape(__version__),
        title=html.escape(name(title or "iknow and its peers")),
        style=style,
        section=comparison_section(comparison),
    )


def comparison_section(comparison: Comparison | None) -> str:
    """The section of the report; nothing without a comparison."""
    if comparison is None:
        return ""
    return (
        '<section class="card" id="comparison" aria-labelledby="comparison-title">'
        f'<h2 id="comparison-title">Beside other methods</h2>{comparison.to_html(_table)}</section>'
    )


def _table(headings: list[str], rows: list[list[str]]) -> str:
    """A table with classes and no styles, as the page's policy lets only its style sheet apply."""
    top = "".join(f'<th scope="col">{html.escape(each)}</th>' for each in headings)
    body = "".join(
        f'<tr><th scope="row">{method}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for method, *cells in rows
    )
    return f'<div class="compared"><table><tr>{top}</tr>{body}</table></div>'
