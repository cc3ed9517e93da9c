"""Tables: the figures of all deals as Markdown, mean ± standard deviation, in percent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.markdown import table_lines

RESULTS = Path(__file__).parents[2] / "docs" / "figures" / "magika.json"
COVERAGES = (0.6, 0.75, 0.9)
TEST = "test"
MODEL = "every answer"
MISSING = "not reached"


@cache
def record() -> dict[str, Any]:
    """What `python -m benchmarks.magika` found."""
    found: dict[str, Any] = json.loads(RESULTS.read_text("utf-8"))
    return found


def data() -> str:
    """What the files are, in a sentence or two."""
    found, runs = record(), record()["runs"]
    sizes = {
        part: f"{np.mean([run['files'][part] for run in runs]):,.0f}" for part in runs[0]["files"]
    }
    return (
        f"{found['files']:,} files of {found['types']} of magika's {found['classes']} types, from "
        f"{len(found['projects'])} projects, and {found['foreign_files']:,} files of "
        f"{len(found['foreign_types'])} types that it has no class for. magika "
        f"{found['magika']} is right on {found['accuracy']:.1%} of the former. The projects are "
        f"dealt {len(runs)} times; on average {sizes['evidence']} files are evidence, "
        f"{sizes['validation']} validation and {sizes['test']} test."
    )


def projects() -> str:
    """The projects that files come from."""
    return ", ".join(name.replace("+", "/") for name in record()["projects"]) + "."


def foreign_types() -> str:
    """The types without a class."""
    return ", ".join(record()["foreign_types"]) + "."


def at(coverage: float) -> str:
    """All methods on test files where each asserts the same share of validation files."""
    runs = record()["runs"]
    rows = []
    for method in runs[0]["equal_coverage"]:
        cells = [run["equal_coverage"][method][TEST][str(coverage)] for run in runs]
        areas = [run["augrc"][method] for run in runs if method in run["augrc"]]
        area = _spread([100 * each for each in areas], digits=2) if areas else ""  # no score
        rows.append([method, *_accuracies(cells, runs), area])
    headings = ("method", "asserted, %", "right, %", "right elsewhere, %", "AUGRC × 100")
    return "\n".join(table_lines(headings, rows, range(1)))


def outside(quantity: str, coverage: float = 0.75) -> str:
    """What all methods assert of other files, at a coverage: "asserted" or "wrong"."""
    runs = record()["runs"]
    sets = _sets(runs)
    rows = []
    for method in runs[0]["equal_coverage"]:
        row = [method]
        for name in sets:
            cells = [run["equal_coverage"][method].get(name) for run in runs]
            row.append(_spread(_shares([c and c[str(coverage)] for c in cells], quantity)))
        rows.append(row)
    if quantity == "wrong":
        errors = [[100 * run["error"][n] for run in runs if n in run["error"]] for n in sets]
        rows.append([MODEL, *map(_spread, errors)])
    return "\n".join(table_lines(("method", *sets), rows, range(1)))


def as_they_come() -> str:
    """Methods with the thresholds that they set themselves, on test and other files."""
    runs = record()["runs"]
    sets = [name for name in _sets(runs) if name != TEST]
    methods = {method: None for run in runs for method in run["as_they_come"]}
    rows = []
    for method in methods:
        having = [run for run in runs if method in run["as_they_come"]]
        cells = [run["as_they_come"][method] for run in having]
        row = [method, str(len(having)), *_accuracies([each[TEST] for each in cells], having)]
        rows.append(
            [*row, *(_spread(_shares([c.get(name) for c in cells], "wrong")) for name in sets)]
        )
    headings = ("method", "deals", "asserted, %", "right, %", "right elsewhere, %", *sets)
    return "\n".join(table_lines(headings, rows, range(1)))


def promises(accuracy: float = 0.99) -> str:
    """In how many deals a certified accuracy was there on the test files."""
    return "\n".join(_promises(accuracy))


def _promises(accuracy: float) -> Iterator[str]:
    runs = record()["runs"]
    for method in ("iknow, certified", "softmax, certified"):
        cells = [run["as_they_come"].get(method, {}).get(TEST) for run in runs]
        made = [each for each in cells if each and each["asserted"] > 0]
        kept = sum(each["wrong"] <= (1 - accuracy) * each["asserted"] for each in made)
        yield f"- **{method}**: promised in {len(made)} of {len(runs)} deals, kept in {kept}."


def _sets(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    return list({name: None for run in runs for name in run["n"]})


def _accuracies(
    cells: Sequence[Mapping[str, float] | None], runs: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Share asserted, accuracy there, and accuracy elsewhere, of the test files."""
    found = [(cell, run["error"][TEST]) for cell, run in zip(cells, runs, strict=True) if cell]
    asserted = [100 * cell["asserted"] for cell, _ in found]
    right = [100 * (1 - c["wrong"] / c["asserted"]) for c, _ in found if c["asserted"] > 0]
    elsewhere = [
        100 * (1 - (error - cell["wrong"]) / (1 - cell["asserted"]))
        for cell, error in found
        if cell["asserted"] < 1
    ]
    return [_spread(asserted), _spread(right), _spread(elsewhere)]


def _shares(cells: Sequence[Mapping[str, float] | None], quantity: str) -> list[float]:
    return [100 * cell[quantity] for cell in cells if cell]


def _spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean ± standard deviation; of a single value, or none, there is no deviation."""
    if not values:
        return MISSING
    deviation = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{deviation}"
