"""Tables of the scoreboard as Markdown, each a function of the summary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.scoreboard.cells import WRONG_LABELS
from benchmarks.scoreboard.measuring import ACCURACIES
from benchmarks.scoreboard.problems import PROBLEMS
from benchmarks.scoreboard.running import ADAPTIVE
from benchmarks.scoreboard.summary import AS_CLOSE, GROUPS, Summary
from benchmarks.scoreboard.targets import judge

CERTIFIERS = ("iknow", "softmax", "softmax, MAPIE")


def overall(summary: Summary) -> str:
    """Mean wrong IK by method, group by group."""
    parts = []
    for group in GROUPS:
        problems = summary.problems(group)
        if not problems:
            continue
        rows = []
        for method in summary.methods(problems):
            shares, reached = (
                summary.mean_wrong(problems, method),
                summary.reached(problems, method),
            )
            written = [
                percent(share) if part == 1 else f"reached in {part:.0%}"
                for share, part in zip(shares, reached, strict=True)
            ]
            right = float(summary.mean_right(problems, method)[1])
            augrc = f"{summary.mean_augrc(problems, method):.3f}"
            rows.append([_bold(method), *written, augrc, percent(right)])
        names = ", ".join(problem.name for problem in problems)
        n_cells = len(summary.cells(problems))
        coverages = (f"{coverage:.2f}" for coverage in summary.coverages)
        heads = ["method", *coverages, "AUGRC", "asserted and right, 0.75"]
        parts.append(
            f"**{group.capitalize()}** ({names}; {n_cells} cells)\n\n{_table(heads, rows)}"
        )
    return "\n\n".join(parts)


def by_problem(summary: Summary, at: int = 1) -> str:
    """Mean wrong IK at one coverage, problem by problem."""
    methods = summary.methods(summary.problems("networks, design"))
    rows = []
    for problem in summary.problems():
        own = summary.methods([problem])
        shares = [
            float(summary.mean_wrong([problem], name)[at]) if name in own else np.inf
            for name in methods
        ]
        best = np.nanmin(shares)
        rows.append([
            problem.name,
            *(
                "–" if share == np.inf
                else "not reached" if np.isnan(share)
                else f"**{percent(share)}**" if share == best
                else percent(share)
                for share in shares
            ),
        ])  # fmt: skip
    return _table(["problem", *methods], rows)


def losses(summary: Summary, at: int = 1) -> str:
    """The cells in which another method is better by more than 0.2 points, the worst first."""
    rows = []
    for cell in summary.cells(summary.problems()):
        own, (name, best) = float(summary.wrong(cell, "iknow")[at]), summary.best_other(cell, at)
        if own > best + AS_CLOSE:
            held = "held out" if PROBLEMS[cell[0]].held_out else "design"
            softmax = percent(float(summary.wrong(cell, "softmax")[at]))
            figures = [percent(own), percent(best), name, softmax, percent(summary.error(cell))]
            rows.append((own - best, [cell[0], held, cell[1], *figures]))
    rows.sort(key=lambda row: -row[0])
    heads = ["problem", "", "cell", "iknow", "best", "whose", "softmax", "model's error"]
    return _table(heads, [row for _, row in rows], words=(0, 1, 2, 5))


def certified(summary: Summary) -> str:
    """Coverage on test data with the accuracy certified on validation data."""
    rows = []
    for problem in summary.problems():
        for accuracy in ACCURACIES:
            found = [
                summary.certified(problem.name, "plain", str(accuracy), name) for name in CERTIFIERS
            ]
            cells = ["–" if each is None else _promise(*each) for each in found]
            rows.append([problem.name, f"{accuracy:.0%}", *cells])
    return _table(["problem", "certified", *CERTIFIERS], rows)


def wrong_labels(summary: Summary) -> str:
    """What a tenth of wrong training labels leaves."""
    rows = []
    for problem in summary.problems():
        runs = summary.runs[problem.name].values()
        promised = summary.certified(problem.name, "noisy", str(ACCURACIES[0]), "iknow")
        assert promised is not None
        best = [
            float(np.mean([run["noisy"]["best"][name] for run in runs]))
            for name in ("iknow", "softmax")
        ]
        cell = (problem.name, WRONG_LABELS)
        rows.append([
            problem.name, percent(summary.error(cell)),
            _promise(*promised), *(f"{each:.3f}" for each in best),
            percent(float(summary.wrong(cell, "iknow")[1])),
            percent(float(summary.wrong(cell, "softmax")[1])),
        ])  # fmt: skip
    heads = [
        "problem", "model's error", "iknow, certified (accuracy)", "iknow, largest",
        "softmax, largest", "iknow, wrong at 0.75", "softmax, wrong at 0.75",
    ]  # fmt: skip
    return _table(heads, rows)


def adaptive(summary: Summary) -> str:
    """Right answers turned into wrong IK, mean of seeds."""
    runs = [run["runs"] for run in summary.runs.get(ADAPTIVE, {}).values()]
    if not runs:
        return "Not run."
    rows = []
    for name in runs[0]:
        method, coverage = name.rsplit(" ", 1) if name not in ("of", "epsilon") else ("", "")
        if method:
            words = {"strong": "all conditions", "as worded": "distance"}
            attack = next((words[each] for each in words if method.endswith(each)), "confidence")
            quorum = method.partition("(")[2].partition(")")[0]
            share = percent(float(np.mean([run[name] for run in runs])))
            rows.append([method.split()[0], quorum, attack, coverage, share])
    note = f"{len(runs)} seeds of {runs[0]['of']} samples, ε = {runs[0]['epsilon']}."
    heads = ["method", "quorum", "attack on", "coverage", "broken, %"]
    return f"{_table(heads, rows, words=(0, 1, 2))}\n\n{note}"


def accuracies(summary: Summary) -> str:
    """The models themselves."""
    rows = []
    for problem in summary.problems():
        runs = list(summary.runs[problem.name].values())
        errors = [run["plain"]["model_error"] for run in runs]
        out = sorted({layer for run in runs for layer in run["plain"]["left_out"]})
        held = "held out" if problem.held_out else "design"
        cells = str(len(summary.cells([problem])))
        rows.append(
            [
                problem.name,
                held,
                str(len(runs)),
                cells,
                f"{1 - np.mean(errors):.3f}",
                ", ".join(out),
            ]
        )
    heads = ["problem", "", "seeds", "cells", "test accuracy", "layers left out"]
    return _table(heads, rows, words=(0, 1, 5))


def targets(summary: Summary) -> str:
    """What was promised, and what came out."""
    rows = [[v.target, v.measured, "yes" if v.met else "**no**"] for v in judge(summary)]
    return _table(["target", "measured", "met"], rows, words=(0, 1, 2))


def percent(share: float) -> str:
    """A share as a percentage of two digits."""
    return "not reached" if np.isnan(share) else f"{100 * share:.2f}"


def _promise(coverage: float, accuracy: float) -> str:
    return f"{coverage:.3f} ({accuracy:.4f})" if coverage > 0 else "none"


def _bold(method: str) -> str:
    return f"**{method}**" if method == "iknow" else method


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int] = (0,)) -> str:
    marks = ["---" if place in words else "---:" for place in range(len(heads))]
    lines = [heads, marks, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
