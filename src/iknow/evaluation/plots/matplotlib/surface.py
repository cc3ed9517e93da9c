"""Drawing the coverage over two radii."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patheffects import withStroke

from iknow.core.assertion import Assertion
from iknow.core.colors import COLORS
from iknow.evaluation.plots.matplotlib.axes import (
    legend_above,
    letter_size,
    spans_magnitudes,
    use_logarithm,
)
from iknow.evaluation.plots.matplotlib.style import INK
from iknow.evaluation.surface import CoverageSurface

# From light to dark throughout, so that gray shows the same.
SHADES = LinearSegmentedColormap.from_list("coverage", ["#ffffff", COLORS[Assertion.IK], "#00130d"])
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2)  # between contours: the finest that gives at most five
DARKEST = 1.35  # the end of the shades, beyond 1 to keep what is drawn on top visible
STAR: dict[str, Any] = {
    "marker": "*", "markersize": 10, "color": "white", "markeredgecolor": INK,
    "markeredgewidth": 0.8, "linestyle": "",
}  # fmt: skip
RING: dict[str, Any] = {
    "marker": "o", "markersize": 9, "color": "none", "markeredgecolor": "white",
    "markeredgewidth": 1.2, "linestyle": "",
    "path_effects": [withStroke(linewidth=2.6, foreground=INK)],  # seen on light ground as well
}  # fmt: skip


def draw_surface(axes: Axes, surface: CoverageSurface) -> None:
    """Draw F_IK as shades and contours, a star at the optimum, and a ring at the current radii.

    Args:
        axes: Where to draw.
        surface: The result of `coverage_surface`.

    Examples:
        >>> draw_surface(column_figure().axes[0], coverage_surface(a, resolution=20))
    """
    _set_scales(axes, surface)  # first, as the gaps for the contours' numbers depend on them
    axes.pcolormesh(
        surface.x, surface.y, surface.f_ik, shading="nearest", cmap=SHADES, vmin=0, vmax=DARKEST,
        rasterized=True,
    )  # fmt: skip
    _draw_contours(axes, surface)
    if surface.best is not None:
        label = f"largest $F_{{IK}}$ = {surface.best_f_ik:.3g}"
        axes.plot(*surface.best, **STAR, label=label, zorder=4)
    if surface.chosen is not None:
        axes.plot(*surface.chosen, **RING, label="in use", zorder=3)
    legend_above(axes, columns=2)


def _set_scales(axes: Axes, surface: CoverageSurface) -> None:
    first, second = surface.layers
    axes.set(xlabel=f"radius ε of {first}", ylabel=f"radius ε of {second}")
    use_logarithm(axes, *(name for name in ("x", "y") if spans_magnitudes(getattr(surface, name))))
    axes.set(xlim=surface.x[[0, -1]], ylim=surface.y[[0, -1]])


def _draw_contours(axes: Axes, surface: CoverageSurface) -> None:
    """Lines of equal coverage, with their numbers."""
    fractions = surface.f_ik
    step = next(step for step in STEPS if surface.best_f_ik <= 5 * step)
    levels = [n * step for n in range(1, 6) if fractions.min() < n * step < fractions.max()]
    if levels:
        lines = axes.contour(
            surface.x, surface.y, fractions, levels=levels, colors=INK, linewidths=0.5
        )
        size = letter_size(axes) - 1.5
        for number in axes.clabel(lines, fontsize=size, fmt=lambda level: f"{level:.2g}"):
            number.set_path_effects([withStroke(linewidth=1.5, foreground="white")])
