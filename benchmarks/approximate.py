"""Approximate search beside exact search: agreement of assertions against speed, for each mode.

    python -m benchmarks.approximate --rows 100000 --features 64 --out approximate.json

Clustered data (`benchmarks.synthetic`), one layer, `RelativeBall` with its usual quorum at the
level that three quarters of 500 held-out queries reach. Each entrant runs in a process of its own
that is stopped at the time limit; what it measured until then counts. Its supports are compared
with those of exact search, and the best round is reported: `us` with all queries at once, `alone`
with one at a time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.faiss import nearest_few
from benchmarks.machine import describe_machine
from benchmarks.synthetic import N_VALIDATION, Shape, draw_clustered
from iknow.core.arrays import Bools, Floats32, Ints
from iknow.core.contrast import find_contrast
from iknow.core.evidence import Evidence
from iknow.core.level import Levels, refer
from iknow.core.quorum import weigh
from iknow.core.support import find_support
from iknow.rules import RelativeBall
from iknow.search.approximate import FaissIndex
from iknow.search.cpu.cell_index import CellIndex

EXACT = "exact search"
PLAIN = "proposals alone"
FLAT = "FAISS flat"
TRIED: dict[str, list[dict[str, int]]] = {
    "hnsw": [{"ef": 16}, {"ef": 64}, {"ef": 256}],
    "ivf": [{"probes": 4}, {"probes": 16}, {"probes": 64}],
    "ivfpq": [{"probes": 16}, {"probes": 64}],
}
ENTRANTS = [EXACT, FLAT, *TRIED]
QUORUM = RelativeBall.usual_quorum
COVERAGE = 0.75
SECONDS_PER_ROUND = 20.0
QUERIES_ALONE = 100

Answer = Callable[[Floats32, Ints], Bools]
"""Supports, of shape (n, n_classes), of queries with their beliefs."""


def prepare(folder: Path, shape: Shape) -> RelativeBall:
    """Draw the data into a folder, and choose the rule."""
    points, labels, asked, _, belief = draw_clustered(shape, extra=N_VALIDATION)
    order = np.argsort(labels, kind="stable")  # as an index stores them, so that none copies them
    np.save(folder / "points.npy", points[order])
    np.save(folder / "labels.npy", labels[order])
    np.save(folder / "queries.npy", asked[N_VALIDATION:])
    np.save(folder / "belief.npy", belief[N_VALIDATION:])
    index = CellIndex(points[order], labels[order], shape.n_classes)
    held_out, codes = asked[:N_VALIDATION], belief[:N_VALIDATION]
    weighed = weigh(index.gather(held_out, per_class=max(QUORUM)), QUORUM, codes)
    contrast = find_contrast(weighed, codes)
    path = Levels({"layer": refer(contrast)}, QUORUM)
    levels = path.hear({"layer": contrast}, None).min(axis=1)
    setting = path.at(float(np.quantile(levels, 1 - COVERAGE)))[0]["layer"]
    return RelativeBall(*setting, quorum=QUORUM)


def contestants(
    entrant: str, points: Floats32, labels: Ints, n_classes: int, rule: RelativeBall
) -> Iterator[tuple[dict[str, Any], Answer]]:
    """The ways in which an entrant answers, each with its name and what building it took."""
    started = time.perf_counter()
    if entrant == EXACT:
        cells = CellIndex(points, labels, n_classes)
        cells.warm_up()
        built = {"build_s": time.perf_counter() - started}
        decides: Answer = lambda queries, belief: cells.decide(queries, rule, belief).support  # noqa: E731
        yield {"entrant": entrant, "mode": "decisions", **built}, decides
        measures: Answer = lambda queries, belief: cells.find_support(queries, rule, belief)  # noqa: E731
        yield {"entrant": entrant, "mode": "distances", **built}, measures
    elif entrant == FLAT:
        nearest = nearest_few(points, labels, n_classes, max(QUORUM))
        built = {"build_s": time.perf_counter() - started}

        def answer(queries: Floats32, belief: Ints) -> Bools:
            ranked = nearest(queries)
            none = np.full(ranked.shape, -1)
            evidence = Evidence(
                ranked[:, :, 0], np.empty((len(queries), 0)), none[:, :, 0],
                ranked[:, :, 1:], none[:, :, 1:],
            )  # fmt: skip
            return find_support(evidence, rule, belief)

        yield {"entrant": entrant, "mode": "distances", **built}, answer
    else:
        yield from _modes(entrant, points, labels, n_classes, rule)


def _modes(
    kind: Any, points: Floats32, labels: Ints, n_classes: int, rule: RelativeBall
) -> Iterator[tuple[dict[str, Any], Answer]]:
    """Every mode with every parameter of one build."""
    started = time.perf_counter()
    index = FaissIndex(points, labels, n_classes, kind=kind, mode="fast")
    index.warm_up()
    built = time.perf_counter() - started
    answer: Answer = lambda queries, belief: index.find_support(queries, rule, belief)  # noqa: E731
    plain: Answer = lambda queries, belief: find_support(  # noqa: E731
        index.gather(queries, per_class=max(QUORUM)), rule, belief
    )
    for mode in ("fast", "verified", "exact", PLAIN):
        index.mode = "fast" if mode == PLAIN else mode  # type: ignore[assignment]
        for options in TRIED[kind]:
            # How to search does not change what is built, which may take an hour.
            for proposer in index._proposals._proposers.values():
                plan: Any = index.plan
                vars(proposer)["_plan"] = replace(plan, **options)
            said = {"entrant": kind, "mode": mode, **options, "build_s": built}
            yield said, plain if mode == PLAIN else answer


def measure(answer: Answer, folder: Path, truth: Bools | None, repeats: int) -> dict[str, Any]:
    """Speed of an entrant, and how its assertions agree with the true supports."""
    queries, belief = np.load(folder / "queries.npy"), np.load(folder / "belief.npy")
    few = min(len(queries), 200)
    answer(queries[:few], belief[:few])
    started = time.perf_counter()
    answer(queries[:few], belief[:few])
    each = (time.perf_counter() - started) / few
    n = int(min(len(queries), max(few, SECONDS_PER_ROUND / each)))
    rounds: list[float] = []
    found: Bools
    for _ in range(max(1, repeats)):
        started = time.perf_counter()
        found = answer(queries[:n], belief[:n])
        rounds.append(time.perf_counter() - started)
    alone = []
    for i in range(min(QUERIES_ALONE, n)):
        started = time.perf_counter()
        answer(queries[i : i + 1], belief[i : i + 1])
        alone.append(time.perf_counter() - started)
    said = {"queries": n, "us": 1e6 * min(rounds) / n, "alone_us": 1e6 * float(np.median(alone))}
    if truth is None:
        np.save(folder / "truth.npy", found)
        truth = found
    return {**said, **agreement(found, truth[:n], belief[:n])}


def agreement(found: Bools, truth: Bools, belief: Ints) -> dict[str, float]:
    """Shares of equal supports and assertions, and of IK that are none."""
    asserted, exact = assertions(found, belief), assertions(truth, belief)
    known = asserted == 2
    return {
        "same_support": float((found == truth).all(axis=1).mean()),
        "same_assertion": float((asserted == exact).mean()),
        "coverage": float(known.mean()),
        "exact_coverage": float((exact == 2).mean()),
        "false_ik": float((exact[known] != 2).mean()) if known.any() else 0.0,
        "missed_ik": float(((exact == 2) & ~known).mean()),
    }


def assertions(support: Bools, belief: Ints) -> Ints:
    """0, 1 and 2 for IDK, IMK and IK by one layer."""
    held = support[np.arange(len(belief)), belief]
    found: Ints = np.where(held, np.where(support.sum(axis=1) == 1, 2, 1), 0)
    return found


def run_entrant(entrant: str, folder: Path, given: argparse.Namespace) -> None:
    """Measure one entrant, in its own process, and append each result to a file."""
    points = np.load(folder / "points.npy", mmap_mode="r")
    labels, rule = np.load(folder / "labels.npy"), json.loads((folder / "rule.json").read_text())
    arrays = np.asarray(points), labels, given.classes, RelativeBall(**rule)
    for name, answer in contestants(entrant, *arrays):
        known = folder / "truth.npy"
        truth = np.load(known) if known.exists() else None
        result = {**name, **measure(answer, folder, truth, given.repeats)}
        print({key: _short(value) for key, value in result.items()}, flush=True)
        with (folder / "results.jsonl").open("a") as file:
            file.write(json.dumps(result) + "\n")


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--queries", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for each entrant")
    parser.add_argument("--only", nargs="+", choices=ENTRANTS, default=ENTRANTS)
    parser.add_argument("--folder", type=Path, help="where to put the data; default: temporary")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--entrant", choices=ENTRANTS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    given = parse()
    if given.entrant:
        run_entrant(given.entrant, given.folder, given)
        return
    with TemporaryDirectory(dir=given.folder) as place:
        folder = Path(place)
        print(f"Drawing {given.rows:,} x {given.features}", flush=True)
        rule = prepare(folder, Shape(given.rows, given.features, given.classes, given.queries))
        print(rule, flush=True)
        (folder / "rule.json").write_text(json.dumps(vars(rule)))
        stopped: list[str] = []
        for entrant in [EXACT, *(each for each in given.only if each != EXACT)]:
            print(f"{entrant}, at most {given.limit:g} s", flush=True)
            options = [f"--{name}={getattr(given, name)}" for name in ("classes", "repeats")]
            command = [sys.executable, "-m", "benchmarks.approximate", f"--entrant={entrant}"]
            try:
                subprocess.run(
                    [*command, f"--folder={folder}", *options], check=True, timeout=given.limit
                )
            except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
                stopped.append(entrant)
                print(f"{entrant} stopped: {str(error)[:200]}", flush=True)
            write(given, rule, folder / "results.jsonl", stopped)


def write(given: argparse.Namespace, rule: RelativeBall, found: Path, stopped: list[str]) -> None:
    """Write all results so far, so that nothing is lost with a later entrant."""
    lines = found.read_text().splitlines() if found.exists() else []
    sizes = {name: getattr(given, name) for name in ("rows", "features", "classes", "queries")}
    record = {"machine": describe_machine(), **sizes, "rule": str(rule), "stopped": stopped}
    record["results"] = [json.loads(line) for line in lines]
    if given.out:
        given.out.write_text(json.dumps(record, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
