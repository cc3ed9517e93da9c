"""Reports as HTML, for notebooks: the figures, and the augmented confusion matrix."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from iknow.cards import FAINT, SOFT, bar, card, heading, mark, paragraphs, table, text
from iknow.core.arrays import Ints
from iknow.core.assertion import Assertion
from iknow.core.colors import COLORS
from iknow.core.text import name, percent
from iknow.evaluation.metrics import Report

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
