"""Targets: what the scoreboard should show, judged by what it does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.scoreboard.running import ADAPTIVE
from benchmarks.scoreboard.summary import AS_CLOSE, Summary


@dataclass(frozen=True)
class Verdict:
    """A target, what was measured, and whether it is met."""

    target: str
    measured: str
    met: bool


def judge(summary: Summary) -> list[Verdict]:
    """Every target that the results can tell about."""
    verdicts = [
        *_means(summary),
        _reached(summary),
        *_below_peers(summary),
        *_close(summary),
        *_wrong_labels(summary),
        _certified(summary),
    ]
    return [*verdicts, *_adaptive(summary)]


def _means(summary: Summary) -> list[Verdict]:
    found = []
    for place, most in ((1, 0.04), (2, 0.08)):
        groups = {
            "networks, design": summary.problems("networks, design"),
            "held out": [problem for problem in summary.problems() if problem.held_out],
            "all": summary.problems(),
        }
        shares = {
            group: float(summary.mean_wrong(problems, "iknow")[place])
            for group, problems in groups.items()
            if problems
        }
        written = "; ".join(f"{group}: {100 * share:.2f}%" for group, share in shares.items())
        target = f"mean wrong IK at coverage {summary.coverages[place]} at most {most:.1%}"
        found.append(Verdict(target, written, max(shares.values()) <= most))
    return found


def _reached(summary: Summary) -> Verdict:
    share = summary.reached(summary.problems(), "iknow").min()
    return Verdict(
        "every coverage is reached everywhere", f"in {share:.0%} of the cells", share == 1
    )


def _below_peers(summary: Summary) -> list[Verdict]:
    found = []
    for place, coverage in enumerate(summary.coverages):
        lost = []
        for problem in summary.problems():
            own = summary.mean_wrong([problem], "iknow")[place]
            better = [
                name
                for name in summary.methods([problem])
                if name != "iknow" and summary.mean_wrong([problem], name)[place] < own
            ]
            if better:
                lost.append(f"{problem.name} ({', '.join(better)})")
        target = f"at {coverage}: lower than every other method's mean on every problem"
        n_problems = len(summary.problems())
        written = f"{n_problems - len(lost)} of {n_problems}"
        found.append(
            Verdict(target, written + (f"; not on {'; '.join(lost)}" if lost else ""), not lost)
        )
    return found


def _close(summary: Summary) -> list[Verdict]:
    found = []
    groups = {"networks, design": summary.problems("networks, design"), "all": summary.problems()}
    for place, coverage in enumerate(summary.coverages):
        shares = {}
        for group, problems in groups.items():
            close = [
                summary.wrong(cell, "iknow")[place] <= summary.best_other(cell, place)[1] + AS_CLOSE
                for cell in summary.cells(problems)
            ]
            shares[group] = (sum(close), len(close))
        target = f"at {coverage}: best or within 0.2 points of it in three quarters of the cells"
        written = "; ".join(
            f"{group}: {n} of {total}, {n / max(1, total):.0%}"
            for group, (n, total) in shares.items()
        )
        n, total = shares["all"]
        found.append(Verdict(target, written, n >= 0.75 * total))
    return found


def _wrong_labels(summary: Summary) -> list[Verdict]:
    found = (
        summary.certified("MNIST MLP", "noisy", "0.99", "iknow")
        if "MNIST MLP" in summary.runs
        else None
    )
    if found is None:
        return []
    target = "MNIST with 10% wrong labels: coverage at an accuracy of 0.99 at least 0.60"
    return [Verdict(target, f"{found[0]:.3f}, accuracy {found[1]:.4f}", bool(found[0] >= 0.6))]


def _certified(summary: Summary) -> Verdict:
    """Where 5,000 samples certify; small sets have too few for either."""
    behind, compared = [], 0
    for problem in summary.problems():
        own, mapie = (
            summary.certified(problem.name, "plain", "0.99", name)
            for name in ("iknow", "softmax, MAPIE")
        )
        if own is None or mapie is None or problem.held_out:
            continue
        compared += 1
        if own[0] < mapie[0]:
            behind.append(f"{problem.name} ({own[0]:.3f}, MAPIE {mapie[0]:.3f})")
    target = "certified coverage at 99% with 5,000 samples at least that of softmax with MAPIE"
    written = f"{compared - len(behind)} of {compared}"
    return Verdict(
        target, written + (f"; not on {'; '.join(behind)}" if behind else ""), not behind
    )


def _adaptive(summary: Summary) -> list[Verdict]:
    runs = [run["runs"] for run in summary.runs.get(ADAPTIVE, {}).values()]
    found = []
    for attack in ("as worded", "strong") if runs else ():
        share = float(np.mean([run[f"iknow (1, 3) {attack} 0.75"] for run in runs]))
        name = "by distance alone" if attack == "as worded" else "by all conditions, stronger"
        target = f"adaptive attack {name}, MNIST MLP, ε = 0.1, coverage 0.75: at most 1% wrong IK"
        found.append(Verdict(target, f"{100 * share:.2f}%", share <= 0.01))
    return found
