"""How the figures look: colours, letters, and the few marks that all of them use.

Assertions and classes have the same colours everywhere; the colour-blind can tell them apart.
Neither pyplot nor the user's own settings are touched, and the bytes of a picture depend on nothing
but what is in it.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from iknow.core.arrays import Floats, Ints

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

CLASS_COLORS = ("#0063a6", "#a83279", "#4aa8e0", "#3d3d3d")
CLASS_MARKERS = ("o", "^", "s", "D")
INK, PENCIL = "#222222", "#5c5c5c"
DPI = 150
CENTERED: dict[str, Any] = {"ha": "center", "va": "center"}
DASHED: dict[str, Any] = {"color": INK, "linewidth": 1.3, "linestyle": (0, (4, 1.5))}
BOX = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "boxstyle": "round,pad=0.3"}
HALO = [withStroke(linewidth=4, foreground="white")]
"""Keeps words readable on top of points without hiding them."""
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


def styled(draw: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Run with our settings over matplotlib's defaults, whatever the user's are."""

    @wraps(draw)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with style.context(["default", STYLE]):
            return draw(*args, **kwargs)

    return run


@styled
def to_png(figure: Figure) -> bytes:
    """The picture as a PNG that tells neither a date nor a version."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def titled(size: tuple[float, float], title: str) -> Figure:
    """An empty figure of a size in inches."""
    figure = Figure(figsize=size)
    figure.suptitle(title, x=0.015, ha="left")
    return figure


def write(
    axes: Axes, x: float, y: float, text: str, color: str, offset: tuple[float, float], **look: Any
) -> None:
    """Text that is so many points away from a place in the data."""
    look = {**CENTERED, "size": 12, "weight": "bold", "color": color, **look}
    axes.annotate(text, (x, y), xytext=offset, textcoords="offset points", **look)


def write_at(axes: Axes, place: tuple[float, float], text: str, color: str, **look: Any) -> None:
    """A heading beside an axes, at a place in fractions of its size."""
    look = {**CENTERED, "size": 14, "weight": "bold", "color": color, **look}
    axes.text(*place, text, transform=axes.transAxes, **look)


def scatter(axes: Axes, points: Floats, labels: Ints, size: float, alpha: float) -> None:
    """Points of shape (n, 2), each class with its colour and marker."""
    for code in np.unique(labels):
        x, y = points[labels == code].T
        look: dict[str, Any] = {"marker": CLASS_MARKERS[code], "color": CLASS_COLORS[code]}
        look |= {"linewidths": 0.3, "edgecolors": "white"}
        axes.scatter(x, y, s=size, alpha=alpha, label=f"class {code}", **look)


def tint(color: str, strength: float) -> tuple[float, float, float]:
    """A colour on white paper."""
    red, green, blue = (1 - strength * (1 - part) for part in to_rgb(color))
    return red, green, blue
