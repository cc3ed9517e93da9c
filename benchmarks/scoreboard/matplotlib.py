"""The figure of the scoreboard: what is asserted and wrong, by shift."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from benchmarks.scoreboard.summary import Summary
from iknow.cards import COLORS
from iknow.core.assertion import Assertion
from iknow.evaluation.plots import PENCIL
from reproduction.figures.style import styled, titled, to_png

__all__ = ["draw_shifts", "to_png"]

LOOKS = {
    "iknow": (COLORS[Assertion.IK], 2.8),
    "ensemble of three": ("#0063a6", 1.6),
    "Trust Score (hidden)": ("#4aa8e0", 1.6),
    "k-NN distance": ("#a83279", 1.6),
    "softmax": (PENCIL, 1.6),
}
MARKERS = ("o", "s", "D", "^", "v")


@styled
def draw_shifts(summary: Summary, at: int = 1) -> Figure:
    """The share asserted and wrong at one coverage in every cell of the networks."""
    networks = [p for p in summary.problems() if p.is_network]
    problems = [p for p in networks if not p.held_out] or networks
    cells = [summary.cells([problem]) for problem in problems]
    n_rows = -(-len(problems) // 2)
    shape = (11, 0.8 + 0.2 * n_rows * max(map(len, cells)))
    figure = titled(shape, f"Asserted and wrong at coverage {summary.coverages[at]:.2f}")
    columns = figure.subplots(n_rows, 2, squeeze=False)
    for ax, problem, rows in zip(columns.ravel(), problems, cells, strict=False):
        places = np.arange(len(rows))[::-1]
        for (method, (color, width)), marker in zip(LOOKS.items(), MARKERS, strict=True):
            shares = [100 * summary.wrong(cell, method)[at] for cell in rows]
            size = 44 if method == "iknow" else 22
            ax.scatter(
                shares, places, color=color, s=size, marker=marker, label=method, zorder=width
            )
        ax.set_yticks(places, [cell[1] for cell in rows], fontsize=9)
        ax.set_xscale("symlog", linthresh=1)
        ax.set_xlim(-0.05, 110)
        ax.set_xticks([0, 1, 10, 100], ["0", "1", "10", "100%"])
        ax.grid(axis="y", color="#eeeeee", linewidth=0.8)
        ax.set_axisbelow(True)
        ax.set_title(problem.name)
    for ax in columns.ravel()[len(problems) :]:
        ax.set_axis_off()
    lines, labels = columns.ravel()[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=len(LOOKS), frameon=False)
    return figure
