"""What all plots share: the size of letters, a legend above the axes, and a figure."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import NullFormatter

from iknow.core.arrays import Floats
from iknow.evaluation.plots.matplotlib.style import INK, STYLE

COLUMN_WIDTH = 3.4  # inches: a column of the usual two-column papers is 3.25 to 3.5 wide
THIN_HALO = [withStroke(linewidth=2, foreground="white")]  # keeps words readable on top of a plot
TICKS = {"major.size": 2.5, "major.width": 0.6, "minor.size": 1.5, "minor.width": 0.4}
COLUMN_STYLE: dict[str, Any] = STYLE | {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "axes.linewidth": 0.6,
    "axes.labelpad": 2,
    "axes.titlepad": 4,
    **{f"{axis}tick.labelsize": 7 for axis in "xy"},
    **{f"{axis}tick.{part}": size for axis in "xy" for part, size in TICKS.items()},
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
}


def column_figure(rows: int = 1, columns: int = 1, height: float = 2.4) -> Figure:
    """Make a figure as wide as a column of a paper, with empty axes.

    Args:
        rows: Number of rows of axes.
        columns: Number of columns of axes.
        height: Inches per row.

    Examples:
        >>> len(column_figure(2, 2).axes)
        4
    """
    with style.context(["default", COLUMN_STYLE]):
        figure = Figure(figsize=(COLUMN_WIDTH, rows * height))
        figure.subplots(rows, columns)
    return figure


def letter_size(axes: Axes) -> float:
    """The size of the axes' own labels, in points: all other letters follow it."""
    return float(axes.xaxis.label.get_fontsize())


def legend_above(axes: Axes, columns: int, **look: Any) -> None:
    """A legend above the axes, where it hides nothing."""
    if not axes.get_legend_handles_labels()[0]:
        return
    sizes = {"fontsize": letter_size(axes) - 0.5, "handlelength": 2.0, "columnspacing": 0.9}
    axes.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=columns, frameon=False,
        labelcolor=INK, handletextpad=0.4, borderpad=0.2, labelspacing=0.25, borderaxespad=0.3,
        **(sizes | look),
    )  # fmt: skip


def spans_magnitudes(values: Floats) -> bool:
    """Whether values need a logarithmic axis: half lie in the first twentieth of the range."""
    positive = values[(values > 0) & np.isfinite(values)]
    return len(positive) > 0 and float(np.median(positive)) < float(positive.max()) / 20


def use_logarithm(axes: Axes, *which: Literal["x", "y"]) -> None:
    """Make axes logarithmic, with plain numbers at their ticks."""
    for name in which:
        axes.set(**{f"{name}scale": "log"})
        axis = axes.xaxis if name == "x" else axes.yaxis
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(NullFormatter())
