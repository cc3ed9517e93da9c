"""Figures of the scoreboard: risk against coverage, and wrong IK by shift."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from benchmarks.scoreboard.summary import Summary
from iknow.cards import COLORS
from iknow.core.assertion import Assertion
from iknow.evaluation.plots import PENCIL
from reproduction.figures.style import styled, titled, to_png

__all__ = ["LOOKS", "draw_curves", "draw_shifts", "to_png"]

LOOKS = {
    "iknow": (COLORS[Assertion.IK], 2.8),
    "ensemble of three": ("#0063a6", 1.6),
    "Trust Score (hidden)": ("#4aa8e0", 1.6),
    "k-NN distance": ("#a83279", 1.6),
    "softmax": (PENCIL, 1.6),
}
MARKERS = ("o", "s", "D", "^", "v")


@styled
def draw_curves(summary: Summary) -> Figure:
    """What is asserted and wrong against coverage, for each network, mean of cells and seeds."""
    problems = [p for p in summary.problems() if p.is_network]
    n_columns = min(4, len(problems))
    n_rows = -(-len(problems) // n_columns)
    figure = titled((11, 0.6 + 2.7 * n_rows), "Asserted and wrong as more is asserted")
    axes = np.atleast_1d(figure.subplots(n_rows, n_columns, sharex=True)).ravel()
    for place, (problem, ax) in enumerate(zip(problems, axes, strict=False)):
        for method, (color, width) in LOOKS.items():
            risk = 100 * summary.curve(problem.name, method)
            ax.plot(np.linspace(0, 1, len(risk)), risk, color=color, linewidth=width, label=method)
        ax.set_title(problem.name + (" (held out)" if problem.held_out else ""))
        ax.set_xlim(0, 1)
        ax.set_ylim(0)
        if place % n_columns == 0:
            ax.set_ylabel("asserted and wrong, %")
        if place + n_columns >= len(problems):
            ax.set_xlabel("coverage, half clean, half shifted")
            ax.tick_params(labelbottom=True)
    for ax in axes[len(problems) :]:
        ax.set_axis_off()
    lines, labels = axes[0].get_legend_handles_labels()
    if len(axes) > len(problems):
        axes[-1].legend(lines, labels, loc="center", frameon=False)
    else:
        axes[0].legend(lines, labels, loc="upper left", frameon=False, fontsize=9)
    return figure


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
