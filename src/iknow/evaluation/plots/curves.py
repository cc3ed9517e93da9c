"""Drawing curves: against the radius, and what is certified."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from iknow.cards import COLORS
from iknow.core.assertion import Assertion
from iknow.evaluation.curves import RadiusCurve, RobustCurve
from iknow.evaluation.plots.style import (
    INK,
    PENCIL,
    THIN_HALO,
    legend_above,
    letter_size,
    spans_magnitudes,
    tint,
    use_logarithm,
)

FRACTION_LOOKS: dict[Assertion, dict[str, Any]] = {
    Assertion.IK: {"color": COLORS[Assertion.IK], "linewidth": 2.0, "linestyle": "-"},
    Assertion.IMK: {"color": COLORS[Assertion.IMK], "linewidth": 1.6, "linestyle": (0, (5, 1.5))},
    Assertion.IDK: {"color": COLORS[Assertion.IDK], "linewidth": 1.8, "linestyle": (0, (1, 1))},
}
ACCURACY_LOOK: dict[str, Any] = {
    "color": INK, "linewidth": 0.8, "markersize": 3.2, "markeredgewidth": 0.8, "markevery": 0.13,
}  # fmt: skip


def draw_radius_curve(axes: Axes, curve: RadiusCurve, chosen: float | None = None) -> None:
    """Draw the fractions of IK, IMK and IDK, and the accuracies in and outside IK, over the radius.

    Args:
        axes: Where to draw.
        curve: The result of `radius_curve`.
        chosen: The radius to mark. Default: that of the largest F_IK.

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
    if spans_magnitudes(curve.radii):
        # Nothing matters below a thousandth of the usual radius.
        least = max(float(curve.radii[1]), float(np.median(curve.radii)) / 1000)
        use_logarithm(axes, "x")
        axes.set(xlim=(min(least, chosen or least) / 1.5, end))
    _mark_radius(axes, chosen)
    legend_above(axes, columns=5)


def draw_robust(axes: Axes, curve: RobustCurve) -> None:
    """Draw the fraction of samples that are IK, correct, and robust at each radius.

    Args:
        axes: Where to draw.
        curve: The result of `robust_curve`.

    Examples:
        >>> draw_robust(column_figure().axes[0], robust_curve(a, y_true))
    """
    end = 1.08 * float(curve.radii[-1]) or 1.0
    radii = np.append(curve.radii, end)
    green, known, right = COLORS[Assertion.IK], curve.known_fraction, curve.right_fraction
    name, shown = ("IK", known) if right is None else ("IK and right", right)
    # A radius belongs to the step that ends there.
    look: dict[str, Any] = {"drawstyle": "steps-pre"}
    axes.plot(radii, shown, **look, color=green, linewidth=2.0, label=name)
    axes.fill_between(radii, shown, step="pre", color=tint(green, 0.2))
    if right is not None:
        dashes: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": (0, (4, 1.5))}
        axes.plot(radii, known, **look, **dashes, label="IK")
    axes.set(xlabel="robust radius: ℓ2 change of the input", ylabel="fraction of samples")
    axes.set(xlim=(0, end), ylim=(0, 1.02))
    legend_above(axes, columns=2)


def _mark_radius(axes: Axes, radius: float) -> None:
    """A vertical line with its radius, written on the side where there is more room."""
    axes.axvline(radius, color=PENCIL, linewidth=0.7, zorder=1)
    place = axes.transAxes.inverted().transform(axes.transData.transform((radius, 0)))[0]
    left = place > 0.6
    axes.annotate(
        f"ε = {radius:.3g}", (radius, 1.0), xycoords=axes.get_xaxis_transform(),
        xytext=(-3 if left else 3, -1), textcoords="offset points",
        va="top", ha="right" if left else "left", size=letter_size(axes) - 0.5, color=INK,
        path_effects=THIN_HALO,
    )  # fmt: skip
