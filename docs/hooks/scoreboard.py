"""Makers of the blocks on the page about the scoreboard, from its results."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from benchmarks.scoreboard import table
from benchmarks.scoreboard.summary import Summary

RESULTS = Path(__file__).parents[1] / "scoreboard" / "results.json"
TABLES: dict[str, Callable[[Summary], str]] = {
    "scoreboard_claims": lambda summary: (
        table.targets(summary).replace("| target ", "| claim ").replace("| met |", "| holds |")
    ),
    "scoreboard_in_words": table.in_words,
    "scoreboard_in_short": table.in_short,
    "scoreboard_problems": table.accuracies,
    "scoreboard_overall": table.overall,
    "scoreboard_by_problem": table.by_problem,
    "scoreboard_losses": table.losses,
    "scoreboard_certified": table.certified,
    "scoreboard_wrong_labels": table.wrong_labels,
    "scoreboard_adaptive": table.adaptive,
}


@cache
def summary() -> Summary:
    """What `python -m benchmarks.scoreboard` found."""
    return Summary.read(RESULTS)


def _maker(make: Callable[[Summary], str]) -> Callable[[], str]:
    return lambda: make(summary())


SCOREBOARD: dict[str, Callable[[], str]] = {name: _maker(make) for name, make in TABLES.items()}
