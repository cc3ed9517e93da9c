"""Drawing curves: against the radius, accuracy against coverage, and what is certified."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from iknow.core.assertion import Assertion
from iknow.core.colors import COLORS
from iknow.core.drawing import Look
from iknow.evaluation.curves import RadiusCurve
from iknow.evaluation.plots.matplotlib.axes import (
    THIN_HALO,
    legend_above,
    letter_size,
    spans_magnitudes,
    use_logarithm,
)
from iknow.evaluation.plots.matplotlib.style import CLASS_COLORS, INK, PENCIL, tint
from iknow.evaluation.robust_accuracy import RobustCurve
from iknow.evaluation.tradeoff import SOFTMAX, Tradeoff
from iknow.rules import RULES

FRACTION_LOOKS: dict[Assertion, dict[str, Any]] = {
    Assertion.IK: {"color": COLORS[Assertion.IK], "linewidth": 2.0, "linestyle": "-"},
    Assertion.IMK: {"color": COLORS[Assertion.IMK], "linewidth": 1.6, "linestyle": (0, (5, 1.5))},
    Assertion.IDK: {"color": COLORS[Assertion.IDK], "linewidth": 1.8, "linestyle": (0, (1, 1))},
}
ACCURACY_LOOK: dict[str, Any] = {
    "color": INK, "linewidth": 0.8, "markersize": 3.2, "markeredgewidth": 0.8, "markevery": 0.13,
}  # fmt: skip
SOFTMAX_LOOK: dict[str, Any] = {
    "color": INK, "linewidth": 1.4, "linestyle": (0, (1, 1)), "marker": "",
}  # fmt: skip
ENOUGH_COVERAGE = 0.1  # accuracies of fewer samples are too shaky to stretch the axis for


def method_look(method: str, place: int = 0) -> dict[str, Any]:
    """How to draw the line of a rule or softmax. place: among the rules without a look."""
    if method == SOFTMAX:
        return SOFTMAX_LOOK
    look = RULES[method].look or Look(2 + place, "vP*X<>"[place % 6], dashes=(3 + place, 1, 1, 1))
    of_class = CLASS_COLORS[look.color % len(CLASS_COLORS)]
    color = COLORS[look.color] if isinstance(look.color, Assertion) else of_class
    line = {"linestyle": (0, look.dashes)} if look.dashes else {}
    return {"color": color, "linewidth": look.width, **line, "marker": look.marker}


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


def draw_tradeoff(axes: Axes, tradeoff: Tradeoff) -> None:
    """Draw accuracy over coverage for each rule and softmax; markers show the given settings.

    Args:
        axes: Where to draw.
        tradeoff: The result of `tradeoff`.

    Examples:
        >>> draw_tradeoff(column_figure().axes[0], tradeoff(a, y_true))
    """
    axes.axhline(
        tradeoff.overall_accuracy, color=PENCIL, linewidth=0.6, label="believing all", zorder=1
    )
    seen = [tradeoff.overall_accuracy]
    softmax, *rules = tradeoff.lines
    for place, line in enumerate([*rules, softmax]):
        method, look = line.method, method_look(line.method, place)
        on_line = {name: value for name, value in look.items() if name != "marker"}
        axes.plot(line.coverage, line.accuracy, **on_line)
        seen += line.accuracy[line.coverage >= ENOUGH_COVERAGE].tolist()
        # For the legend: the line with its marker, without a place of its own.
        mark: dict[str, Any] = {"markersize": 5, "markeredgecolor": "white", "markeredgewidth": 0.6}
        axes.plot([], [], label=method, **look, **mark)
        if line.chosen is not None and not np.isnan(line.chosen[1]):
            axes.plot(*line.chosen, color=look["color"], marker=look["marker"], **mark, zorder=4)
            seen.append(line.chosen[1])
    low, high = min(seen), max(seen)
    room = 0.06 * ((high - low) or 0.1)
    axes.set(xlim=(0, 1.01), ylim=(low - room, high + room))
    axes.set(xlabel="coverage", ylabel="accuracy on what is covered")
    legend_above(axes, columns=3, handlelength=1.8, columnspacing=0.7)


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
