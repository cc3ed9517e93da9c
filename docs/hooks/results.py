"""Makers of blocks: the committed results, the command line and tables from the code, as Markdown.

No number on the pages about performance and reproduction is typed: what is measured again is said
again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import typer
from typer.cli import get_docs_for_click

from benchmarks.leaves import tables as leaf_tables
from benchmarks.records import Results, from_json
from benchmarks.report import measured_table, quantity_tables, to_markdown
from benchmarks.targets import judge
from filetypes import MAGIKA
from iknow.cli.app import app
from iknow.selection.guarantee import samples_needed
from iknow.selection.validation import SHARE_TO_CHOOSE
from production import PRODUCTION
from reproduction.entries import Experiment, group_outcomes, shares_of
from reproduction.markdown import table_lines
from reproduction.results import read_csv
from reproduction.uncertainty import HOW, resample_seeds, show_interval
from scale import SCALE
from scoreboard import SCOREBOARD

DOCS = Path(__file__).parents[1]
CONFIDENCE = 0.95  # of the certificates that validation data is counted for
TARGETS = (0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
COVERAGES = (0.9, 0.75, 0.5)
ENOUGH = 13  # times 1/rate: enough for the seven voices of two layers in nine draws of ten


@cache
def benchmark() -> Results:
    """What `python -m benchmarks` found."""
    return from_json((DOCS / "performance" / "benchmark.json").read_text("utf-8"))


@cache
def gpu() -> dict[str, Any]:
    """What `python -m benchmarks.gpu` found."""
    found: dict[str, Any] = json.loads((DOCS / "performance" / "gpu.json").read_text("utf-8"))
    return found


@cache
def avx512() -> list[dict[str, Any]]:
    """What `python -m benchmarks.beside_faiss` found on a processor with AVX-512, run by run."""
    path = DOCS / "performance" / "avx512.json"
    found: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return found


def highlights() -> str:
    """What was measured of speed and memory, where it is worst."""
    return _without_title(to_markdown(measured_table(judge(benchmark()))))


def selection() -> str:
    """Exact selection of radii beside Bayesian optimisation."""
    return _quantities("Selection from evidence")


def growth() -> str:
    """How the time of exact selection grows."""
    return _quantities("Selection of two radii, beside sorting")


def faiss_table() -> str:
    """FAISS's time as a multiple of iknow's, by cores and features, on a processor with AVX-512."""
    rows = []
    for run in avx512():
        for took in run["us_per_query"]:
            ours, theirs = (
                took["class distances, iknow, dense"],
                took["class distances, FAISS, flat"],
            )
            asserted = took["assertion, FAISS, flat"] / took["assertion, iknow, cells"]
            products = ours / took["class distances, bare products"]
            ratios = [f"{ratio:.2f}" for ratio in (theirs / ours, asserted, products)]
            rows.append([run["machine"]["cores"], str(took["features"]), *ratios])
    headings = (
        "cores",
        "features",
        "class distances: FAISS ÷ iknow",
        "assertion: FAISS ÷ iknow",
        "class distances ÷ bare products",
    )
    return _table(headings, rows, n_words=0)


def gpu_table() -> str:
    """Search on a GPU, beside what torch offers."""
    headings = (
        "rows × queries × features",
        "classes",
        "k",
        "`torch.cdist` and minima",
        "compiled products and minima",
        "`TorchIndex`",
        "faster than cdist",
        "with transfers from and to numpy",
    )
    return _table(headings, [_gpu_row(size) for size in gpu()["sizes"]], n_words=1)


def gpu_notes() -> str:
    """What else was measured on a GPU."""
    parts, both = gpu()["larger_than_its_memory"], gpu()["network_on_the_gpu_search_on_the_cpu"]
    ahead, waiting = both["milliseconds_ahead"], both["milliseconds_waiting"]
    return f"""\
- **Precision.** The products are in half precision (fp16), which only rules out.
- **An index larger than the memory** it may use is streamed: with 1 GiB for the first row, the
  search from and to numpy takes {parts["milliseconds_in_parts"]:.1f} ms
  instead of {parts["milliseconds_whole"]:.1f} ms, with the same answers.
- **A network on the GPU, search on the CPU**: to see the next batch while the last one is searched
  for takes {ahead / waiting:.2f} of the time, {ahead:,.0f} ms
  instead of {waiting:,.0f} ms."""


def agreement() -> str:
    """How many of the paper's numbers ours agree with, by dataset."""
    found = group_outcomes(read_csv(DOCS / "reproduction" / "results.csv"))
    main = [each for each in found if each.setup.name == each.setup.published]
    rows = [[each.setup.name, str(len(each.outcomes)), *_shares([each])] for each in main]
    rows.append(["**all**", "", *_shares(main)])
    headings = ("dataset", "seeds", "cells", "agree", "share", "within 0.05 alone", "95% interval")
    return f"{_table(headings, rows, n_words=1)}\n\n{HOW}"


