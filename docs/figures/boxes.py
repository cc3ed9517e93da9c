"""Draws boxes.png: validation samples as boxes in the space of two radii, and their depth.

python docs/figures/boxes.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier

from iknow import Ball, EpistemicClassifier
from iknow.demo import make_digits
from iknow.selection.boxes import sample_boxes

BLUE, ORANGE = "#0072b2", "#d55e00"  # told apart by the colour-blind, and in grey


def main():
    digits = make_digits(left_out=4, seed=0)
    network = MLPClassifier((64, 32), max_iter=400, random_state=0).fit(*digits.train)
    classifier = EpistemicClassifier(FrozenEstimator(network), progress=False)
    classifier.fit(*digits.train).tune(*digits.validation)
    assessment = classifier.assess(digits.validation[0])
    lows, highs = sample_boxes(assessment.evidence, assessment.belief_codes, Ball)
    best = [rule.radius for rule in classifier.neighborhoods_.values()]

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2), constrained_layout=True)
    limits = np.quantile(highs, 0.9, axis=0)
    some = np.random.default_rng(1).choice(len(lows), size=14, replace=False)
    for low, high in zip(lows[some], highs[some], strict=True):
        if (low < high).all():
            size = np.minimum(high, 2 * limits) - low
            left.add_patch(Rectangle(low, *size, facecolor=BLUE, edgecolor=BLUE, alpha=0.12))
            left.add_patch(Rectangle(low, *size, fill=False, edgecolor=BLUE, linewidth=0.8))
    left.set_title("14 validation samples: each is IK inside its box", fontsize=10)

    grid = [np.linspace(0, limit, 160) for limit in limits]
    inside = [
        (lows[:, axis, None] <= grid[axis]) & (grid[axis] < highs[:, axis, None]) for axis in (0, 1)
    ]
    coverage = inside[1].T.astype(float) @ inside[0] / len(lows)
    levels = np.arange(0, 1.01, 0.1)
    surface = right.contourf(*grid, coverage, levels=levels, cmap="Blues")
    right.contour(*grid, coverage, levels=levels, colors="white", linewidths=0.5)
    figure.colorbar(surface, ax=right, label="coverage (fraction of IK)")
    right.set_title("all of them: coverage is the number of boxes", fontsize=10)

    layers = list(assessment.evidence)
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
        axes.set_xlabel(f"radius in {layers[0]}")
        axes.set_ylabel(f"radius in {layers[1]}")
    figure.savefig(Path(__file__).with_name("boxes.png"), dpi=130)


if __name__ == "__main__":
    main()
