"""Plots: records of `iknow.evaluation` and assessments, drawn with matplotlib on given axes.

    figure = column_figure()
    draw_evidence(figure.axes[0], assessment, "input")
    figure.savefig("evidence.pdf")

Each function draws on one axes and touches neither pyplot nor the user's settings.
Letters take their size from the axes. You can read all plots in gray and if color-blind: what
differs in color differs in line, marker or lightness as well.

**Evidence**: all that a layer says about a sample is d_g, to the nearest training sample of the
believed class, and d_¬g, to the nearest of any other; with a quorum (`iknow.core.quorum`), to the
samples that complete it. Each sample is a point (d_g, d_¬g). A rule says which areas of this plane
it decides by these distances alone (`iknow.core.rule`); here they are shaded and named.

**The augmented confusion matrix**: four blocks share one picture, IK and IMK above, IDK and all
three together below. Rows are beliefs, columns the truth. Wrong beliefs are violet; the darker a
cell, the more samples are in it. Cells hold counts while these can be read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from scipy.ndimage import distance_transform_edt

from iknow.cards import COLORS
from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Assertion, Reason
from iknow.core.evidence import distances_for_and_against
from iknow.core.rule import Drawing, Limits, promise_of
from iknow.errors import InputError, MissingExtraError
from iknow.evaluation.curves import RadiusCurve, check_layer, robust_fraction
from iknow.evaluation.metrics import Evaluation
from iknow.explain.assessment import Assessment

try:
    from matplotlib import style
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap, to_rgb
    from matplotlib.figure import Figure
    from matplotlib.patches import Polygon, Rectangle
    from matplotlib.patheffects import withStroke
    from matplotlib.ticker import NullFormatter
except ImportError as error:
    raise MissingExtraError("drawing plots", "plots") from error

__all__ = [
    "column_figure", "draw_confusion", "draw_evidence", "draw_radius_curve", "draw_regions",
    "draw_robust",
]  # fmt: skip

Look = dict[str, Any]

GREEN, AMBER, GRAY = (COLORS[a] for a in (Assertion.IK, Assertion.IMK, Assertion.IDK))
CLASS_COLORS = ("#0063a6", "#a83279", "#4aa8e0", "#3d3d3d")
CLASS_MARKERS = ("o", "^", "s", "D")
INK, PENCIL, FRAME = "#222222", "#5c5c5c", "#999999"
CENTERED: Look = {"ha": "center", "va": "center"}
HALO = [withStroke(linewidth=2, foreground="white")]  # keeps words readable on top of a plot
STYLE: Look = {
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FRAME,
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
TICKS = {"major.size": 2.5, "major.width": 0.6, "minor.size": 1.5, "minor.width": 0.4}
COLUMN_STYLE: Look = STYLE | {
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
    """Make a figure as wide as a column of a paper, with `rows` and `columns` of empty axes.

    `height`: inches per row.

    Examples:
        >>> len(column_figure(2, 2).axes)
        4
    """
    with style.context(["default", COLUMN_STYLE]):
        figure = Figure(figsize=(COLUMN_WIDTH, rows * height))
        figure.subplots(rows, columns)
    return figure


def tint(color: str, strength: float) -> tuple[float, float, float]:
    """A color on white paper."""
    red, green, blue = (1 - strength * (1 - part) for part in to_rgb(color))
    return red, green, blue


def _letter_size(axes: Axes) -> float:
    """The size of the axes' own labels, in points: all other letters follow it."""
    return float(axes.xaxis.label.get_fontsize())


