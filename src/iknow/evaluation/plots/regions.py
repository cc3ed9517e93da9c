"""Drawing what is known all over a plane."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from scipy.ndimage import distance_transform_edt

from iknow.core.arrays import Bools, Floats
from iknow.core.assertion import Assertion
from iknow.core.colors import COLORS
from iknow.errors import InputError
from iknow.evaluation.plots.style import (
    CENTERED,
    CLASS_COLORS,
    CLASS_MARKERS,
    INK,
    THIN_HALO,
    legend_above,
    letter_size,
    tint,
)
from iknow.evaluation.regions import Regions

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
