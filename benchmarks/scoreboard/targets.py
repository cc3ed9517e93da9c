"""Targets: what the scoreboard should show, judged by what it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.scoreboard.measuring import ACCURACIES
from benchmarks.scoreboard.problems import PROBLEMS, Problem
from benchmarks.scoreboard.summary import CONFIDENCE, OURS, Summary

FORMER = {
    "MNIST MLP": 0.0932, "MNIST CNN": 0.0555, "Grid MLP": 0.0644, "Grid forest": 0.0461,
    "Grid boosting": 0.0464, "Digits MLP": 0.0692, "Control charts MLP": 0.0902,
}  # fmt: skip
"""AUGRC all of the former default: nearness and clarity without budgets, quorum (1, 3)."""
FORMER_WRONG = {
    0.022: ("MNIST MLP", "MNIST CNN", "Grid MLP", "Traffic signs CNN"),
    0.041: ("Digits MLP", "Control charts MLP", "Italy power MLP"),
}
"""Its mean share asserted and wrong at coverage 0.75, over all cells of these problems."""
NEVER = ("foreign, Martians", "foreign, numbers x 10", "a column missing")
"""Cells about which nothing is to be asserted."""


@dataclass(frozen=True)
class Verdict:
    """A target, what was measured, and whether it is met."""

    target: str
    measured: str
    met: bool


def judge(summary: Summary) -> list[Verdict]:
    """Every target that the results can tell about."""
    return [
        *_clean(summary),
        _lowest(summary),
        _close(summary),
        *_certified(summary),
        *_kept(summary),
        *_silent(summary),
    ]


def _each(target: str, failed: Callable[[Problem], str | None], problems: list[Problem]) -> Verdict:
    """A target for each problem; `failed` tells what is wrong with one, or None."""
    lost = [f"{each.name} ({told})" for each in problems if (told := failed(each))]
    written = f"{len(problems) - len(lost)} of {len(problems)}"
    return Verdict(target, written + (f"; not on {'; '.join(lost)}" if lost else ""), not lost)


def _clean(summary: Summary) -> list[Verdict]:
    found = []
    for place, coverage in enumerate(summary.coverages):

        def failed(problem: Problem, place: int = place) -> str | None:
            own, theirs = (summary.clean(problem, each)[place] for each in (OURS, CONFIDENCE))
            written = f"{100 * own:.2f}%, confidence {100 * theirs:.2f}%"
            return None if own <= 1.1 * theirs + 0.002 else written

        target = (
            f"asserted and wrong on clean data at {coverage:.2f}: at most 1.1 times the model's "
            "own confidence, and 0.2 points"
        )
        found.append(_each(target, failed, summary.problems()))
    return found


def _lowest(summary: Summary) -> Verdict:
    """Methods that do not apply to all problems are met on those they apply to."""
    names = {name: None for problem in summary.problems() for name in summary.peers(problem)}
    better, own = [], 0.0
    for name in names:
        problems = [each for each in summary.problems() if name in summary.peers(each)]
        own, theirs = (
            float(np.mean([summary.augrc_all(each, method) for each in problems]))
            for method in (OURS, name)
        )
        if theirs < own:
            better.append(f"{name} ({theirs:.4f}, iknow {own:.4f})")
    target = "AUGRC all: the lowest mean of all methods that ask one model"
    written = f"not lower than {'; '.join(better)}" if better else f"lower than all {len(names)}"
    return Verdict(target, written, not better)


def best_peer(summary: Summary, problem: Problem) -> tuple[float, str]:
    """The least AUGRC all of the other methods that ask one model, and whose it is."""
    return min((summary.augrc_all(problem, name), name) for name in summary.peers(problem))


def _close(summary: Summary) -> Verdict:
    def failed(problem: Problem) -> str | None:
        own, (best, name) = summary.augrc_all(problem, OURS), best_peer(summary, problem)
        return None if own <= 1.03 * best else f"{own / best - 1:+.1%}, {name}"

    target = "AUGRC all: within 3% of the best method that asks one model, on every problem"
    return _each(target, failed, summary.problems())


def _certified(summary: Summary) -> list[Verdict]:
    found = []
    for accuracy in map(str, ACCURACIES):
        pairs = {
            problem.name: [
                summary.certified(problem.name, "plain", accuracy, method)
                for method in (OURS, CONFIDENCE)
            ]
            for problem in summary.problems()
        }
        shares = {
            name: (float(own[0]), float(theirs[0]))
            for name, (own, theirs) in pairs.items()
            if own is not None and theirs is not None
        }

        def failed(problem: Problem, shares: dict[str, tuple[float, float]] = shares) -> str | None:
            own, theirs = shares[problem.name]
            return None if own >= 0.98 * theirs else f"{own:.3f}, confidence {theirs:.3f}"

        target = f"coverage certified at {float(accuracy):.0%}: at least 0.98 of confidence's"
        if shares:
            found.append(_each(target, failed, [PROBLEMS[name] for name in shares]))
    return found


def _kept(summary: Summary) -> list[Verdict]:
    """What the former default was good at."""

    def failed(problem: Problem) -> str | None:
        own, former = summary.augrc_all(problem, OURS), FORMER[problem.name]
        return None if own <= 1.03 * former else f"{own:.4f}, before {former:.4f}"

    problems = [problem for problem in summary.problems() if problem.name in FORMER]
    target = "AUGRC all: within 3% of the former default, where that was good"
    found = [_each(target, failed, problems)] if problems else []
    for former, names in FORMER_WRONG.items():
        problems = [PROBLEMS[name] for name in names if name in summary.runs]
        if problems:
            share = float(summary.mean_wrong(problems, OURS)[1])
            target = f"asserted and wrong at 0.75 at most {former + 0.002:.1%} ({', '.join(names)})"
            found.append(Verdict(target, f"{share:.2%}", share <= former + 0.002))
    return found


def _silent(summary: Summary) -> list[Verdict]:
    cells = [cell for cell in summary.cells(summary.problems()) if cell[1] in NEVER]
    shares = {cell: float(summary.asserted(cell, OURS).max()) for cell in cells}
    if not shares:
        return []
    target = f"at most 1% is asserted at any coverage of {', '.join(NEVER)}"
    worst = max(shares, key=lambda cell: shares[cell])
    written = f"at most {shares[worst]:.2%} ({': '.join(worst)})"
    return [Verdict(target, written, shares[worst] <= 0.01)]
