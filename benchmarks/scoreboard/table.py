"""Tables and words of the scoreboard as Markdown, each a function of the summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.scoreboard.cells import WRONG_LABELS
from benchmarks.scoreboard.measuring import ACCURACIES
from benchmarks.scoreboard.running import ADAPTIVE
from benchmarks.scoreboard.summary import CONFIDENCE, GROUPS, OURS, Summary
from benchmarks.scoreboard.targets import judge
from iknow.core.arrays import Floats

BOTH = (OURS, CONFIDENCE)
IN_SHORT = {
    "clean": "ordinary test data",
    "noise": "noise",
    "a column missing": "a missing column",
    "doubled": "values twice as large",
    "foreign data": "data of another kind",
    "unseen class": "a class it never saw",
    "gradient attacks": "attacks on a network",
}


def overall(summary: Summary) -> str:
    """What is asserted and wrong, and AUGRC, by method, group by group."""
    parts = []
    for group in GROUPS:
        problems = summary.problems(group)
        if not problems:
            continue
        rows = []
        for method in summary.methods(problems):
            clean = np.mean([summary.clean(each, method) for each in problems], axis=0)
            shares = [*clean, summary.mean_wrong(problems, method)[1]]
            areas = [
                float(np.mean([area(each, method) for each in problems]))
                for area in (summary.augrc_clean, summary.augrc_all)
            ]
            right = float(summary.mean_right(problems, method)[1])
            figures = [*map(percent, shares), *map(thousandths, areas), percent(right)]
            rows.append([f"**{method}**" if method == OURS else method, *figures])
        names = ", ".join(problem.name for problem in problems)
        n_cells = len(summary.cells(problems))
        coverages = (f"clean, {coverage:.2f}" for coverage in summary.coverages)
        heads = ["method", *coverages, "all cells, 0.75", "AUGRC clean", "AUGRC all", "right, 0.75"]
        parts.append(
            f"**{group.capitalize()}** ({names}; {n_cells} cells)\n\n{_table(heads, rows)}"
        )
    return "\n\n".join(parts)


def by_problem(summary: Summary) -> str:
    """AUGRC of iknow, the model's confidence, and the best other method that asks one model."""
    rows = []
    for problem in summary.problems():
        row = [problem.name]
        for area in (summary.augrc_clean, summary.augrc_all):
            best, name = min((area(problem, each), each) for each in summary.peers(problem))
            ours, theirs = area(problem, OURS), area(problem, CONFIDENCE)
            least = min(ours, best)
            told = [f"**{thousandths(v)}**" if v == least else thousandths(v) for v in (ours, best)]
            row += [told[0], thousandths(theirs), f"{told[1]} ({name})"]
        rows.append(row)
    heads = [f"{part}: {who}" for part in ("clean", "all") for who in (OURS, CONFIDENCE, "best")]
    return _table(["problem", *heads], rows)


def in_words(summary: Summary) -> str:
    """Where iknow wins, and where a threshold on the model's own confidence is as good."""
    changes = {
        problem.name: summary.augrc_all(problem, OURS) / summary.augrc_all(problem, CONFIDENCE) - 1
        for problem in summary.problems()
    }

    def listed(chosen: Callable[[float], bool]) -> str:
        names = [name for name in sorted(changes, key=changes.__getitem__) if chosen(changes[name])]
        return ", ".join(f"{name} ({changes[name]:+.0%})" for name in names) or "no problem"

    means = _by_kind(summary)
    order = sorted(means, key=lambda kind: float(means[kind][0] - means[kind][1]))

    def told(chosen: Callable[[float], bool]) -> str:
        rows = [(kind, *means[kind]) for kind in order if chosen(means[kind][0] - means[kind][1])]
        return "; ".join(f"{k} ({own:.1f}% and {other:.1f}%)" for k, own, other in rows) or "none"

    return "\n".join([
        "Clean and strange data together, half and half (AUGRC all), compared with a threshold on "
        "the model's own confidence:\n",
        f"- **iknow is better** by more than 3% on {listed(lambda change: change < -0.03)}.",
        f"- **A threshold is as good**, within 3%, on {listed(lambda c: -0.03 <= c <= 0.03)}.",
        f"- **A threshold is better** by more than 3% on {listed(lambda change: change > 0.03)}.",
        "\nBy what the data is, mean shares asserted and wrong of iknow and of a threshold, where "
        "both assert 75% of clean data:\n",
        f"- **iknow is better** by more than 0.2 points: {told(lambda gap: gap < -0.2)}.",
        f"- **A threshold is as good**, within 0.2 points: {told(lambda g: -0.2 <= g <= 0.2)}.",
        f"- **A threshold is better** by more than 0.2 points: {told(lambda gap: gap > 0.2)}.",
    ])  # fmt: skip


def in_short(summary: Summary) -> str:
    """How often a threshold and iknow stand behind a wrong answer, by what the data is."""
    means = _by_kind(summary)
    rows = [
        [words, *(f"{means[kind][who]:.1f}%" for who in (1, 0))]
        for kind, words in IN_SHORT.items()
        if kind in means
    ]
    problems = summary.problems()
    right = (f"{100 * summary.mean_right(problems, who)[1]:.1f}%" for who in (CONFIDENCE, OURS))
    rows.append(["**stands behind a right answer**, all data", *right])
    return _table(["stands behind a wrong answer", "threshold", "**iknow**"], rows)


