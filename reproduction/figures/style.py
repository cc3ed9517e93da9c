"""Figures for a page: the colors and letters of the library's plots, larger, and under a title.

The user's settings are not touched, and the bytes of a picture depend on nothing but its content.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from matplotlib import style
from matplotlib.figure import Figure

from iknow.evaluation.plots import STYLE

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
DPI = 150


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
