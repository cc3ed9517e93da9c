"""How the figures look: the same colors and letters everywhere.

The color-blind can distinguish all assertions and classes. Neither pyplot nor the user's settings
are touched, and the bytes of a picture depend on nothing but its content.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import NullFormatter

from iknow.core.arrays import Floats

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

CLASS_COLORS = ("#0063a6", "#a83279", "#4aa8e0", "#3d3d3d")
CLASS_MARKERS = ("o", "^", "s", "D")
INK, PENCIL = "#222222", "#5c5c5c"
DPI = 150
CENTERED: dict[str, Any] = {"ha": "center", "va": "center"}
STYLE: dict[str, Any] = {
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#999999",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlecolor": PENCIL,
    "figure.titlesize": 14,
    "figure.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "mathtext.default": "regular",
    "xtick.color": PENCIL,
    "ytick.color": PENCIL,
}
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


def styled(draw: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Run with our settings over matplotlib's defaults, whatever the user's are."""

    @wraps(draw)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with style.context(["default", STYLE]):
            return draw(*args, **kwargs)

    return run


@styled
def to_png(figure: Figure) -> bytes:
    """The picture as a PNG without a date or version."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def titled(size: tuple[float, float], title: str) -> Figure:
    """An empty figure of a size in inches."""
    figure = Figure(figsize=size)
    figure.suptitle(title, x=0.015, ha="left")
    return figure


def tint(color: str, strength: float) -> tuple[float, float, float]:
    """A color on white paper."""
    red, green, blue = (1 - strength * (1 - part) for part in to_rgb(color))
    return red, green, blue


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
