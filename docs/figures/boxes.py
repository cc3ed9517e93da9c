"""Draws validation samples as boxes in the space of two radii, and their depth."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from iknow import Assertion, Assessment, Ball, EpistemicClassifier
from iknow.cards import COLORS
from iknow.selection.exact.boxes import sample_boxes

GREEN, ORANGE = COLORS[Assertion.IK], COLORS[Assertion.IMK]


def draw_boxes(classifier: EpistemicClassifier, assessment: Assessment) -> Figure:
    """Boxes of some samples, and the coverage of all. classifier: with a `Ball` in two layers."""
    lows, highs = sample_boxes(assessment.evidence, assessment.belief_codes, Ball)
    limits = np.quantile(highs, 0.9, axis=0)
    best = [rule.radius for rule in classifier.neighborhoods_.values()]
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    some = np.random.default_rng(1).choice(len(lows), size=14, replace=False)
    for low, high in zip(lows[some], highs[some], strict=True):
        if (low < high).all():
            size = np.minimum(high, 2 * limits) - low
            left.add_patch(Rectangle(low, *size, facecolor=GREEN, alpha=0.1))
            left.add_patch(Rectangle(low, *size, fill=False, edgecolor=GREEN, linewidth=0.8))
    left.set_title("14 validation samples: each is IK inside its box", fontsize=10)

    grid = [np.linspace(0, limit, 160) for limit in limits]
    inside = [
        (lows[:, axis, None] <= grid[axis]) & (grid[axis] < highs[:, axis, None]) for axis in (0, 1)
    ]
    coverage = inside[1].T.astype(float) @ inside[0] / len(lows)
    levels = np.arange(0, 1.01, 0.1)
    surface = right.contourf(*grid, coverage, levels=levels, cmap="Greens")
    right.contour(*grid, coverage, levels=levels, colors="white", linewidths=0.5)
    figure.colorbar(surface, ax=right, label="coverage (fraction of IK)")
    right.set_title("all of them: coverage is the number of boxes", fontsize=10)

    for axes in (left, right):
        axes.plot(*best, "*", color=ORANGE, markersize=14, markeredgecolor="white")
        axes.annotate(
            f"largest coverage: {classifier.selection_.coverage:.1%}",
            best,
            xytext=(0.5, 0.06),
            textcoords="axes fraction",
            ha="center",
            color=ORANGE,
            fontsize=10,
            arrowprops={"arrowstyle": "-", "color": ORANGE},
            bbox={"facecolor": "white", "edgecolor": ORANGE, "boxstyle": "round"},
        )
        axes.set(xlim=(0, limits[0]), ylim=(0, limits[1]))
        axes.set_xlabel(f"radius in {classifier.layers_[0]}")
        axes.set_ylabel(f"radius in {classifier.layers_[1]}")
    return figure
