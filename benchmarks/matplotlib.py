"""Drawing the cost of an assertion against rows and against features."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from benchmarks.records import (
    ASSERTION,
    BALL_TREE,
    CELLS,
    DENSE,
    FAISS,
    PRODUCTS,
    CaseFacts,
    Results,
)
from benchmarks.targets import duration
from iknow.cards import COLORS
from iknow.core.assertion import Assertion
from iknow.evaluation.plots import PENCIL
from reproduction.figures.style import styled, titled, to_png

__all__ = ["draw_cost", "spread_apart", "to_png", "to_svg"]

LOOKS: dict[str, dict[str, Any]] = {
    CELLS: {"color": COLORS[Assertion.IK], "linewidth": 3.0, "marker": "o"},
    DENSE: {"color": "#0063a6", "linewidth": 3.0, "marker": "o"},
    PRODUCTS: {"color": PENCIL, "linewidth": 1.6, "linestyle": (0, (4, 2)), "marker": "."},
    FAISS: {"color": COLORS[Assertion.IMK], "linewidth": 1.8, "marker": "s"},
    BALL_TREE: {"color": "#a83279", "linewidth": 1.8, "marker": "^"},
}
SHORT = {
    CELLS: "iknow, cells",
    DENSE: "iknow, dense",
    PRODUCTS: "bare products",
    FAISS: "FAISS, flat",
    BALL_TREE: "BallTree",
}
LABEL_GAP = 0.055
"""The least distance between two labels, as a fraction of the height of the axes."""


@styled
def draw_cost(results: Results) -> Figure:
    """Two panels, log-log: time for each query against rows, and against features."""
    figure = titled((11, 5.4), "What one assertion costs")
    panels = figure.subplots(1, 2, sharey=True)
    ends = []
    for axes, family, label in zip(
        panels, ("rows", "features"), ("training samples", "features"), strict=True
    ):
        cases = [case for case in results.cases if case.name.startswith(f"{family} ")]
        ends.append(_draw_panel(axes, results, cases, family, label))
    for axes, each in zip(panels, ends, strict=True):  # once the common height is known
        _label_ends(axes, each)
    panels[0].set_ylabel("time for each query")
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: _plain_duration(value)))
    return figure


@styled
def to_svg(figure: Figure) -> bytes:
    """The picture as an SVG without date and version."""
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "iknow"}):  # names within the file are random otherwise
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def spread_apart(places: list[float], gap: float) -> list[float]:
    """Positions moved as little as possible to be `gap` apart, in the same order."""
    order = np.argsort(places, kind="stable")
    moved = np.asarray(places, dtype=float)[order]
    for _ in range(200):
        close = gap - np.diff(moved)
        if not (close > 1e-9).any():
            break
        push = np.maximum(close, 0) / 2
        moved[:-1] -= push
        moved[1:] += push
    result = np.empty_like(moved)
    result[order] = moved
    return [float(each) for each in result]


def _draw_panel(
    axes: Axes, results: Results, cases: list[CaseFacts], family: str, label: str
) -> dict[str, tuple[float, float]]:
    """Draw the lines of one panel; returns where each ends."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    ends: dict[str, tuple[float, float]] = {}
    sizes = [_size(case, family) for case in cases]
    for name, look in LOOKS.items():
        found = [(_size(case, family), results.find(case.name, ASSERTION, name)) for case in cases]
        points = [(size, timing.best) for size, timing in found if timing is not None]
        if points:
            axes.plot(*zip(*points, strict=True), markersize=5, **look)
            ends[name] = points[-1]
    axes.set_title(_subtitle(cases, family))
    axes.set_xlabel(label)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(sizes, [_short_number(size) for size in sizes])
    axes.yaxis.set_minor_formatter(NullFormatter())
    return ends


def _label_ends(axes: Axes, ends: dict[str, tuple[float, float]]) -> None:
    """The name of each line at its end, moved apart if lines end close together."""
    low, high = (np.log10(limit) for limit in axes.get_ylim())
    heights = [(np.log10(y) - low) / (high - low) for _, y in ends.values()]
    for (name, (x, y)), place in zip(ends.items(), spread_apart(heights, LABEL_GAP), strict=True):
        own = name in (DENSE, CELLS)
        axes.annotate(
            SHORT[name],
            (x, y),
            xytext=(10, place),
            textcoords=("offset points", "axes fraction"),
            va="center",
            color=LOOKS[name]["color"],
            weight="bold" if own else "normal",
            annotation_clip=False,
        )


def _subtitle(cases: list[CaseFacts], family: str) -> str:
    if not cases:
        return ""
    first = cases[0]
    other = f"{first.n_rows:,} samples" if family == "features" else f"{_width(first)} features"
    return f"{other}, {first.n_classes} classes, clustered"


def _size(case: CaseFacts, family: str) -> float:
    return float(case.n_rows if family == "rows" else _width(case))


def _width(case: CaseFacts) -> int:
    return next(iter(case.layers.values()))


def _short_number(value: float) -> str:
    for divisor, unit in ((1e6, "M"), (1e3, "k")):
        if value >= divisor:
            return f"{value / divisor:g}{unit}"
    return f"{value:g}"


def _plain_duration(microseconds: float) -> str:
    return duration(microseconds).replace(".00", "").replace(".0", "")
