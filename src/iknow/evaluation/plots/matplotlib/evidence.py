"""Drawing distances for and against: the whole method in one picture.

Each sample is a point (d_g, d_¬g). For a ball of radius ε two lines say it all: the believed class
is within reach left of d_g = ε, another one below d_¬g = ε.

    IK             left and above: the believed class alone
    IMK            left and below: others as well
    contradiction  right and below: only others
    extrapolation  right and above: nothing at all

A `RelativeBall` compares the two distances: its lines are rays through the origin, up to ε. Where
the k nearest have a say, distances alone do not tell, and only what is certain is shaded and named.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Polygon

from iknow.core.arrays import Floats
from iknow.core.assertion import Assertion, Reason
from iknow.core.colors import COLORS
from iknow.core.neighborhood import (
    Ball,
    BallElseNearest,
    BallWithNearest,
    Neighborhood,
    RelativeBall,
)
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

Limits = tuple[float, float]
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
CERTAIN: dict[type[Neighborhood], tuple[Reason, ...]] = {
    Ball: (KNOWN, OVERLAP, EXTRAPOLATION, CONTRADICTION),
    RelativeBall: (KNOWN, OVERLAP, EXTRAPOLATION, CONTRADICTION),
    BallElseNearest: (KNOWN, OVERLAP, CONTRADICTION),  # elsewhere the k nearest decide
    BallWithNearest: (OVERLAP, EXTRAPOLATION),  # elsewhere they may add a class
}


def draw_evidence(axes: Axes, scatter: EvidenceScatter) -> None:
    """Points (d_g, d_¬g), marked by assertion, with the lines where the rule decides.

    A distance that is infinite lies on the upper edge; on a logarithmic axis, 0 on the lower one.
    """
    rule = scatter.neighborhood
    radius = getattr(rule, "radius", None)
    radius = radius if isinstance(radius, float) and np.isfinite(radius) else None
    ratio = rule.ratio if isinstance(rule, RelativeBall) else 1.0
    x_limits, y_limits, logarithmic = _find_limits(scatter, radius, ratio)
    if logarithmic:
        use_logarithm(axes, "x", "y")
    axes.set(xlim=x_limits, ylim=y_limits)
    own, other = np.clip(scatter.own, *x_limits), np.clip(scatter.other, *y_limits)
    for assertion, look in LOOKS.items():
        these = scatter.assertion == assertion
        name = f"{assertion.name} ({these.sum():,})"
        axes.scatter(own[these], other[these], label=name, clip_on=False, zorder=2, **look)
    if radius is None:  # above: nearer to the believed class; below: to another one
        ends = max(x_limits[0], y_limits[0]), min(x_limits[1], y_limits[1])
        axes.plot(ends, ends, color=PENCIL, linewidth=0.7, linestyle=(0, (4, 2)))
    else:
        _draw_areas(axes, rule, radius)
        axes.annotate(
            f"ε = {plain_number(radius)}", (1, radius), xycoords=axes.get_yaxis_transform(),
            xytext=(-2, 3), textcoords="offset points", ha="right", color=INK,
            size=letter_size(axes) - 0.5, path_effects=THIN_HALO, zorder=5,
        )  # fmt: skip
    axes.set(xlabel="$d_g$: distance to the believed class")
    axes.set(ylabel=r"$d_{\neg g}$: distance to any other")
    legend_above(axes, columns=3, markerscale=1.4)


def find_areas(
    rule: Neighborhood, radius: float, x_limits: Limits, y_limits: Limits
) -> dict[Reason, Floats]:
    """What distances alone decide by a rule: the corners of each area, of shape (n_corners, 2)."""
    (left, right), (bottom, top) = x_limits, y_limits
    center = (radius, radius)
    if isinstance(rule, RelativeBall):
        # Both rays, d_¬g = ratio · d_g and d_g = ratio · d_¬g, begin outside the picture.
        ratio, start = rule.ratio, min(left, bottom) / rule.ratio
        upper = [(start, ratio * start), (radius, ratio * radius)]
        lower = [(ratio * start, start), (ratio * radius, radius)]
        far = max(top, ratio * radius), max(right, ratio * radius)
        areas = {
            KNOWN: [*upper, (radius, far[0]), (start, far[0])],
            OVERLAP: [*upper, center, *lower[::-1]],
            EXTRAPOLATION: [center, (radius, far[0]), (far[1], far[0]), (far[1], radius)],
            CONTRADICTION: [*lower, (far[1], radius), (far[1], start)],
        }
    else:
        areas = {
            KNOWN: [(left, radius), center, (radius, top), (left, top)],
            OVERLAP: [(left, bottom), (radius, bottom), center, (left, radius)],
            EXTRAPOLATION: [center, (right, radius), (right, top), (radius, top)],
            CONTRADICTION: [(radius, bottom), (right, bottom), (right, radius), center],
        }
    return {reason: np.array(areas[reason]) for reason in CERTAIN.get(type(rule), ())}


def _draw_areas(axes: Axes, rule: Neighborhood, radius: float) -> None:
    """Shade and name the areas; their edges are where the rule decides."""
    areas = find_areas(rule, radius, axes.get_xlim(), axes.get_ylim())
    for reason, corners in areas.items():
        name, color, strength = AREA_LOOKS[reason]
        shade: dict[str, Any] = {
            "facecolor": tint(color, strength),
            "edgecolor": INK,
            "linewidth": 0.8,
        }
        axes.add_patch(Polygon(corners, **shade, zorder=0.5))
        x, y, horizontal, vertical = CORNERS[reason]
        place: Any = {"transform": axes.transAxes, "ha": horizontal, "va": vertical}
        if reason is OVERLAP and isinstance(rule, RelativeBall):  # between the rays
            x = y = (0.35 if axes.get_xscale() == "log" else 0.8) * radius
            place = {"ha": "center", "va": "center"}
        axes.text(
            x, y, name, **place, color=color, weight="bold", size=letter_size(axes),
            path_effects=THIN_HALO, zorder=5,
        )  # fmt: skip


def _find_limits(
    scatter: EvidenceScatter, radius: float | None, ratio: float
) -> tuple[Limits, Limits, bool]:
    """The limits of both axes, and whether they are logarithmic."""
    line = [] if not radius else [radius, radius * ratio]
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
        high = max(high, low + (np.log(line[1]) - low) / most)
    return float(np.exp(low)), float(np.exp(high))
