"""Results → tables of text and the page: what was measured, figure, tables and machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.records import (
    ASSERTION,
    BALL_TREE,
    CLASS_DISTANCES,
    CURVES,
    KD_TREE,
    OURS,
    PRODUCTS,
    SKLEARN,
    WITH_FEW,
    WITH_NEIGHBORS,
    Quantity,
    Results,
    to_json,
)
from benchmarks.targets import Verdict, amount, duration, is_point, judge, ratio
from iknow.storage.files import write_bytes
from reproduction.markdown import table_lines

HEADINGS = {SKLEARN: "brute force", BALL_TREE: "BallTree", KD_TREE: "KDTree"}
"""Names short enough for the head of a column."""
MORE = {WITH_NEIGHBORS: ", with 10 neighbours", WITH_FEW: ", 5 nearest of each class"}
"""What else a contestant finds in the race for class distances."""
INTRODUCTION = """\
# What iknow costs

Made by `python -m benchmarks` of iknow {version}. Contestants take turns in one process,
{repeats} rounds.
Times are those of the best round, for each query; ratios are between best rounds. What is slow was
asked about fewer queries: the number is beside it. All use all cores. FAISS computes in float32,
and so does scikit-learn's brute force in part; its trees and iknow answer as float64 does. Answers
were compared before they were timed.

- **Class distances**: from every query to the nearest row of every class.
- **Assertion**: IK, IMK or IDK by the rows within a tuned radius, in all layers of the case.
- **Bare products**: the matrix products that a search over all rows cannot do without, by numpy in
  tiles that stay in the cache, results thrown away. A kernel that need not write them down can be a
  little faster.
"""
QUICK = "**This was a quick run, on small sizes: it shows that all runs, no more.**\n"
DATA = """\
Synthetic data is clustered: every class is a mixture of Gaussian clusters, each on a subspace of 8
dimensions of its own, with a little noise in all others. One row of a hundred carries a wrong
label, one query of ten is pushed off its cluster, one belief of twenty is wrong. The isotropic case
is one normal cloud for each class: in 64 dimensions nothing there can be ruled out unseen.
"""


@dataclass(frozen=True)
class Table:
    """Headings and rows of text. words: the columns that hold words, by number."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[int] = (0,)


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


def write_all(results: Results, folder: Path) -> list[Path]:
    """Write the numbers, the page and, if matplotlib is installed, the figure of the curves."""
    contents = {"benchmark.json": to_json(results).encode()}
    if any(is_point(case.name) for case in results.cases):
        try:
            from benchmarks.matplotlib import draw_cost, to_png, to_svg
        except ImportError:
            pass
        else:  # a figure per format, because saving a figure moves its parts a little
            contents["cost.png"] = to_png(draw_cost(results))
            contents["cost.svg"] = to_svg(draw_cost(results))
    page = write_report(results, "cost.png" if "cost.png" in contents else None)
    contents["report.md"] = page.encode()
    return [write_bytes(folder / name, content) for name, content in contents.items()]


def write_report(results: Results, figure: str | None = None) -> str:
    """The page as Markdown. figure: the file name of the picture, if there is one."""
    parts = [INTRODUCTION.format(version=results.version, repeats=results.repeats)]
    parts += [QUICK] if results.quick else []
    parts.append(to_markdown(measured_table(judge(results))))
    if figure is not None:
        parts.append(f"![Cost of an assertion against rows and features]({figure})\n")
    left_out = [(e.case, e.task, e.contestant, e.reason) for e in results.left_out]
    tables = [
        *race_tables(results),
        *scaling_tables(results),
        *quantity_tables(results),
        Table("Left out", ("case", "task", "of", "why"), left_out, range(4)),
        Table("Machine", ("", ""), list(results.machine.items()), range(2)),
    ]
    parts += [to_markdown(cases_table(results)), DATA, *map(to_markdown, tables)]
    return "\n".join(part for part in parts if part)


