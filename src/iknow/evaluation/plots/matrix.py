"""Drawing the augmented confusion matrix: what is believed and true, for each assertion.

Four blocks share one picture: IK and IMK above, IDK and all three together below. Rows are beliefs,
columns the truth. Wrong beliefs are violet; the darker a cell, the more samples are in it. Cells
hold counts while these can be read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from iknow.cards import COLORS
from iknow.core.arrays import Floats, Ints
from iknow.core.assertion import Assertion
from iknow.evaluation.metrics import Report
from iknow.evaluation.plots.style import CENTERED, CLASS_COLORS, INK, letter_size

MOST_COUNTED = 10  # classes: with more, counts in the cells would be too small to read
FAINTEST = 0.3  # the strength of a cell with a single sample, which must be seen
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
WRONG = CLASS_COLORS[1]
GRAY = "#999999"
EVERYTHING = "all"


def draw_confusion(axes: Axes, report: Report) -> None:
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
    frame: dict[str, Any] = {"fill": False, "edgecolor": GRAY, "linewidth": 0.6}
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), width, height, **frame))
    if width > height:  # what the classifier has never heard of
        axes.plot([x + height - 0.5] * 2, [y - 0.5, y + height - 0.5], color=GRAY, linewidth=0.6)
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


def _name_classes(axes: Axes, report: Report, gap: float) -> None:
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
