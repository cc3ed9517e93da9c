"""Maps: a plane shaded by what is known, distances for and against, and the confusion matrix.

**Evidence**: each sample is a point (d_g, d_¬g). A rule says which areas of this plane it decides
by these distances alone (`iknow.core.rule`); here they are shaded and named.

**The augmented confusion matrix**: four blocks share one picture, IK and IMK above, IDK and all
three together below. Rows are beliefs, columns the truth. Wrong beliefs are violet; the darker a
cell, the more samples are in it. Cells hold counts while these can be read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.patches import Polygon, Rectangle
from scipy.ndimage import distance_transform_edt

from iknow.cards import COLORS
from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Assertion, Reason
from iknow.core.rule import Drawing, Limits, promise_of
from iknow.errors import InputError
from iknow.evaluation.curves import EvidenceScatter, Regions
from iknow.evaluation.metrics import Evaluation
from iknow.evaluation.plots.style import (
    CENTERED,
    CLASS_COLORS,
    CLASS_MARKERS,
    INK,
    PENCIL,
    THIN_HALO,
    legend_above,
    letter_size,
    spans_magnitudes,
    tint,
    use_logarithm,
)

GREEN, AMBER, GRAY = (COLORS[a] for a in (Assertion.IK, Assertion.IMK, Assertion.IDK))
LOOKS: dict[Assertion, dict[str, Any]] = {
    Assertion.IK: {"marker": "o", "s": 7, "linewidths": 0, "alpha": 0.6, "color": GREEN},
    Assertion.IMK: {
        "marker": "^", "s": 14, "linewidths": 0.8, "facecolors": "none", "edgecolors": AMBER,
    },
    Assertion.IDK: {"marker": "x", "s": 11, "linewidths": 0.9, "color": GRAY},
}  # fmt: skip
AREA_LOOKS = {  # name, color and strength of the shade; the corner of the name
    Reason.KNOWN: ("IK", GREEN, 0.1, "left", "top"),
    Reason.OVERLAP: ("IMK", AMBER, 0.16, "left", "bottom"),
    Reason.EXTRAPOLATION: ("IDK: extrapolation", GRAY, 0.06, "right", "top"),
    Reason.CONTRADICTION: ("IDK: contradiction", GRAY, 0.2, "right", "bottom"),
}
CORNERS = {"left": 0.015, "right": 0.985, "bottom": 0.02, "top": 0.98}


def draw_evidence(axes: Axes, scatter: EvidenceScatter) -> None:
    """Draw the points (d_g, d_¬g), marked by assertion, with the lines where the rule decides.

    An infinite distance lies on the upper edge; on a logarithmic axis, 0 lies on the lower one.

    Args:
        axes: Where to draw.
        scatter: The result of `evidence_scatter`.

    Examples:
        >>> draw_evidence(column_figure().axes[0], evidence_scatter(a, "input"))
    """
    drawing: Drawing | None = promise_of(scatter.rule, "drawing")()
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
        radius, across = drawing.marks[0], drawing.across
        axes.annotate(
            f"ε = {radius:.3g}", (1, radius) if across else (radius, 0),
            xycoords=axes.get_yaxis_transform() if across else axes.get_xaxis_transform(),
            xytext=(-2 if across else 3, 3), textcoords="offset points",
            ha="right" if across else "left", color=INK,
            size=letter_size(axes) - 0.5, path_effects=THIN_HALO, zorder=5,
        )  # fmt: skip
    needed, contradicting = scatter.rule.quorum
    axes.set(xlabel=f"$d_g$: distance to {_several(needed)}the believed class")
    axes.set(ylabel=rf"$d_{{\neg g}}$: distance to {_several(contradicting)}any other")
    legend_above(axes, columns=3, markerscale=1.4)


def _several(quorum: int) -> str:
    return "" if quorum == 1 else f"{quorum} of "


def _draw_areas(axes: Axes, drawing: Drawing) -> None:
    """Shade and name the areas; their edges are where the rule decides."""
    for reason, corners in drawing.areas(axes.get_xlim(), axes.get_ylim()).items():
        name, color, strength, horizontal, vertical = AREA_LOOKS[reason]
        shade: dict[str, Any] = {"facecolor": tint(color, strength), "edgecolor": INK}
        axes.add_patch(Polygon(np.array(corners), **shade, linewidth=0.8, zorder=0.5))
        x, y = CORNERS[horizontal], CORNERS[vertical]
        axes.text(
            x, y, name, transform=axes.transAxes, ha=horizontal, va=vertical, color=color,
            weight="bold", size=letter_size(axes), path_effects=THIN_HALO, zorder=5,
        )  # fmt: skip


def _find_limits(scatter: EvidenceScatter, drawing: Drawing | None) -> tuple[Limits, Limits, bool]:
    """The limits of both axes, and whether they are logarithmic."""
    line = list(drawing.marks) if drawing is not None and drawing.marks[0] else []
    sides = [np.append(side[np.isfinite(side)], line) for side in (scatter.own, scatter.other)]
    # Also logarithmic if the lines would be at the very edge.
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


UNKNOWN_SHADES = (tint(COLORS[Assertion.IDK], 0.06), tint(COLORS[Assertion.IMK], 0.4))
KNOWN_STRENGTHS = (0.5, 0.8)  # of the green of IK, in turns; a line separates classes as well


def draw_regions(axes: Axes, regions: Regions, points: Any = None, labels: Any = None) -> None:
    """Draw the plane, shaded by assertion, with the boundaries of the belief as lines.

    Args:
        axes: Where to draw.
        regions: The result of `map_regions`.
        points: Training samples of shape (n, 2) to show.
        labels: Their classes, of shape (n,).

    Examples:
        >>> flat = EpistemicClassifier(LogisticRegression()).fit(X[:, :2], y)
        >>> draw_regions(column_figure().axes[0], map_regions(flat.assess, (4, 8), (2, 5), 50))
    """
    codes = regions.assertion + np.where(regions.assertion == Assertion.IK, regions.belief, 0)
    greens = [tint(COLORS[Assertion.IK], strength) for strength in KNOWN_STRENGTHS]
    known = [greens[code % len(greens)] for code in range(len(regions.classes))]
    shades = [*UNKNOWN_SHADES, *known]
    axes.imshow(
        codes, cmap=ListedColormap(shades), vmin=-0.5, vmax=len(shades) - 0.5, origin="lower",
        extent=_extent(regions), interpolation="nearest",
    )  # fmt: skip
    for code in range(len(regions.classes) - 1):
        border = (regions.belief <= code).astype(float)
        if 0 < border.mean() < 1:
            axes.contour(regions.x, regions.y, border, levels=[0.5], colors=INK, linewidths=0.7)
    if points is not None:
        _show_points(axes, regions, points, labels)
    _name_areas(axes, regions, codes)
    axes.set(xlabel="$x_1$", ylabel="$x_2$", xlim=regions.x[[0, -1]], ylim=regions.y[[0, -1]])


def most_inside(area: Bools, x: Floats, y: Floats) -> tuple[float, float]:
    """The place in an area, of shape (h, w), that is farthest from its border."""
    depth = distance_transform_edt(np.pad(area, 1))[1:-1, 1:-1]
    row, column = np.unravel_index(np.argmax(depth), area.shape)
    return float(x[column]), float(y[row])


def _extent(regions: Regions) -> tuple[float, float, float, float]:
    """The outer edges of the cells around the points of the grid."""
    x, y = regions.x, regions.y
    across, up = (float(places[1] - places[0]) / 2 for places in (x, y))
    return float(x[0]) - across, float(x[-1]) + across, float(y[0]) - up, float(y[-1]) + up


def _name_areas(axes: Axes, regions: Regions, codes: Any) -> None:
    """Name each assertion, and each class that is known, where there is most room."""
    names = {int(a): (a.name, a) for a in (Assertion.IDK, Assertion.IMK)}
    for code, label in enumerate(regions.classes.tolist()):
        names[Assertion.IK + code] = (f"IK: {label}", Assertion.IK)
    for code, (name, assertion) in names.items():
        area = codes == code
        if area.any():
            # Within the most frequent belief, so that no border of a belief crosses the name.
            area &= regions.belief == np.bincount(regions.belief[area]).argmax()
            axes.text(
                *most_inside(area, regions.x, regions.y), name, color=COLORS[assertion],
                size=letter_size(axes), weight="bold", path_effects=THIN_HALO, **CENTERED, zorder=5,
            )  # fmt: skip


def _show_points(axes: Axes, regions: Regions, points: Any, labels: Any) -> None:
    places, names = np.asarray(points), np.asarray(labels)
    if places.ndim != 2 or places.shape[1] != 2 or names.shape != (len(places),):
        raise InputError(
            "points must have shape (n, 2), with a label for each; got shapes "
            f"{places.shape} and {names.shape}"
        )
    for code, label in enumerate(regions.classes.tolist()):
        x, y = places[names == label].T
        n = len(CLASS_COLORS)
        # Past the last color, each gets the next marker: n² combinations.
        marker = CLASS_MARKERS[(code + code // n) % len(CLASS_MARKERS)]
        look: dict[str, Any] = {"marker": marker, "color": CLASS_COLORS[code % n]}
        axes.scatter(x, y, s=9, linewidths=0.4, edgecolors="white", label=label, **look)
    legend_above(axes, columns=min(len(regions.classes), 6), markerscale=1.4)


MOST_COUNTED = 10  # classes: with more, counts in the cells would be too small to read
FAINTEST = 0.3  # the strength of a cell with a single sample, which must be seen
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
WRONG = CLASS_COLORS[1]
FRAME = "#999999"
EVERYTHING = "all"


def draw_confusion(axes: Axes, report: Evaluation) -> None:
    """Draw the augmented confusion matrix of a report, for 2 to about 50 classes.

    Args:
        axes: Where to draw.
        report: The result of `evaluate`.

    Examples:
        >>> draw_confusion(column_figure().axes[0], evaluate(a, y_true))
    """
    everything = report.matrix.sum(axis=0)
    height, width = everything.shape
    blocks = [
        (Assertion.IK, 0, 0), (Assertion.IMK, 0, 1), (Assertion.IDK, 1, 0), (None, 1, 1),
    ]  # fmt: skip
    gap = 0.17 * height + 0.1  # room for a line of words above a block, in cells
    for assertion, down, across in blocks:
        counts = everything if assertion is None else report.matrix[assertion]
        color = INK if assertion is None else COLORS[assertion]
        corner = across * (width + 0.4 * gap), down * (height + gap)
        _draw_block(axes, counts, color, corner, int(everything.max()))
        name = EVERYTHING if assertion is None else assertion.name
        _name_block(axes, name, counts, int(everything.sum()), corner, color)
    _name_classes(axes, report, gap)
    axes.set(
        xlim=(-0.5, 2 * width + 0.4 * gap - 0.5), ylim=(2 * height + gap - 0.5, -0.9 * gap - 0.5),
        aspect="auto", xlabel="true class", ylabel="believed class",
    )  # fmt: skip
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _draw_block(
    axes: Axes, counts: Ints, color: str, corner: tuple[float, float], most: int
) -> None:
    """One matrix whose first cell has its middle at a corner."""
    x, y = corner
    height, width = counts.shape
    shades = _shade(counts, most, color)
    axes.imshow(
        shades, extent=(x - 0.5, x + width - 0.5, y + height - 0.5, y - 0.5),
        interpolation="nearest",
    )  # fmt: skip
    frame: dict[str, Any] = {"fill": False, "edgecolor": FRAME, "linewidth": 0.6}
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), width, height, **frame))
    if width > height:  # what the classifier has never heard of
        axes.plot([x + height - 0.5] * 2, [y - 0.5, y + height - 0.5], color=FRAME, linewidth=0.6)
    if max(height, width) > MOST_COUNTED:
        return
    size = min(letter_size(axes), 9.0 - 0.4 * max(height, width))
    for (row, column), count in np.ndenumerate(counts):
        if count:
            ink = "white" if shades[row, column] @ LUMINANCE < 0.5 else INK
            axes.text(x + column, y + row, str(count), color=ink, size=size, **CENTERED)


def _shade(counts: Ints, most: int, color: str) -> Floats:
    """Colors of shape (height, width, 3), by order of magnitude: a single mistake matters."""
    height, width = counts.shape
    shares = np.log1p(counts) / np.log1p(max(most, 1))
    strengths = np.where(counts > 0, FAINTEST + (1 - FAINTEST) * shares, 0.0)
    right = np.eye(height, width, dtype=bool)[..., None]
    full = np.where(right, to_rgb(color), to_rgb(WRONG))
    shaded: Floats = 1 - strengths[..., None] * (1 - full)
    return shaded


def _name_block(
    axes: Axes, name: str, counts: Ints, total: int, corner: tuple[float, float], color: str
) -> None:
    """Above a block: its name, its share of all samples, and how many of these are right."""
    x, y = corner
    n = int(counts.sum())
    share = f"{n:,}" if name == EVERYTHING else f"{n / total:.1%}"
    above: dict[str, Any] = {"xytext": (0, 3), "textcoords": "offset points", "va": "bottom"}
    size = letter_size(axes)
    axes.annotate(
        f"{name} {share}", (x - 0.5, y - 0.5), **above, color=color, weight="bold", size=size
    )
    if n:
        right, end = f"{np.trace(counts) / n:.1%} right", x + counts.shape[1] - 0.5
        axes.annotate(right, (end, y - 0.5), **above, ha="right", color=INK, size=size - 1)


def _name_classes(axes: Axes, report: Evaluation, gap: float) -> None:
    """Labels below the lower blocks and left of the left ones, as many as fit."""
    height, width = report.matrix.shape[1:]
    longest = max(len(str(label)) for label in report.true_classes.tolist())
    rows, columns = np.arange(0, height, _stride(height)), np.arange(0, width, _stride(width))
    names, true_names = report.classes.tolist(), report.true_classes.tolist()
    axes.set_xticks(
        [*columns, *(columns + width + 0.4 * gap)], [str(true_names[i]) for i in columns] * 2,
        rotation=90 if longest * len(columns) > 24 else 0,
    )  # fmt: skip
    axes.set_yticks([*rows, *(rows + height + gap)], [str(names[i]) for i in rows] * 2)


def _stride(n: int) -> int:
    return next(step for step in (1, 2, 5, 10, 20, 50, n) if n / step <= MOST_COUNTED)