def _by_kind(summary: Summary) -> dict[str, Floats]:
    """Mean percentages asserted and wrong, by iknow and by a threshold, of each kind of cell."""
    kinds: dict[str, list[Floats]] = {}
    for cell in summary.cells(summary.problems()):
        pair = np.array([summary.wrong(cell, method)[1] for method in BOTH])
        kinds.setdefault(_kind(cell[1]), []).append(pair)
    return {kind: 100 * np.mean(pairs, axis=0) for kind, pairs in kinds.items()}


def _kind(cell: str) -> str:
    """The kind of a cell: strengths of one disturbance are of one kind."""
    kind = cell.partition(",")[0]
    return {"foreign": "foreign data", "attack": "gradient attacks"}.get(kind, kind)


def losses(summary: Summary, at: int = 1, most: int = 20) -> str:
    """The cells in which another method that asks one model is better by the most points."""
    rows = []
    for problem in summary.problems():
        for cell in summary.cells([problem]):
            own = float(summary.wrong(cell, OURS)[at])
            shares = {name: summary.wrong(cell, name)[at] for name in summary.peers(problem)}
            name = min(shares, key=lambda each: np.nan_to_num(shares[each], nan=np.inf))
            softmax, error = shares[CONFIDENCE], summary.error(cell)
            figures = [percent(own), percent(shares[name]), name, percent(softmax), percent(error)]
            if own > shares[name] + 0.002:
                rows.append((own - shares[name], [problem.name, problem.mark, cell[1], *figures]))
    rows.sort(key=lambda row: -row[0])
    heads = ["problem", "", "cell", OURS, "best", "whose", CONFIDENCE, "model's error"]
    note = f"{len(rows)} of {len(summary.cells(summary.problems()))} cells; the first {most}:"
    return f"{note}\n\n{_table(heads, [row for _, row in rows[:most]], words=(0, 1, 2, 5))}"


def certified(summary: Summary) -> str:
    """Coverage on test data with the accuracy certified on validation data."""
    columns = [(str(each), method) for each in ACCURACIES for method in (OURS, CONFIDENCE)]
    rows = [
        [problem.name, *(_promise(summary.certified(problem.name, "plain", *c)) for c in columns)]
        for problem in summary.problems()
    ]
    return _table(["problem", *(f"{float(each):.0%}: {name}" for each, name in columns)], rows)


def wrong_labels(summary: Summary) -> str:
    """What a tenth of wrong training labels leaves."""
    rows = []
    for problem in summary.problems():
        cell = (problem.name, WRONG_LABELS)
        rows.append([
            problem.name, percent(summary.error(cell)),
            *(_promise(summary.certified(problem.name, "noisy", "0.99", name)) for name in BOTH),
            *(percent(float(summary.wrong(cell, name)[1])) for name in BOTH),
        ])  # fmt: skip
    heads = [f"{name}, {what}" for what in ("certified at 99%", "wrong at 0.75") for name in BOTH]
    return _table(["problem", "model's error", *heads], rows)


def adaptive(summary: Summary) -> str:
    """Right answers turned into wrong IK, mean of seeds."""
    attacks = {"strong": "every voice", "as worded": "distance"}
    rows, notes = [], []
    for study in (each for each in ADAPTIVE if each in summary.runs):
        runs = [run["runs"] for run in summary.runs[study].values()]
        problem = "CIFAR-10" if study.endswith("CIFAR-10") else "MNIST"
        for name in (each for each in runs[0] if each not in ("of", "epsilon")):
            method, coverage = name.rsplit(" ", 1)
            known = (attacks[each] for each in attacks if method.endswith(each))
            attack = next(known, "confidence")
            share = percent(float(np.mean([run[name] for run in runs])))
            rows.append([problem, method.split()[0], attack, coverage, share])
        seeds = "one seed" if len(runs) == 1 else f"{len(runs)} seeds"
        given = f"{seeds} of {runs[0]['of']} samples, ε = {runs[0]['epsilon']}"
        notes.append(f"{problem}: {given}.")
    if not rows:
        return "Not run."
    heads = ["network", "method", "attack on", "coverage", "broken, %"]
    return f"{_table(heads, rows, (0, 1, 2))}\n\n{' '.join(notes)}"


def accuracies(summary: Summary) -> str:
    """The models themselves."""
    rows = []
    for problem in summary.problems():
        runs = [run["plain"] for run in summary.runs[problem.name].values()]
        out = sorted({layer for run in runs for layer in run["left_out"]})
        accuracy = f"{1 - np.mean([run['model_error'] for run in runs]):.3f}"
        counts = [str(len(runs)), str(len(summary.cells([problem])))]
        rows.append([problem.name, problem.mark, *counts, accuracy, ", ".join(out)])
    heads = ["problem", "", "seeds", "cells", "test accuracy", "only familiarity in"]
    return _table(heads, rows, words=(0, 1, 5))


def targets(summary: Summary) -> str:
    """What was promised, and what came out."""
    rows = [[v.target, v.measured, "yes" if v.met else "**no**"] for v in judge(summary)]
    return _table(["target", "measured", "met"], rows, words=(0, 1, 2))


def percent(share: float) -> str:
    """A share as a percentage of two digits."""
    return "not reached" if np.isnan(share) else f"{100 * share:.2f}"


def thousandths(area: float) -> str:
    """An area, times 1,000."""
    return f"{1000 * area:.2f}" if area < 0.01 else f"{1000 * area:.1f}"


def _promise(found: Floats | None) -> str:
    """Coverage, and in brackets the accuracy."""
    if found is None:
        return "–"
    return f"{found[0]:.3f} ({found[1]:.4f})" if found[0] > 0 else "none"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int] = (0,)) -> str:
    marks = ["---" if place in words else "---:" for place in range(len(heads))]
    lines = [heads, marks, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
