"""The page: what was measured, figure, tables and machine as Markdown."""

from __future__ import annotations

from benchmarks.records import Results
from benchmarks.tables import (
    Table,
    cases_table,
    left_out_table,
    machine_table,
    measured_table,
    quantity_tables,
    race_tables,
    scaling_tables,
)
from benchmarks.targets import judge
from reproduction.markdown import table_lines

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

DATA = """\
Synthetic data is clustered: every class is a mixture of Gaussian clusters, each on a subspace of 8
dimensions of its own, with a little noise in all others. One row of a hundred carries a wrong
label, one query of ten is pushed off its cluster, one belief of twenty is wrong. The isotropic case
is one normal cloud for each class: in 64 dimensions nothing there can be ruled out unseen.
"""


def write_report(results: Results, figure: str | None) -> str:
    """The page as text. figure: the file name of the picture, if there is one."""
    parts = [INTRODUCTION.format(version=results.version, repeats=results.repeats)]
    if results.quick:
        parts.append("**This was a quick run, on small sizes: it shows that all runs, no more.**\n")
    parts.append(to_markdown(measured_table(judge(results))))
    if figure is not None:
        parts.append(f"![Cost of an assertion against rows and features]({figure})\n")
    parts += [to_markdown(cases_table(results)), DATA]
    parts += [to_markdown(table) for table in race_tables(results)]
    parts += [to_markdown(table) for table in scaling_tables(results)]
    parts += [to_markdown(table) for table in quantity_tables(results)]
    parts += [to_markdown(table) for table in (left_out_table(results), machine_table(results))]
    return "\n".join(part for part in parts if part)


def to_markdown(table: Table) -> str:
    """A table with its title; nothing for a table without rows."""
    if not table.rows:
        return ""
    words = {
        i for i, heading in enumerate(table.headings) if i < table.left or heading in table.words
    }
    lines = [f"## {table.title}", ""]
    if table.note:
        lines += [table.note, ""]
    return "\n".join([*lines, *table_lines(table.headings, table.rows, words), ""])
