"""How the figures look: the same colors and letters everywhere.

The color-blind can distinguish all assertions and classes. Neither pyplot nor the user's settings
are touched, and the bytes of a picture depend on nothing but its content.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from matplotlib import style
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

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
