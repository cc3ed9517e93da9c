"""Comparison: the record of a comparison, its tables, and how it reads as text and in notebooks.

Figures of a set are shares of its samples, so zeros are possible and sets of any size compare.
Drawings use attributes and no styles, so a page whose policy forbids inline styles shows them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from iknow.cards import COLORS, card, heading, paragraphs, table, text
from iknow.core.arrays import Floats
from iknow.core.assertion import Assertion
from iknow.core.text import name as shown_name
from iknow.core.text import percent
from iknow.evaluation.peers import Softmax
from iknow.evaluation.risk import RiskCoverage

OURS = "iknow"
MODEL = "every answer"
MARK = "*"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods compared on the same answers of one model, at equal coverage.

    Attributes:
        methods: Names of the methods; the first is iknow.
        sets: Names of the sets; the first is the clean test data.
        coverages: The coverages at which methods are compared.
        wrong: Share of samples asserted and wrong, of shape (n_methods, n_sets, n_coverages).
        wrong_between: Its confidence interval, of shape (n_methods, n_sets, n_coverages, 2).
        mean_between: The same of the mean over sets, of shape (n_methods, n_coverages, 2).
        asserted: Share of samples asserted, of shape (n_methods, n_sets, n_coverages).
        augrc: Area under the generalized risk-coverage curve, of shape (n_methods, n_sets). Of a
            set other than the test data it is of both together, each counting half.
        augrc_between: Its confidence interval, of shape (n_methods, n_sets, 2).
        augrc_mean_between: The same of the mean over sets, of shape (n_methods, 2).
        certified: Share of the test data asserted at the lowest threshold whose accuracy is
            certified, of shape (n_methods,); 0 if there is none.
        certified_by_mapie: The same for softmax by MAPIE's risk control; None if MAPIE is missing.
        errors: Share of wrong answers in each set, of shape (n_sets,).
        sizes: Number of samples in each set.
        accuracy: The accuracy to certify.
        confidence: Of certificates and intervals.
        curves: Risk-coverage curves by set and method, of what `augrc` is the area.
    """

    methods: tuple[str, ...]
    sets: tuple[str, ...]
    coverages: tuple[float, ...]
    wrong: Floats
    wrong_between: Floats
    mean_between: Floats
    asserted: Floats
    augrc: Floats
    augrc_between: Floats
    augrc_mean_between: Floats
    certified: Floats
    certified_by_mapie: float | None
    errors: Floats
    sizes: tuple[int, ...]
    accuracy: float
    confidence: float
    curves: Mapping[str, Mapping[str, RiskCoverage]]

    @property
    def mean_wrong(self) -> Floats:
        """The mean of `wrong` over the sets, of shape (n_methods, n_coverages)."""
        mean: Floats = self.wrong.mean(axis=1)
        return mean

    @property
    def mean_augrc(self) -> Floats:
        """The mean of `augrc` over the sets, of shape (n_methods,)."""
        mean: Floats = self.augrc.mean(axis=1)
        return mean

    def table(self) -> list[dict[str, Any]]:
        """Return one row per method, set and coverage, ready for a data frame."""
        return [
            {
                "method": method,
                "set": name,
                "coverage": coverage,
                "wrong": float(self.wrong[m, s, c]),
                "wrong_low": float(self.wrong_between[m, s, c, 0]),
                "wrong_high": float(self.wrong_between[m, s, c, 1]),
                "asserted": float(self.asserted[m, s, c]),
                "augrc": float(self.augrc[m, s]),
            }
            for m, method in enumerate(self.methods)
            for s, name in enumerate(self.sets)
            for c, coverage in enumerate(self.coverages)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON."""
        plain = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }
        curves = {
            name: {
                method: {"coverage": each.coverage.tolist(), "risk": each.risk.tolist()}
                for method, each in methods.items()
            }
            for name, methods in self.curves.items()
        }
        return {k: list(v) if isinstance(v, tuple) else v for k, v in plain.items()} | {
            "mean_wrong": self.mean_wrong.tolist(),
            "mean_augrc": self.mean_augrc.tolist(),
            "curves": curves,
        }

    def __str__(self) -> str:
        return "\n\n".join(
            [
                f"{summary_title(self)}\n\n{align(summary_rows(self))}",
                f"{set_title(self)}\n\n{align(set_rows(self))}",
                "\n".join(remarks(self)),
            ]
        )

    def __repr__(self) -> str:
        return f"Comparison of {len(self.methods)} methods on {len(self.sets)} sets"

    def _repr_html_(self) -> str:
        drawings = "".join(draw_set(name, lines) for name, lines in self.curves.items())
        return card(
            heading("Comparison", f"of {len(self.methods)} methods"),
            paragraphs([summary_title(self)]),
            _markup(summary_rows(self)),
            paragraphs([set_title(self)]),
            _markup(set_rows(self)),
            paragraphs([CURVES]),
            f'<div style="display:flex;flex-wrap:wrap;gap:8px">{drawings}</div>',
            paragraphs(remarks(self, best="Bold")),
        )

    @property
    def middle(self) -> float:
        """The coverage at which sets are shown one by one."""
        return self.coverages[len(self.coverages) // 2]


def summary_title(comparison: Comparison) -> str:
    """What the first table shows."""
    return (
        f"Asserted and wrong, mean over {len(comparison.sets)} sets, where each method asserts the "
        "same share of clean data"
    )


def set_title(comparison: Comparison) -> str:
    """What the second table shows."""
    return f"Set by set, at coverage {comparison.middle:.4g} of clean data"


def summary_rows(comparison: Comparison) -> list[list[str]]:
    """Headings, then a row per method: mean wrong at each coverage, AUGRC, certified coverage."""
    columns = [mark_best(values, map(percent, values)) for values in comparison.mean_wrong.T]
    areas, certified = comparison.mean_augrc, comparison.certified
    columns.append(mark_best(areas, [f"{area:.3f}" for area in areas]))
    columns.append(mark_best(-certified, map(_share, certified)))
    coverages = [f"at {coverage:.4g} " for coverage in comparison.coverages]
    rows = [
        ["method", *coverages, "AUGRC ", "certified "],
        *map(list, zip(comparison.methods, *columns, strict=True)),
    ]
    if (share := comparison.certified_by_mapie) is not None:
        rows.append(["softmax by MAPIE", *[""] * (len(coverages) + 1), f"{_share(share)} "])
    return rows


def _share(certified: float) -> str:
    return percent(certified) if certified else "none"


def set_rows(comparison: Comparison) -> list[list[str]]:
    """Headings, then a row per method: what it asserts wrongly in each set; last, the model."""
    wrong = comparison.wrong[:, :, comparison.coverages.index(comparison.middle)].T
    columns = [mark_best(values, map(percent, values)) for values in wrong]
    return [
        ["method", *(f"{shown_name(name)} " for name in comparison.sets)],
        *map(list, zip(comparison.methods, *columns, strict=True)),
        [MODEL, *(f"{percent(error)} " for error in comparison.errors)],
    ]


def mark_best(values: Floats, shown: Iterable[str]) -> list[str]:
    """Cells with a mark behind the smallest value, and behind those that read the same."""
    cells = list(shown)
    best = cells[int(np.argmin(values))]
    return [f"{cell}{MARK if cell == best else ' '}" for cell in cells]


def remarks(comparison: Comparison, best: str = MARK) -> Iterator[str]:
    """What the tables do not say by themselves; best: how they mark the best."""
    yield (
        f"{best}: best. AUGRC: area under the generalized risk-coverage curve, less is better. "
        f"certified: share of the test data asserted with an accuracy of {comparison.accuracy:.4g} "
        f"guaranteed with confidence {comparison.confidence:.4g}."
    )
    low, high = comparison.mean_between[0, comparison.coverages.index(comparison.middle)]
    yield (
        f"{OURS} at {comparison.middle:.4g}: between {percent(low)} and {percent(high)} with "
        f"confidence {comparison.confidence:.4g}, by the bootstrap."
    )
    if comparison.certified_by_mapie is None:
        yield "MAPIE's risk control is not shown: it needs pip install 'iknow[compare]'."


def align(rows: list[list[str]]) -> str:
    """Rows as text, the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 224, 150, 44, 22, 26  # of a drawing and its margins
POINTS = 61  # of a line: more cannot be seen


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
