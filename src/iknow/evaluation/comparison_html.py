"""Comparisons as HTML: tables, and risk-coverage curves as small drawings.

The drawings use attributes and no styles, so a page whose policy forbids inline styles shows them
too. iknow is drawn in the color of IK, softmax dashed, all others thin and gray; each line names
its method when pointed at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from iknow.cards import card, heading, paragraphs, table, text
from iknow.core.assertion import Assertion
from iknow.core.colors import COLORS
from iknow.core.text import percent
from iknow.evaluation.comparison import (
    MARK,
    OURS,
    Comparison,
    remarks,
    set_rows,
    set_title,
    summary_rows,
    summary_title,
)
from iknow.evaluation.peers import Softmax
from iknow.evaluation.risk_coverage import RiskCoverage

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 224, 150, 44, 22, 26  # of a drawing and its margins
POINTS = 61  # of a line: more cannot be seen


def comparison_card(comparison: Comparison) -> str:
    """The comparison as a card for notebooks."""
    drawings = "".join(draw_set(name, lines) for name, lines in comparison.curves.items())
    return card(
        heading("Comparison", f"of {len(comparison.methods)} methods"),
        paragraphs([summary_title(comparison)]),
        _markup(summary_rows(comparison)),
        paragraphs([set_title(comparison)]),
        _markup(set_rows(comparison)),
        paragraphs([CURVES]),
        f'<div style="display:flex;flex-wrap:wrap;gap:8px">{drawings}</div>',
        paragraphs(remarks(comparison, best="Bold")),
    )


CURVES = (
    "Share asserted and wrong (up) against share asserted (right), each set together with the test "
    f"data; lower is better. Green: {OURS}. Dashed: softmax. Gray: the others."
)


def draw_set(name: str, lines: Mapping[str, RiskCoverage]) -> str:
    """The curves of all methods on one set, as an SVG element."""
    top = max(float(curve.risk.max()) for curve in lines.values()) or 1.0
    # The one to look at is drawn last, on top.
    ordered = sorted(lines, key=lambda method: (method == OURS, method == Softmax.name))
    paths = "".join(_path(method, lines[method], top) for method in ordered)
    bottom, right = HEIGHT - BOTTOM, WIDTH - 8
    words = [
        (LEFT, 14, "start", name),
        (LEFT - 5, TOP + 8, "end", percent(top)),
        (LEFT - 5, bottom, "end", "0"),
        (LEFT, HEIGHT - 10, "start", "0"),
        (right, HEIGHT - 10, "end", "100%"),
    ]
    labels = "".join(
        f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(said)}</text>'
        for x, y, anchor, said in words
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="Risk-coverage curves: {escape(name)}" font-size="11" fill="currentColor">'
        f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="currentColor" '
        f'stroke-opacity="0.4"/>{paths}{labels}</svg>'
    )


def _path(method: str, curve: RiskCoverage, top: float) -> str:
    thin = curve.thinned(POINTS)
    across, up = WIDTH - 8 - LEFT, HEIGHT - BOTTOM - TOP
    points = " ".join(
        f"{LEFT + across * x:.1f},{HEIGHT - BOTTOM - up * y / top:.1f}"
        for x, y in zip(thin.coverage.tolist(), thin.risk.tolist(), strict=True)
    )
    look = 'stroke="currentColor" stroke-opacity="0.35" stroke-width="1"'
    if method == OURS:
        look = f'stroke="{COLORS[Assertion.IK]}" stroke-width="2.5"'
    elif method == Softmax.name:
        look = 'stroke="currentColor" stroke-opacity="0.8" stroke-dasharray="4 3"'
    return (
        f'<polyline points="{points}" fill="none" {look}><title>{escape(method)}</title></polyline>'
    )


def _markup(rows: list[list[str]]) -> str:
    """A table of a notebook; the best in bold."""
    first, *rest = rows
    return table([cell.strip() for cell in first], [bold_best(row) for row in rest], "6px 0 0")


def bold_best(row: Iterable[str]) -> list[str]:
    """Cells as markup, those with a mark in bold."""
    return [
        f"<b>{text(cell.removesuffix(MARK))}</b>" if cell.endswith(MARK) else text(cell.strip())
        for cell in row
    ]