def to_markdown(table: Table) -> str:
    """A table with its title; nothing for a table without rows."""
    if not table.rows:
        return ""
    lines = table_lines(table.headings, table.rows, table.words)
    return "\n".join([f"## {table.title}", "", *lines, ""])


def measured_table(verdicts: Sequence[Verdict]) -> Table:
    """What was measured, where it is worst."""
    rows = [(each.target, each.measured, each.where) for each in verdicts if each.met is not None]
    return Table("What was measured", ("what", "measured", "where it is worst"), rows, (0, 2))


def cases_table(results: Results) -> Table:
    """The cases, with their shares of assertions, to show that the mix is realistic."""
    rows = []
    for case in results.cases:
        if not is_point(case.name):
            widths = " and ".join(f"{d:,}" for d in case.layers.values())
            shares = case.facts.get("assertions", {}).values()
            told = " / ".join(f"{100 * share:.0f}%" for share in shares) or "–"
            size = f"{case.n_rows:,} × {widths}"
            rows.append((case.name, size, f"{case.n_classes:,}", f"{case.n_queries:,}", told))
    headings = ("case", "rows × features", "classes", "queries", "IK / IMK / IDK")
    return Table("Cases", headings, rows)


def race_tables(results: Results) -> list[Table]:
    """One table for each race: times per query, and as ratios to ours and to bare products."""
    tables = []
    for case in dict.fromkeys(each.case for each in results.timings if not is_point(each.case)):
        for task in (CLASS_DISTANCES, ASSERTION):
            tasks = (task, *MORE) if task == CLASS_DISTANCES else (task,)
            raced = [e for e in results.timings if e.case == case and e.task in tasks]
            ours = [e.best for e in raced if e.contestant in OURS and e.task == task]
            products = results.find(case, task, PRODUCTS)
            rows = [
                (
                    each.contestant + (f" ({each.note})" if each.note else "")
                    + MORE.get(each.task, ""),
                    f"{each.n_queries:,}",
                    duration(each.best),
                    duration(each.median),
                    ratio(each.best / min(ours) if ours else None),
                    ratio(None if products is None else each.best / products.best),
                )
                for each in raced
            ]  # fmt: skip
            headings = ("", "queries", "per query", "median", "÷ iknow", "÷ products")
            tables.append(Table(f"{case}: {task}", headings, rows))
    return [table for table in tables if table.rows]


def scaling_tables(results: Results) -> list[Table]:
    """Cost of an assertion against rows and against features, one column for each contestant."""
    tables = []
    for family in CURVES:
        cases = [case.name for case in results.cases if case.name.startswith(f"{family} ")]
        names = tuple(
            dict.fromkeys(
                timing.contestant
                for case in cases
                for timing in results.timings
                if (timing.case, timing.task) == (case, ASSERTION)
            )
        )
        rows = []
        for case in cases:
            found = [results.find(case, ASSERTION, name) for name in names]
            costs = ("–" if each is None else duration(each.best) for each in found)
            rows.append((case.removeprefix(f"{family} "), *costs))
        headings = (family, *(HEADINGS.get(name, name) for name in names))
        tables.append(Table(f"Cost of an assertion against {family}", headings, rows, ()))
    return [table for table in tables if table.rows]


def quantity_tables(results: Results) -> list[Table]:
    """Everything outside of races, a table for each kind."""
    kinds = {kind: [e for e in results.quantities if e.kind == kind] for kind in LAYOUTS}
    return [_lay_out(found, LAYOUTS[kind]) for kind, found in kinds.items() if found]


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
    cells = [
        (
            *key,
            *(values.get(column, "–") for column in columns),
            *(("; ".join(notes[key]),) if noted else ()),
        )
        for key, values in rows.items()
    ]
    n_words, last = len(layout.rows), (len(headings) - 1,) if noted else ()
    return Table(layout.title, headings, cells, (*range(n_words), *last))