def _legend_above(axes: Axes, columns: int, **look: Any) -> None:
    """A legend above the axes, where it hides nothing."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(
            loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=columns, frameon=False,
            fontsize=_letter_size(axes) - 0.5, handlelength=2.0, columnspacing=0.9, labelcolor=INK,
            handletextpad=0.4, borderpad=0.2, labelspacing=0.25, borderaxespad=0.3, **look,
        )  # fmt: skip


def _spans_magnitudes(values: Floats) -> bool:
    """Whether values need a logarithmic axis: half lie in the first twentieth of the range."""
    positive = values[(values > 0) & np.isfinite(values)]
    return len(positive) > 0 and float(np.median(positive)) < float(positive.max()) / 20


def _use_logarithm(axes: Axes, *which: Literal["x", "y"]) -> None:
    """Make axes logarithmic, with plain numbers at their ticks."""
    for name in which:
        axes.set(**{f"{name}scale": "log"})
        axis = axes.xaxis if name == "x" else axes.yaxis
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(NullFormatter())


FRACTION_LOOKS: dict[Assertion, Look] = {
    Assertion.IK: {"color": GREEN, "linewidth": 2.0, "linestyle": "-"},
    Assertion.IMK: {"color": AMBER, "linewidth": 1.6, "linestyle": (0, (5, 1.5))},
    Assertion.IDK: {"color": GRAY, "linewidth": 1.8, "linestyle": (0, (1, 1))},
}
ACCURACY_LOOK: Look = {
    "color": INK, "linewidth": 0.8, "markersize": 3.2, "markeredgewidth": 0.8, "markevery": 0.13,
}  # fmt: skip


def draw_radius_curve(axes: Axes, curve: RadiusCurve, chosen: float | None = None) -> None:
    """Draw the fractions of IK, IMK and IDK, and the accuracies in and outside IK, over the radius.

    `axes`: where to draw. `curve`: the result of `radius_curve`. `chosen`: the radius to mark, by
    default that of the largest F_IK.

    Examples:
        >>> draw_radius_curve(column_figure().axes[0], radius_curve(a, y_true, "input"))
    """
    chosen = float(curve.radii[curve.best]) if chosen is None else chosen
    end = 1.08 * max(float(curve.radii[-1]), chosen) or 1.0
    radii = np.append(curve.radii, end)

    def steps(values: Any, label: str, **look: Any) -> None:
        heights = np.append(values, values[-1])
        axes.plot(radii, heights, drawstyle="steps-post", label=label, **look)

    for assertion, look in FRACTION_LOOKS.items():
        steps(curve.fraction(assertion), f"$F_{{{assertion.name}}}$", **look)
    steps(curve.a_ik, "$A_{IK}$", **ACCURACY_LOOK, marker="o", markerfacecolor="white")
    steps(curve.a_not_ik, r"$A_{\neg IK}$", **ACCURACY_LOOK, marker="x")
    axes.set(xlabel="radius ε", ylabel="fraction, accuracy", xlim=(0, end), ylim=(-0.02, 1.12))
    if _spans_magnitudes(curve.radii):
        # Nothing matters below a thousandth of the usual radius.
        least = max(float(curve.radii[1]), float(np.median(curve.radii)) / 1000)
        _use_logarithm(axes, "x")
        axes.set(xlim=(min(least, chosen or least) / 1.5, end))
    axes.axvline(chosen, color=PENCIL, linewidth=0.7, zorder=1)
    # Its name stands on the side where there is more room.
    place = axes.transAxes.inverted().transform(axes.transData.transform((chosen, 0)))[0]
    left = place > 0.6
    axes.annotate(
        f"ε = {chosen:.3g}", (chosen, 1.0), xycoords=axes.get_xaxis_transform(),
        xytext=(-3 if left else 3, -1), textcoords="offset points",
        va="top", ha="right" if left else "left", size=_letter_size(axes) - 0.5, color=INK,
        path_effects=HALO,
    )  # fmt: skip
    _legend_above(axes, columns=5)


def draw_robust(axes: Axes, assessment: Assessment, y_true: Any = None) -> None:
    """Draw the fraction of samples that are IK, correct, and robust at each radius.

    `axes`: where to draw. `assessment`: of any samples. `y_true`: their true labels, if known.

    Examples:
        >>> draw_robust(column_figure().axes[0], a, y_true)
    """
    certified = assessment.robust_radius[assessment.assertion == Assertion.IK]
    radii = np.unique(np.append(certified[np.isfinite(certified)], 0.0))
    radii = np.append(radii, 1.08 * radii[-1] or 1.0)
    known, name = robust_fraction(assessment, radii), "IK" if y_true is None else "IK and right"
    shown = known if y_true is None else robust_fraction(assessment, radii, y_true)
    # A radius belongs to the step that ends there.
    look: Look = {"drawstyle": "steps-pre"}
    axes.plot(radii, shown, **look, color=GREEN, linewidth=2.0, label=name)
    axes.fill_between(radii, shown, step="pre", color=tint(GREEN, 0.2))
    if y_true is not None:
        dashes: Look = {"color": INK, "linewidth": 0.9, "linestyle": (0, (4, 1.5))}
        axes.plot(radii, known, **look, **dashes, label="IK")
    axes.set(xlabel="robust radius: ℓ2 change of the input", ylabel="fraction of samples")
    axes.set(xlim=(0, radii[-1]), ylim=(0, 1.02))
    _legend_above(axes, columns=2)


LOOKS: dict[Assertion, Look] = {
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


def draw_evidence(axes: Axes, assessment: Assessment, layer: str | None = None) -> None:
    """Draw the points (d_g, d_¬g) of one layer, marked by assertion, and where its rule decides.

    With several layers a sample may be less known than its place suggests, because every layer has
    a say. An infinite distance, of a class without training samples or an invalid sample, lies on
    the upper edge; on a logarithmic axis, 0 lies on the lower one.
    `axes`: where to draw. `assessment`: of any samples. `layer`: where distances are measured; of a
    single layer the name is optional.

    Examples:
        >>> draw_evidence(column_figure().axes[0], a, "input")
    """
    layer = check_layer(assessment, layer)
    rule = assessment.neighborhoods[layer]
    found = distances_for_and_against(assessment.weighed[layer], assessment.belief_codes)
    own, other = (np.where(assessment.invalid, np.inf, each) for each in found)
    drawing: Drawing | None = promise_of(rule, "drawing")()
    line = list(drawing.marks) if drawing is not None and drawing.marks[0] else []
    sides = [np.append(side[np.isfinite(side)], line) for side in (own, other)]
    # Also logarithmic if the lines would be at the very edge.
    largest = max(float(side.max(initial=0.0)) for side in sides)
    logarithmic = any(map(_spans_magnitudes, sides)) or 0 < min(line, default=0.0) < largest / 12
    if logarithmic:
        _use_logarithm(axes, "x", "y")
    x_limits = _limits(sides[0], line, 0.55, logarithmic)
    y_limits = _limits(sides[1], line, 0.7, logarithmic)
    axes.set(xlim=x_limits, ylim=y_limits)
    own, other = np.clip(own, *x_limits), np.clip(other, *y_limits)
    for assertion, look in LOOKS.items():
        these = assessment.assertion == assertion
        name = f"{assertion.name} ({these.sum():,})"
        axes.scatter(own[these], other[these], label=name, clip_on=False, zorder=2, **look)
    if drawing is None:  # above: nearer to the believed class; below: to another one
        ends = max(x_limits[0], y_limits[0]), min(x_limits[1], y_limits[1])
        axes.plot(ends, ends, color=PENCIL, linewidth=0.7, linestyle=(0, (4, 2)))
    else:
        _draw_areas(axes, drawing)
    needed, contradicting = ("" if m == 1 else f"{m} of " for m in rule.quorum)
    axes.set(xlabel=f"$d_g$: distance to {needed}the believed class")
    axes.set(ylabel=rf"$d_{{\neg g}}$: distance to {contradicting}any other")
    _legend_above(axes, columns=3, markerscale=1.4)


def _draw_areas(axes: Axes, drawing: Drawing) -> None:
    """Shade and name the areas, whose edges are where the rule decides, and name the radius."""
    words: Look = {"path_effects": HALO, "zorder": 5}
    for reason, corners in drawing.areas(axes.get_xlim(), axes.get_ylim()).items():
        name, color, strength, horizontal, vertical = AREA_LOOKS[reason]
        shade: Look = {"facecolor": tint(color, strength), "edgecolor": INK, "linewidth": 0.8}
        axes.add_patch(Polygon(np.array(corners), **shade, zorder=0.5))
        axes.text(
            CORNERS[horizontal], CORNERS[vertical], name, transform=axes.transAxes, ha=horizontal,
            va=vertical, color=color, weight="bold", size=_letter_size(axes), **words,
        )  # fmt: skip
    radius, across = drawing.marks[0], drawing.across
    axes.annotate(
        f"ε = {radius:.3g}", (1, radius) if across else (radius, 0),
        xycoords=axes.get_yaxis_transform() if across else axes.get_xaxis_transform(),
        xytext=(-2 if across else 3, 3), textcoords="offset points",
        ha="right" if across else "left", color=INK, size=_letter_size(axes) - 0.5, **words,
    )  # fmt: skip


def _limits(values: Floats, line: list[float], most: float, logarithmic: bool) -> Limits:
    """Around all values, with the lines a part of 0.15 to `most` of the way: names need room."""
    if not logarithmic:  # from 0
        return 0.0, max(1.12 * float(values.max(initial=0.0)), max(line, default=0.0) / most) or 1.0
    low, high = np.log(values[values > 0].min()) - 0.5, np.log(values.max()) + 1.0
    if line:
        low = min(low, (np.log(line[0]) - 0.15 * high) / 0.85)
        high = max(high, low + (np.log(line[-1]) - low) / most)
    return float(np.exp(low)), float(np.exp(high))


UNKNOWN_SHADES = (tint(GRAY, 0.06), tint(AMBER, 0.4))
KNOWN_STRENGTHS = (0.5, 0.8)  # of the green of IK, in turns; a line separates classes as well


def draw_regions(
    axes: Axes,
    assess: Callable[[Floats], Assessment],
    x_limits: Limits,
    y_limits: Limits,
    points: Any = None,
    labels: Any = None,
    resolution: int = 300,
) -> None:
    """Draw the plane, shaded by assertion, with the boundaries of the belief as lines.

    `axes`: where to draw. `assess`: what assesses points of shape (n, 2), such as a fitted
    classifier's method; `resolution` of them in each direction. `x_limits`, `y_limits`: smallest
    and largest horizontal and vertical coordinate. `points`: training samples of shape (n, 2) to
    show. `labels`: their classes, of shape (n,).

    Examples:
        >>> flat = EpistemicClassifier(LogisticRegression()).fit(X[:, :2], y)
        >>> draw_regions(column_figure().axes[0], flat.assess, (4, 8), (2, 5), resolution=50)
    """
    if resolution < 2:
        raise InputError(f"resolution must be at least 2 places each way; got {resolution}")
    for limits in (x_limits, y_limits):
        if not limits[0] < limits[1] or not np.isfinite(limits).all():
            raise InputError(f"limits must be two finite numbers, the lower first; got {limits}")
    x, y = (np.linspace(*limits, resolution) for limits in (x_limits, y_limits))
    plane = assess(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2))
    shape, classes = (resolution, resolution), plane.classes.tolist()
    belief, assertion = plane.belief_codes.reshape(shape), plane.assertion.reshape(shape)
    n_classes, codes = len(classes), assertion + np.where(assertion == Assertion.IK, belief, 0)
    greens = [tint(GREEN, strength) for strength in KNOWN_STRENGTHS]
    shades = [*UNKNOWN_SHADES, *(greens[code % len(greens)] for code in range(n_classes))]
    across, up = (float(places[1] - places[0]) / 2 for places in (x, y))  # half a cell
    axes.imshow(
        codes, cmap=ListedColormap(shades), vmin=-0.5, vmax=len(shades) - 0.5, origin="lower",
        extent=(float(x[0]) - across, float(x[-1]) + across, float(y[0]) - up, float(y[-1]) + up),
        interpolation="nearest",
    )  # fmt: skip
    for code in range(n_classes - 1):
        border = (belief <= code).astype(float)
        if 0 < border.mean() < 1:
            axes.contour(x, y, border, levels=[0.5], colors=INK, linewidths=0.7)
    if points is not None:
        _show_points(axes, classes, points, labels)
    names = [("IDK", GRAY), ("IMK", AMBER), *((f"IK: {label}", GREEN) for label in classes)]
    for code, (name, color) in enumerate(names):
        area = codes == code
        if area.any():
            # Within the most frequent belief, so that no border of a belief crosses the name.
            area &= belief == np.bincount(belief[area]).argmax()
            axes.text(
                *most_inside(area, x, y), name, color=color, size=_letter_size(axes), weight="bold",
                path_effects=HALO, **CENTERED, zorder=5,
            )  # fmt: skip
    axes.set(xlabel="$x_1$", ylabel="$x_2$", xlim=x[[0, -1]], ylim=y[[0, -1]])


def most_inside(area: Bools, x: Floats, y: Floats) -> tuple[float, float]:
    """The place in an area, of shape (h, w), that is farthest from its border."""
    depth = distance_transform_edt(np.pad(area, 1))[1:-1, 1:-1]
    row, column = np.unravel_index(np.argmax(depth), area.shape)
    return float(x[column]), float(y[row])


def _show_points(axes: Axes, classes: list[Any], points: Any, labels: Any) -> None:
    places, names = np.asarray(points), np.asarray(labels)
    if places.ndim != 2 or places.shape[1] != 2 or names.shape != (len(places),):
        raise InputError(
            "points must have shape (n, 2), with a label for each; got shapes "
            f"{places.shape} and {names.shape}"
        )
    n = len(CLASS_COLORS)
    for code, label in enumerate(classes):
        # Past the last color, each gets the next marker: n² combinations.
        marker = CLASS_MARKERS[(code + code // n) % len(CLASS_MARKERS)]
        look: Look = {"marker": marker, "color": CLASS_COLORS[code % n], "edgecolors": "white"}
        x, y = places[names == label].T
        axes.scatter(x, y, s=9, linewidths=0.4, label=label, **look)
    _legend_above(axes, columns=min(len(classes), 6), markerscale=1.4)


MOST_COUNTED = 10  # classes: with more, counts in the cells would be too small to read
FAINTEST = 0.3  # the strength of a cell with a single sample, which must be seen
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
WRONG = CLASS_COLORS[1]


def draw_confusion(axes: Axes, report: Evaluation) -> None:
    """Draw the augmented confusion matrix of a `report`, as `evaluate` returns it, on `axes`.

    It can be read for 2 to about 50 classes.

    Examples:
        >>> draw_confusion(column_figure().axes[0], evaluate(a, y_true))
    """
    everything = report.matrix.sum(axis=0)
    height, width = everything.shape
    gap = 0.17 * height + 0.1  # room for a line of words above a block, in cells
    right, below = width + 0.4 * gap, height + gap
    total, most = int(everything.sum()), int(everything.max())
    for assertion, x, y in (
        (Assertion.IK, 0.0, 0.0), (Assertion.IMK, right, 0.0), (Assertion.IDK, 0.0, below),
    ):  # fmt: skip
        counts, color = report.matrix[assertion], COLORS[assertion]
        name = f"{assertion.name} {counts.sum() / total:.1%}"
        _draw_block(axes, name, counts, color, (x, y), most)
    _draw_block(axes, f"all {total:,}", everything, INK, (right, below), most)
    for axis, labels, second in (
        (axes.yaxis, report.classes, below), (axes.xaxis, report.true_classes, right),
    ):  # fmt: skip
        n = len(labels)  # as many names as fit, left of the left blocks and below the lower ones
        step = next(each for each in (1, 2, 5, 10, 20, 50, n) if n / each <= MOST_COUNTED)
        places, names = np.arange(0, n, step), [str(label) for label in labels.tolist()]
        axis.set_ticks([*places, *(places + second)], names[::step] * 2)
    if max(map(len, names)) * len(places) > 24:  # of the true classes
        axes.tick_params("x", rotation=90)
    axes.set(
        xlim=(-0.5, 2 * width + 0.4 * gap - 0.5), ylim=(2 * height + gap - 0.5, -0.9 * gap - 0.5),
        aspect="auto", xlabel="true class", ylabel="believed class",
    )  # fmt: skip
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _draw_block(
    axes: Axes, name: str, counts: Ints, color: str, corner: tuple[float, float], most: int
) -> None:
    """One matrix whose first cell has its middle at a corner; above, its name and accuracy."""
    x, y = corner
    height, width = counts.shape
    # By order of magnitude: a single mistake matters.
    strengths = FAINTEST + (1 - FAINTEST) * (np.log1p(counts) / np.log1p(max(most, 1)))
    right = np.eye(height, width, dtype=bool)[..., None]
    full = np.where(right, to_rgb(color), to_rgb(WRONG))
    shades = 1 - np.where(counts > 0, strengths, 0.0)[..., None] * (1 - full)  # (height, width, 3)
    axes.imshow(
        shades, extent=(x - 0.5, x + width - 0.5, y + height - 0.5, y - 0.5),
        interpolation="nearest",
    )  # fmt: skip
    frame: Look = {"fill": False, "edgecolor": FRAME, "linewidth": 0.6}
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), width, height, **frame))
    if width > height:  # what the classifier has never heard of
        axes.plot([x + height - 0.5] * 2, [y - 0.5, y + height - 0.5], color=FRAME, linewidth=0.6)
    letters = _letter_size(axes)
    if max(height, width) <= MOST_COUNTED:
        size = min(letters, 9.0 - 0.4 * max(height, width))
        for (row, column), count in np.ndenumerate(counts):
            if count:
                ink = "white" if shades[row, column] @ LUMINANCE < 0.5 else INK
                axes.text(x + column, y + row, str(count), color=ink, size=size, **CENTERED)
    above: Look = {"xytext": (0, 3), "textcoords": "offset points", "va": "bottom"}
    axes.annotate(name, (x - 0.5, y - 0.5), **above, color=color, weight="bold", size=letters)
    if n := int(counts.sum()):
        said, end = f"{np.trace(counts) / n:.1%} right", (x + width - 0.5, y - 0.5)
        axes.annotate(said, end, **above, ha="right", color=INK, size=letters - 1)
