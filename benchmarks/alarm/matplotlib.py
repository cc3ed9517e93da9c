"""Drawing evidence over time: nothing happens without a change, and what happens with one."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.alarm.streams import BEFORE, NEW_CLASS, NOISE, RATE, ROTATION, STEP
from iknow.cards import COLORS
from iknow.core.arrays import Floats
from iknow.core.assertion import Assertion
from iknow.evaluation.plots import CLASS_COLORS, PENCIL
from reproduction.figures.style import styled, titled

LOOKS = {NOISE: CLASS_COLORS[0], NEW_CLASS: CLASS_COLORS[1], ROTATION: COLORS[Assertion.IMK]}
LOWEST, HIGHEST = -4.0, 2.0


@styled
def draw_evidence(title: str, quiet: list[Floats], moved: dict[str, list[Floats]]) -> Figure:
    """Two panels: streams without a change, and streams with one, by its name."""
    figure = titled((11, 4.6), title)
    left, right = figure.subplots(1, 2, sharey=True)
    for each in quiet:
        left.plot(STEP * np.arange(1, len(each) + 1), each, color=PENCIL, lw=0.8, alpha=0.5)
    left.set_title(f"{len(quiet)} streams without a change")
    for kind, traces in moved.items():
        for number, each in enumerate(traces):
            rows = np.flatnonzero(each > 0)
            until = (rows[0] + 1) if len(rows) else len(each)
            x = STEP * np.arange(1, until + 1)
            label = kind if number == 0 else None
            right.plot(x, each[:until], color=LOOKS[kind], lw=1.2, alpha=0.8, label=label)
            right.plot(x[-1:], each[:until][-1:], "o", color=LOOKS[kind], ms=4)
    right.axvline(BEFORE, color=PENCIL, lw=1, ls=(0, (2, 2)))
    right.annotate("change", (BEFORE, LOWEST), (4, 4), textcoords="offset points", color=PENCIL)
    right.set_title("streams with a change, until the first alarm")
    right.legend(frameon=False, loc="lower right")
    for axes in (left, right):
        _frame(axes)
    left.set_ylabel("evidence, as a part of what an alarm takes")
    left.annotate(
        f"alarm: without a change at most {RATE:.0%} of streams ever get here", (0, 0), (4, 5),
        textcoords="offset points", color=COLORS[Assertion.IDK],
    )  # fmt: skip
    return figure


def _frame(axes: Axes) -> None:
    axes.axhline(0, color=COLORS[Assertion.IDK], lw=1.5)
    axes.set_ylim(LOWEST, HIGHEST)
    axes.set_xlim(left=0)
    places = np.arange(LOWEST, HIGHEST + 1)
    axes.set_yticks(places, ["1" if place == 0 else f"$10^{{{place:.0f}}}$" for place in places])
    axes.set_xlabel("samples")
