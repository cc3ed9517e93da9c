"""Drawing distances for and against: the whole method in one picture.

Each sample is a point (d_g, d_¬g). Which areas of this plane a rule decides by these distances
alone it says itself (`iknow.core.drawing`); they are shaded and named here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Polygon

from iknow.core.arrays import Floats
from iknow.core.assertion import Assertion, Reason
from iknow.core.colors import COLORS
from iknow.core.drawing import Drawing, Limits
from iknow.core.overriding import said
from iknow.evaluation.plots.matplotlib.axes import (
    THIN_HALO,
    legend_above,
    letter_size,
    plain_number,
    spans_magnitudes,
    use_logarithm,
)
from iknow.evaluation.plots.matplotlib.style import INK, PENCIL, tint
from iknow.evaluation.scatter import EvidenceScatter

GREEN, AMBER, GREY = (COLORS[a] for a in (Assertion.IK, Assertion.IMK, Assertion.IDK))
LOOKS: dict[Assertion, dict[str, Any]] = {
    Assertion.IK: {"marker": "o", "s": 7, "linewidths": 0, "alpha": 0.6, "color": GREEN},
    Assertion.IMK: {
        "marker": "^", "s": 14, "linewidths": 0.8, "facecolors": "none", "edgecolors": AMBER,
    },
    Assertion.IDK: {"marker": "x", "s": 11, "linewidths": 0.9, "color": GREY},
}  # fmt: skip
KNOWN, OVERLAP, EXTRAPOLATION, CONTRADICTION = (
    Reason.KNOWN, Reason.OVERLAP, Reason.EXTRAPOLATION, Reason.CONTRADICTION,
)  # fmt: skip
AREA_LOOKS = {
    KNOWN: ("IK", GREEN, 0.1),
    OVERLAP: ("IMK", AMBER, 0.16),
    EXTRAPOLATION: ("IDK: extrapolation", GREY, 0.06),
    CONTRADICTION: ("IDK: contradiction", GREY, 0.2),
}
"""Name, colour and strength of its shade."""
CORNERS: dict[Reason, tuple[float, float, str, str]] = {
    KNOWN: (0.015, 0.98, "left", "top"),
    OVERLAP: (0.015, 0.02, "left", "bottom"),
    EXTRAPOLATION: (0.985, 0.98, "right", "top"),
    CONTRADICTION: (0.985, 0.02, "right", "bottom"),
}


def draw_evidence(axes: Axes, scatter: EvidenceScatter) -> None:
    """Draw the points (d_g, d_¬g), marked by assertion, with the lines where the rule decides.

    An infinite distance lies on the upper edge; on a logarithmic axis, 0 lies on the lower one.

    Args:
        axes: Where to draw.
        scatter: The result of `evidence_scatter`.

    Examples:
        >>> draw_evidence(column_figure().axes[0], evidence_scatter(a, "input"))
    """
    drawing: Drawing | None = said(scatter.neighborhood, "drawing")()
    x_limits, y_limits, logarithmic = _find_limits(scatter, drawing)
    if logarithmic:
        use_logarithm(axes, "x", "y")
    axes.set(xlim=x_limits, ylim=y_limits)
    own, other = np.clip(scatter.own, *x_limits), np.clip(scatter.other, *y_limits)
    for assertion, look in LOOKS.items():
        these = scatter.assertion == assertion
        name = f"{assertion.name} ({these.sum():,})"
        axes.scatter(own[these], other[these], label=name, clip_on=False, zorder=2, **look)
    if drawing is None:  # above: nearer to the believed class; below: to another one
        ends = max(x_limits[0], y_limits[0]), min(x_limits[1], y_limits[1])
        axes.plot(ends, ends, color=PENCIL, linewidth=0.7, linestyle=(0, (4, 2)))
    else:
        _draw_areas(axes, drawing)
        radius = drawing.marks[0]
        axes.annotate(
            f"ε = {plain_number(radius)}", (1, radius), xycoords=axes.get_yaxis_transform(),
            xytext=(-2, 3), textcoords="offset points", ha="right", color=INK,
            size=letter_size(axes) - 0.5, path_effects=THIN_HALO, zorder=5,
        )  # fmt: skip
    axes.set(xlabel="$d_g$: distance to the believed class")
    axes.set(ylabel=r"$d_{\neg g}$: distance to any other")
    legend_above(axes, columns=3, markerscale=1.4)


def _draw_areas(axes: Axes, drawing: Drawing) -> None:
    """Shade and name the areas; their edges are where the rule decides."""
    for reason, corners in drawing.areas(axes.get_xlim(), axes.get_ylim()).items():
        name, color, strength = AREA_LOOKS[reason]
        shade: dict[str, Any] = {
            "facecolor": tint(color, strength),
            "edgecolor": INK,
            "linewidth": 0.8,
        }
        axes.add_patch(Polygon(np.array(corners), **shade, zorder=0.5))
        x, y, horizontal, vertical = CORNERS[reason]
        place: Any = {"transform": axes.transAxes, "ha": horizontal, "va": vertical}
        if reason in drawing.on_diagonal:
            x = y = (0.35 if axes.get_xscale() == "log" else 0.8) * drawing.marks[0]
            place = {"ha": "center", "va": "center"}
        axes.text(
            x, y, name, **place, color=color, weight="bold", size=letter_size(axes),
            path_effects=THIN_HALO, zorder=5,
        )  # fmt: skip


def _find_limits(scatter: EvidenceScatter, drawing: Drawing | None) -> tuple[Limits, Limits, bool]:
    """The limits of both axes, and whether they are logarithmic."""
    line = list(drawing.marks) if drawing is not None and drawing.marks[0] else []
    sides = [np.append(side[np.isfinite(side)], line) for side in (scatter.own, scatter.other)]
    # Where the lines would be at the very edge, magnitudes are what matters, too.
    largest = max(float(side.max(initial=0.0)) for side in sides)
    logarithmic = any(map(spans_magnitudes, sides)) or 0 < min(line, default=0.0) < largest / 12
    limits = _logarithmic_limits if logarithmic else _linear_limits
    return limits(sides[0], line, 0.55), limits(sides[1], line, 0.7), logarithmic


def _linear_limits(values: Floats, line: list[float], most: float) -> Limits:
    """From 0 to beyond all values, with the line no further than a part `most` of the way."""
    return 0.0, max(1.12 * float(values.max(initial=0.0)), max(line, default=0.0) / most) or 1.0


def _logarithmic_limits(values: Floats, line: list[float], most: float) -> Limits:
    """Around all values, with the line a part of 0.15 to `most` of the way: names need room."""
    low, high = np.log(values[values > 0].min()) - 0.5, np.log(values.max()) + 1.0
    if line:
        low = min(low, (np.log(line[0]) - 0.15 * high) / 0.85)
        high = max(high, low + (np.log(line[-1]) - low) / most)
    return float(np.exp(low)), float(np.exp(high))
