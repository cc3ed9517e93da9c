"""Reports and comparisons as HTML, for notebooks.

The drawings of risk-coverage curves use attributes and no styles, so a page whose policy forbids
inline styles shows them too. iknow is drawn in the color of IK, softmax dashed, all others thin and
gray; each line names its method when pointed at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape

import numpy as np

from iknow.cards import COLORS, FAINT, SOFT, bar, card, heading, mark, paragraphs, table, text
from iknow.core.arrays import Ints
from iknow.core.assertion import Assertion
from iknow.core.text import name, percent
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
from iknow.evaluation.metrics import Report
from iknow.evaluation.peers import Softmax
from iknow.evaluation.risk_coverage import RiskCoverage

WRONG = "#b3123c"
MOST_CLASSES = 12  # whose matrix fits into a notebook; the page holds more
FAINTEST, STRONGEST = 0.12, 0.6
SQUARE = "min-width:2em;height:1.8em;padding:0 3px;text-align:center;border:none"


def to_html(report: Report) -> str:
    """The report as a small card."""
    counts = {assertion: report.count(assertion) for assertion in reversed(Assertion)}
    groups = {mark(assertion): [assertion] for assertion in reversed(Assertion)}
    groups["not IK"] = [Assertion.IMK, Assertion.IDK]
    rows = [
        (title, f"{n:,}", percent(n / report.n_samples), percent(report.accuracy(*group)))
        for title, group in groups.items()
        for n in (report.count(*group),)
    ]
    accuracy = percent(report.overall_accuracy)
    few = max(len(report.classes), len(report.true_classes)) <= MOST_CLASSES
    return card(
        heading("Report", f"on {report.n_samples:,} samples, {accuracy} right"),
        bar(counts, report.n_samples),
        table(("", "samples", "fraction", "accuracy"), rows, margin="12px 0 0"),
        _matrices(report) if few else "",
        paragraphs(report.remarks()),
    )


def _matrices(report: Report) -> str:
    """A confusion matrix for each assertion that occurs, side by side."""
    shown = "".join(
        f'<div style="margin:8px 0 0"><div>{mark(assertion)} '
        f'<span style="{SOFT}">belief down, truth across</span></div>'
        f"{_matrix(report.matrix[assertion], report, COLORS[assertion])}</div>"
        for assertion in reversed(Assertion)
        if report.matrix[assertion].any()
    )
    return f'<div style="display:flex;flex-wrap:wrap;gap:8px 28px">{shown}</div>'


def _matrix(counts: Ints, report: Report, color: str) -> str:
    top = "".join(_label(label) for label in report.true_classes.tolist())
    rows = "".join(
        f"<tr>{_label(label)}{''.join(_cells(row, place, int(counts.max()), color))}</tr>"
        for place, (label, row) in enumerate(zip(report.classes.tolist(), counts, strict=True))
    )
    style = "border-collapse:separate;border-spacing:1px;border:none;font-size:85%;margin:4px 0 0"
    return f'<table style="{style}"><tr><th style="{SQUARE}"></th>{top}</tr>{rows}</table>'


def _cells(row: Ints, place: int, most: int, color: str) -> Iterator[str]:
    """The cells of one belief; the darker, the more samples."""
    for true, count in enumerate(row.tolist()):
        strength = FAINTEST + (STRONGEST - FAINTEST) * np.sqrt(count / most)
        filled = f"{color if true == place else WRONG}{round(255 * strength):02x}"
        shade = filled if count else FAINT
        yield f'<td style="{SQUARE};background:{shade}">{f"{count:,}" if count else ""}</td>'


def _label(label: object) -> str:
    shown = name(label)
    short = shown if len(shown) <= 9 else shown[:8] + "…"
    return f'<th style="{SQUARE};{SOFT}" title="{text(label)}">{text(short)}</th>'


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