def commands() -> str:
    """What every command takes, by its own help."""
    group = typer.main.get_group(app)
    context = typer.Context(group, info_name="iknow")
    return "".join(
        get_docs_for_click(obj=command, ctx=context, name=name, call_prefix="iknow", indent=1)
        for name, command in group.commands.items()
    )


def samples_to_certify() -> str:
    """Validation samples that certify an accuracy, by error rate and coverage."""
    rows = []
    for accuracy in TARGETS:
        for part, words in {0.0: "no errors", 0.25: "a quarter", 0.5: "half"}.items():
            known = samples_needed(accuracy, CONFIDENCE, part * (1 - accuracy))
            assert known is not None  # the error rate is below what the target allows
            share = (SHARE_TO_CHOOSE - 1) / SHARE_TO_CHOOSE
            totals = [f"{math.ceil(known / coverage / share):,}" for coverage in COVERAGES]
            rows.append([f"{accuracy:.1%}", words, f"{known:,}", *totals])
    headings = (
        "accuracy on IK",
        "errors, of those allowed",
        "IK samples that certify",
        *(f"samples in all, if {coverage:.0%} are IK" for coverage in COVERAGES),
    )
    return _table(headings, rows, n_words=2)


def samples_for_alarms() -> str:
    """Validation samples that bound a rate of false alarms."""
    rows = []
    for rate in (0.1, 0.05, 0.02, 0.01, 0.001):
        least = math.ceil(1 / rate) - 1
        rows.append([f"{rate:.1%}", f"{2 * least:,}", f"{2 * math.ceil(ENOUGH / rate):,}"])
    return _table(("false alarms", "at least", "usually enough"), rows, n_words=0)


def wrong_labels() -> str:
    """Coverage at an accuracy of 99%, by quorum and share of wrong labels: mean and lowest."""
    path = DOCS / "figures" / "wrong_labels.json"
    runs: list[dict[str, float]] = json.loads(path.read_text("utf-8"))
    methods = [name for name in runs[0] if name.startswith("(")]
    rows = []
    for share in sorted({run["share"] for run in runs}):
        seeds = [run for run in runs if run["share"] == share]
        columns = [[run[name] for run in seeds] for name in ("model", "softmax", *methods)]
        cells = [f"{np.mean(each):.2f} ({min(each):.2f})" for each in columns]
        rows.append([f"{share:.0%}", f"{np.mean(columns[0]):.1%}", *cells[1:]])
    headings = ("wrong labels", "network right", "softmax", *methods)
    return _table(headings, rows, n_words=0)


def leaves() -> str:
    """Shares asserted and wrong of trees, by the layers looked at."""
    return leaf_tables(json.loads((DOCS / "figures" / "leaves.json").read_text("utf-8"))).strip()


MAKERS: dict[str, Callable[[], str]] = {
    maker.__name__: maker
    for maker in (
        highlights, selection, growth, faiss_table, gpu_table, gpu_notes, agreement, commands,
        samples_to_certify, samples_for_alarms, wrong_labels, leaves,
    )
} | SCOREBOARD | MAGIKA | PRODUCTION | SCALE  # fmt: skip


def _gpu_row(size: dict[str, Any]) -> list[str]:
    took, faster = size["milliseconds"], size["ratio_to_cdist"]
    return [
        f"{size['rows']:,} × {size['queries']:,} × {size['features']}",
        f"{size['classes']:,}",
        f"{size['k']}",
        f"{took['cdist']:.1f} ms",
        f"{took['compiled products']:.1f} ms",
        f"{took['fp16']:.1f} ms",
        f"{faster['fp16']:.1f} times",
        f"{took['from and to numpy']:.1f} ms, {faster['from and to numpy']:.1f} times",
    ]


def _quantities(title: str) -> str:
    (table,) = (table for table in quantity_tables(benchmark()) if table.title == title)
    return _without_title(to_markdown(table))


def _shares(experiments: Sequence[Experiment]) -> list[str]:
    comparisons = [each for experiment in experiments for each in experiment.comparisons]
    resamples = resample_seeds((each.setup.published, each.outcomes) for each in experiments)
    return [*shares_of(comparisons), show_interval(resamples.find_interval())]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], n_words: int) -> str:
    return "\n".join(table_lines(headings, rows, range(n_words)))


def _without_title(markdown: str) -> str:
    return markdown.partition("\n")[2]
