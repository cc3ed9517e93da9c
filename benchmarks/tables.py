"""Results → tables of text, the same for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.records import (
    ASSERTION,
    BALL_TREE,
    CELLS,
    CLASS_DISTANCES,
    DENSE,
    KD_TREE,
    PRODUCTS,
    SKLEARN,
    WITH_FEW,
    WITH_NEIGHBORS,
    CaseFacts,
    Quantity,
    Results,
    Timing,
)
from benchmarks.targets import Verdict
from benchmarks.wording import amount, duration, ratio

HEADINGS = {SKLEARN: "brute force", BALL_TREE: "BallTree", KD_TREE: "KDTree"}
"""Names short enough for the head of a column."""
MORE = {WITH_NEIGHBORS: ", with 10 neighbours", WITH_FEW: ", 5 nearest of each class"}
"""What else a contestant finds in the race for class distances."""
MET = {True: "yes", False: "no", None: "–"}


@dataclass(frozen=True)
class Table:
    """Headings and rows of text.

    left: how many columns, from the left, hold words. words: headings of further such columns.
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    words: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Layout:
    """How to lay out the numbers of a kind: which fields make a row, and which a column."""

    title: str
    rows: tuple[str, ...]
    column: str
    notes: str = "note"


LAYOUTS = {
    "build": Layout("Building an index, with its first query", ("case",), "contestant"),
    "latency": Layout("One query at a time", ("case", "contestant"), "what", "over"),
    "memory": Layout("Memory", ("case", "contestant"), "what"),
    "tuning": Layout("Tuning the radii", ("what",), "contestant"),
    "selection": Layout("Selection from evidence", ("what",), "contestant", "coverage"),
    "growth": Layout("Selection of two radii, beside sorting", ("what",), "contestant"),
    "import": Layout("Importing, beyond a bare interpreter", ("contestant",), "what"),
    "bundle": Layout("A bundle on disk", ("case",), "what"),
}


def targets_table(verdicts: Sequence[Verdict], quick: bool) -> Table:
    """What was promised, what was measured, and whether the target is met."""
    return Table(
        "Targets",
        ("target", "wanted", "measured", "where it is worst", "met"),
        tuple(
            (each.target, each.wanted, each.measured, each.where, MET[each.met])
            for each in verdicts
        ),
        words=("where it is worst", "met"),
        note="A quick run: its sizes are not those that the targets are about." if quick else "",
    )


def measured_table(verdicts: Sequence[Verdict]) -> Table:
    """What was measured, where it is worst: for readers, to whom our targets are nothing."""
    measured = [each for each in verdicts if each.met is not None]
    return Table(
        "What was measured",
        ("what", "measured", "where it is worst"),
        tuple((each.target, each.measured, each.where) for each in measured),
        words=("where it is worst",),
    )


def race_tables(results: Results) -> list[Table]:
    """One table for each race: times per query, and as ratios to ours and to bare products."""
    return [
        _race_table(results, case, task, timings)
        for case in dict.fromkeys(each.case for each in results.timings)
        for task in (CLASS_DISTANCES, ASSERTION)
        if not case.startswith(("rows", "features")) and (timings := _raced(results, case, task))
    ]


def scaling_tables(results: Results) -> list[Table]:
    """Cost of an assertion against rows and against features, one column for each contestant."""
    tables = []
    for family, heading in (("rows", "rows"), ("features", "features")):
        cases = [case for case in results.cases if case.name.startswith(f"{family} ")]
        raced = [
            timing.contestant
            for case in cases
            for timing in results.timings
            if (timing.case, timing.task) == (case.name, ASSERTION)
        ]
        names = tuple(dict.fromkeys(raced))
        rows = []
        for case in cases:
            found = [results.find(case.name, ASSERTION, name) for name in names]
            costs = tuple("–" if each is None else duration(each.best) for each in found)
            rows.append((case.name.removeprefix(f"{family} "), *costs))
        if rows:
            title = f"Cost of an assertion against {heading}"
            headings = (heading, *(HEADINGS.get(name, name) for name in names))
            tables.append(Table(title, headings, tuple(rows), left=0))
    return tables


def quantity_tables(results: Results) -> list[Table]:
    """Everything outside of races, a table for each kind."""
    tables = []
    for kind, layout in LAYOUTS.items():
        found = [each for each in results.quantities if each.kind == kind]
        if found:
            tables.append(_lay_out(found, layout))
    return tables


def _lay_out(found: list[Quantity], layout: Layout) -> Table:
    """A row for each value of the row fields, a column for each value of the column field."""
    columns = tuple(dict.fromkeys(getattr(each, layout.column) for each in found))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    notes: dict[tuple[str, ...], dict[str, None]] = {}
    for each in found:
        key = tuple(getattr(each, name) for name in layout.rows)
        rows.setdefault(key, {})[getattr(each, layout.column)] = amount(each.value, each.unit)
        notes.setdefault(key, {}).update({each.note: None} if each.note else {})
    noted = any(notes.values())
    heads = (HEADINGS.get(column, column) for column in columns)
    headings = (*("" for _ in layout.rows), *heads, *((layout.notes,) if noted else ()))
    cells = tuple(
        (
            *key,
            *(values.get(column, "–") for column in columns),
            *(("; ".join(notes[key]),) if noted else ()),
        )
        for key, values in rows.items()
    )
    return Table(layout.title, headings, cells, len(layout.rows), (layout.notes,))


def cases_table(results: Results) -> Table:
    """The cases, with their shares of assertions, to show that the mix is realistic."""
    rows = [
        (case.name, _size(case), f"{case.n_classes:,}", f"{case.n_queries:,}", _shares(case))
        for case in results.cases
        if not case.name.startswith(("rows", "features"))
    ]
    headings = ("case", "rows × features", "classes", "queries", "IK / IMK / IDK")
    return Table("Cases", headings, tuple(rows))


def left_out_table(results: Results) -> Table:
    """What was not measured, and why."""
    rows = tuple((e.case, e.task, e.contestant, e.reason) for e in results.left_out)
    return Table("Left out", ("case", "task", "of", "why"), rows, left=4)


def machine_table(results: Results) -> Table:
    """The machine of the run."""
    return Table("Machine", ("", ""), tuple(results.machine.items()), left=2)


def _raced(results: Results, case: str, task: str) -> list[Timing]:
    tasks = (task, *MORE) if task == CLASS_DISTANCES else (task,)
    return [each for each in results.timings if each.case == case and each.task in tasks]


def _race_table(results: Results, case: str, task: str, timings: list[Timing]) -> Table:
    ours = min(
        (each for each in timings if each.contestant in (DENSE, CELLS) and each.task == task),
        key=lambda each: each.best,
        default=None,
    )
    products = results.find(case, task, PRODUCTS)
    rows = []
    for each in timings:
        more = f" ({each.note})" if each.note else ""
        more += MORE.get(each.task, "")
        rows.append(
            (
                each.contestant + more,
                f"{each.n_queries:,}",
                duration(each.best),
                duration(each.median),
                ratio(None if ours is None else each.best / ours.best),
                ratio(None if products is None else each.best / products.best),
            )
        )
    headings = ("", "queries", "per query", "median", "÷ iknow", "÷ products")
    return Table(f"{case}: {task}", headings, tuple(rows))


def _size(case: CaseFacts) -> str:
    return f"{case.n_rows:,} × {' and '.join(f'{d:,}' for d in case.layers.values())}"


def _shares(case: CaseFacts) -> str:
    shares = case.facts.get("assertions", {})
    return " / ".join(f"{100 * share:.0f}%" for share in shares.values()) or "–"
