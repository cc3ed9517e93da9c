"""Drawing the paper's figures: records in, a `Figure` out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from iknow.cards import COLORS
from iknow.core.arrays import Floats, Ints
from iknow.core.assertion import Assertion
from iknow.errors import InputError
from iknow.evaluation.curves import RadiusCurve
from iknow.evaluation.metrics import Evaluation
from iknow.evaluation.plots import CENTERED, CLASS_COLORS, CLASS_MARKERS, INK, most_inside, tint
from reproduction.figures.experiment import Experiment
from reproduction.figures.style import styled, titled, to_png
from reproduction.figures.toy import Query, Regions, Supports

__all__ = [
    "draw_confusion",
    "draw_noise",
    "draw_radius",
    "draw_regions",
    "draw_signs",
    "draw_supports",
    "to_png",
]

RADII = (1e-4, 10.0)  # from and to which curves are drawn, as in the authors' notebook
DASHED: dict[str, Any] = {"color": INK, "linewidth": 1.3, "linestyle": (0, (4, 1.5))}
BOX = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "boxstyle": "round,pad=0.3"}
HALO = [withStroke(linewidth=4, foreground="white")]  # keeps words readable on top of points


@styled
def draw_regions(regions: Regions) -> Figure:
    """The plane, colored by assertion."""
    figure = titled((9, 7.2), "What a network knows about the plane")
    axes = figure.add_subplot()
    axes.set_title(f"balls of radius ε = {regions.radius:g} in the input layer")
    areas = regions.assertion + np.where(regions.assertion == Assertion.IK, regions.belief, 0)
    names = ("IDK", "IMK", "IK0", "IK1")
    colors = [COLORS[Assertion(min(code, Assertion.IK))] for code in range(len(names))]
    tints = [tint(color, s) for color, s in zip(colors, (0.12, 0.5, 0.32, 0.58), strict=True)]
    extent = (regions.x[0], regions.x[-1], regions.y[0], regions.y[-1])
    look: dict[str, Any] = {"cmap": ListedColormap(tints), "vmin": 0, "vmax": len(tints) - 1}
    axes.imshow(areas, **look, origin="lower", extent=extent, interpolation="nearest")
    scatter(axes, regions.points, regions.labels, size=14, alpha=0.8)
    for code, name in enumerate(names):
        if (areas == code).any():
            place = most_inside(areas == code, regions.x, regions.y)
            axes.text(
                *place, name, color=colors[code], size=16, weight="bold", **CENTERED, bbox=BOX
            )
    for query, height in zip(regions.examples, (0.94, 0.05), strict=True):
        axes.annotate(
            f"x = ({query.point[0]:g}, {query.point[1]:g}): {_verdict(query)}",
            xy=(query.point[0], query.point[1]),
            xytext=(query.point[0], height),
            textcoords=axes.get_xaxis_transform(),
            arrowprops={"arrowstyle": "-", "color": INK, "shrinkB": 7},
            bbox=BOX,
            **CENTERED,
        )
        axes.plot(*query.point, "*", color="white", markersize=18, markeredgecolor=INK)
    axes.set(xlabel="$x_1$", ylabel="$x_2$")
    _name_classes(axes)
    return figure


@styled
def draw_supports(supports: Supports) -> Figure:
    """Balls around the queries, and the training points that they hold."""
    places = np.stack([query.point for query in supports.queries])
    reach = supports.radius * np.array([2.0, 1.9])  # a ball with the words above or below it
    low = np.minimum(supports.points.min(axis=0) - 0.5, places.min(axis=0) - reach)
    high = np.maximum(supports.points.max(axis=0) + 0.5, places.max(axis=0) + reach)
    width, height = high - low
    figure = titled(
        (9, 1.2 + 8.2 * height / width), "The support of an input: the classes within its ε-ball"
    )
    axes = figure.add_subplot()
    axes.set_title(f"× the input, radius ε = {supports.radius:g}")
    scatter(axes, supports.points, supports.labels, size=42, alpha=0.35)
    _name_classes(axes)
    for query in supports.queries:
        x, y = query.point
        color = COLORS[query.assertion]
        look: dict[str, Any] = {"facecolor": tint(color, 0.22), "edgecolor": color, "linewidth": 2}
        axes.add_patch(Circle((x, y), supports.radius, **look, zorder=0))
        inside = query.neighbors
        scatter(axes, supports.points[inside], supports.labels[inside], size=75, alpha=1.0)
        axes.plot(x, y, "x", color=INK, markersize=11, markeredgewidth=2.5, zorder=4)
        side = _free_side(query, supports)
        edge, words = y + side * supports.radius, _verdict(query).replace(" →", "\n→")
        write(axes, x, edge, words, color, offset=(0, 24 * side), path_effects=HALO, zorder=5)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    axes.set(xlabel="$x_1$", ylabel="$x_2$")
    return figure


@styled
def draw_radius(experiment: Experiment) -> Figure:
    """Fractions of the assertions, and accuracy on IK, against the radius."""
    figure = titled((9, 5.6), "A growing radius: from IDK to IK to IMK")
    axes = figure.add_subplot()
    curve = experiment.curve
    axes.set_title(f"{curve.n_samples:,} test samples, noise σ = {experiment.noise:.1f}")
    for assertion in Assertion:
        _steps(axes, curve, curve.fraction(assertion), color=COLORS[assertion], linewidth=2.5)
    _steps(axes, curve, curve.a_ik, **DASHED)
    falling = curve.radii[np.argmax(curve.f_idk <= 0.75)]
    rising = curve.radii[np.argmax(curve.f_imk >= 0.75)]
    best, f_ik, a_ik = (values[curve.best] for values in (curve.radii, curve.f_ik, curve.a_ik))
    write(axes, falling, 0.75, "$F_{IDK}$", COLORS[Assertion.IDK], ha="right", offset=(-8, 0))
    write(axes, rising, 0.75, "$F_{IMK}$", COLORS[Assertion.IMK], ha="left", offset=(8, 0))
    write(axes, best, f_ik, "$F_{IK}$", COLORS[Assertion.IK], offset=(0, -18))
    write(axes, best, a_ik, "$A_{IK}$, accuracy on IK", INK, offset=(0, 13))
    axes.set(ylabel="fraction", ylim=(-0.02, 1.1))
    return figure


@styled
def draw_confusion(experiment: Experiment) -> Figure:
    """The augmented confusion matrix at each radius: above each other for IK, IMK and IDK."""
    title = f"Augmented confusion matrices, noise σ = {experiment.noise:.1f}"
    figure = titled((10, 8.6), title)
    grid = figure.subplots(len(Assertion), len(experiment.reports), squeeze=False)
    most = max(int(report.matrix.max()) for report in experiment.reports.values())
    for column, (radius, report) in zip(grid.T, experiment.reports.items(), strict=True):
        for axes, assertion in zip(column, reversed(Assertion), strict=True):
            _matrix(axes, report, assertion, most)
        write_at(column[0], (0.5, 1.24), f"ε = {radius:g}", INK)
        column[-1].set_xlabel("true class")
    for axes, assertion in zip(grid[:, 0], reversed(Assertion), strict=True):
        axes.set_ylabel("predicted class")
        write_at(axes, (-0.45, 0.5), assertion.name, COLORS[assertion], rotation="vertical")
    return figure


@styled
def draw_noise(experiments: Sequence[Experiment]) -> Figure:
    """The data at each level of noise, and below it how much of it can be known."""
    figure = titled((10, 7.4), "The more the classes overlap, the less can be known")
    grid = figure.subplots(2, len(experiments), sharey="row", squeeze=False)
    everything = np.concatenate([experiment.points for experiment in experiments])
    low, high = everything.min() - 0.5, everything.max() + 0.5
    for (above, below), experiment in zip(grid.T, experiments, strict=True):
        above.set_title(f"noise σ = {experiment.noise:.1f}", color=INK, weight="bold")
        _cloud(above, experiment)
        above.set(xlim=(low, high), ylim=(low, high), aspect="equal", xlabel="$x_1$")
        _knowledge(below, experiment.curve)
    grid[0, 0].set_ylabel("$x_2$")
    grid[1, 0].set_ylabel("fraction")
    return figure


@styled
def draw_signs(images: NDArray[Any], names: Sequence[str]) -> Figure:
    """A row of images for each group.

    images: of shape (n_groups, m, height, width, 3), bytes or numbers from 0 to 1. names: of the
    groups, from top to bottom.
    """
    if images.ndim != 5 or images.shape[-1] != 3 or len(images) != len(names) or not images.size:
        raise InputError(
            f"images must have shape ({len(names)}, m, height, width, 3), a row of m for each of "
            f"the {len(names)} names; got {images.shape}"
        )
    n_groups, m = images.shape[:2]
    side = min(1.0, 7.6 / m)
    figure = titled((1.4 + side * m, 0.5 + side * n_groups), "Traffic signs, by group")
    figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.03, wspace=0, hspace=0)
    grid = figure.subplots(n_groups, m, squeeze=False)
    for row, pictures, name in zip(grid, images, names, strict=True):
        for axes, picture in zip(row, pictures, strict=True):
            axes.imshow(picture)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        row[0].set_ylabel(name, rotation="horizontal", ha="right", va="center")
    return figure


def _matrix(axes: Axes, report: Evaluation, assertion: Assertion, most: int) -> None:
    """One confusion matrix, with the counts in its cells."""
    counts = report.matrix[assertion]
    shades = LinearSegmentedColormap.from_list("", ["white", COLORS[assertion]])
    axes.imshow(counts, cmap=shades, vmin=0, vmax=most)
    for (predicted, true), count in np.ndenumerate(counts):
        color = "white" if count > 0.75 * most else INK if count else "#a0a0a0"
        axes.text(true, predicted, f"{count:,}", color=color, size=11, **CENTERED)
    axes.set_xticks(range(counts.shape[1]), report.true_classes.tolist())
    axes.set_yticks(range(counts.shape[0]), report.classes.tolist())
    axes.tick_params(length=0)
    axes.set_title(f"{counts.sum():,}  ({report.fraction(assertion):.2%})", size=10, loc="center")
    axes.spines[:].set_visible(True)


def _cloud(axes: Axes, experiment: Experiment) -> None:
    """All points, in their original order so that no class hides another, and their classes."""
    points, labels = experiment.points, experiment.labels
    colors = np.array(CLASS_COLORS)[labels].tolist()
    axes.scatter(points[:, 0], points[:, 1], s=4, c=colors, alpha=0.45, linewidths=0)
    for code in np.unique(labels):
        x, y = points[labels == code].mean(axis=0)
        axes.text(x, y, str(code), color=CLASS_COLORS[code], weight="bold", **CENTERED, bbox=BOX)
    axes.locator_params(nbins=5, integer=True)


def _knowledge(axes: Axes, curve: RadiusCurve) -> None:
    """F_IK and A_IK against the radius, with the largest F_IK marked."""
    green = COLORS[Assertion.IK]
    radius, largest = curve.radii[curve.best], curve.f_ik[curve.best]
    _steps(axes, curve, curve.a_ik, **DASHED)
    _steps(axes, curve, curve.f_ik, color=green, linewidth=2.5)
    axes.plot(radius, largest, "o", color=green, markersize=8)
    axes.set_title(f"largest $F_{{IK}}$: {largest:.2f}", color=green, weight="bold")
    write(axes, RADII[0], 1.0, "$A_{IK}$", INK, ha="left", offset=(6, 12))
    axes.set(ylim=(-0.02, 1.12))


def _steps(axes: Axes, curve: RadiusCurve, values: Floats, **look: Any) -> None:
    """A curve that is constant from each radius to the next, on a logarithmic axis."""
    low, high = RADII
    radii = np.append(np.maximum(curve.radii, low), max(high, curve.radii[-1]))
    axes.plot(radii, np.append(values, values[-1]), drawstyle="steps-post", **look)
    axes.set(xscale="log", xlim=RADII, xlabel=f"radius ε in the {curve.layer}")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _name_classes(axes: Axes) -> None:
    """Which marker is which class, above the picture on the right."""
    legend = axes.legend(
        loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, handletextpad=0.1,
        borderpad=0, markerscale=1.6,
    )  # fmt: skip
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1)


def _free_side(query: Query, supports: Supports) -> int:
    """Above the ball, 1, or below it, -1: where words would cover fewer points."""
    across, up = ((supports.points - query.point) / supports.radius).T
    beside = np.abs(across) < 1.6
    above, below = (int((beside & (side > 1) & (side < 1.9)).sum()) for side in (up, -up))
    return 1 if above <= below else -1


def _verdict(query: Query) -> str:
    support = f"{{{', '.join(map(str, query.support))}}}" if query.support else "∅"
    return f"belief {query.belief}, support {support} → {query.assertion.name}"


def write(
    axes: Axes, x: float, y: float, text: str, color: str, offset: tuple[float, float], **look: Any
) -> None:
    """Text at an offset, in points, from a place in the data."""
    look = {**CENTERED, "size": 12, "weight": "bold", "color": color, **look}
    axes.annotate(text, (x, y), xytext=offset, textcoords="offset points", **look)


def write_at(axes: Axes, place: tuple[float, float], text: str, color: str, **look: Any) -> None:
    """A heading beside an axes, at a place in fractions of its size."""
    look = {**CENTERED, "size": 14, "weight": "bold", "color": color, **look}
    axes.text(*place, text, transform=axes.transAxes, **look)


def scatter(axes: Axes, points: Floats, labels: Ints, size: float, alpha: float) -> None:
    """Points of shape (n, 2), each class with its color and marker."""
    for code in np.unique(labels):
        x, y = points[labels == code].T
        look: dict[str, Any] = {"marker": CLASS_MARKERS[code], "color": CLASS_COLORS[code]}
        look |= {"linewidths": 0.3, "edgecolors": "white"}
        axes.scatter(x, y, s=size, alpha=alpha, label=f"class {code}", **look)
