"""Growth: what an assertion costs as rows grow, and what a billion rows would take.

    python -m benchmarks.growth --out docs/figures/growth.json

For each number of rows: building the index, its bytes, one query alone and queries in batches,
decided by the default rule, beside bare products of the same size. The data is clustered, as
`benchmarks.cases` draws it. The plan at the end carries what was measured on to more rows, by
the power law that the largest sizes follow; it is an estimate and is marked as one.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import Shape, draw_clustered
from benchmarks.machine import describe_machine
from benchmarks.memory import peak_growth
from benchmarks.race import Contestant, keep, latencies, race, timed
from benchmarks.rivals import products
from iknow.rules import RelativeBall
from iknow.search.cells import CpuIndex

ROWS = (10_000, 100_000, 1_000_000, 10_000_000)
N_QUERIES, N_ALONE = 2_000, 200
RULE = RelativeBall(radius=4.0, ratio=1.2, quorum=(1, 3))
BILLION = 1_000_000_000
MACHINE_BYTES = 128 * 2**30
"""Of a machine in the plan."""


def measure(n_rows: int, n_features: int, n_classes: int, compare: bool) -> dict[str, Any]:
    """What n_rows cost; compare: also race bare products, for as many queries as they can."""
    shape = Shape(n_rows, n_features, n_classes, N_QUERIES)
    points, labels, queries, _, belief = draw_clustered(shape)

    def build() -> CpuIndex:
        index = CpuIndex(points, labels, n_classes)
        index.warm_up()
        index.decide(queries[:64], RULE, belief[:64])
        return index

    (index, grown), built, _ = timed(lambda: peak_growth(build))

    def ask(part: slice) -> Any:
        return index.decide(queries[part], RULE, belief[part])

    contestants = [Contestant("batch_us", ask)]
    if compare:
        bare = products(points, queries)
        contestants.append(Contestant("products_us", bare, whole=False, fewest=64))
    laps = race(contestants, N_QUERIES, 3, seconds_per_call=30.0)
    alone = 1e6 * latencies(ask, N_ALONE)[:, 0]
    return {
        "rows": n_rows,
        "build_s": built,
        "bytes_per_row": 4 * n_features,
        "index_bytes": int(grown),
        "alone_p50_us": float(np.percentile(alone, 50)),
        "alone_p99_us": float(np.percentile(alone, 99)),
        **{lap.contestant.name: lap.best for lap in laps},
    }


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The power with which a cost grows, between the last two sizes."""
    return math.log(costs[-1] / costs[-2]) / math.log(sizes[-1] / sizes[-2])


def plan(found: Sequence[dict[str, Any]], n_cores: int, rows: int = BILLION) -> dict[str, Any]:
    """What more rows would take, estimated from what was measured.

    Shards of one machine each answer every query about their own rows, and the evidence is merged.
    A machine is full when its rows and what the index adds take its memory.
    """
    last = found[-1]
    sizes = [each["rows"] for each in found]
    per_row = last["bytes_per_row"] + last["index_bytes"] / last["rows"]
    rows_each = int(0.8 * MACHINE_BYTES / per_row)
    machines = -(-rows // rows_each)
    held = rows / machines
    power = exponent(sizes, [each["batch_us"] for each in found]) if len(found) > 1 else 1.0
    batch_us = last["batch_us"] * (held / last["rows"]) ** power
    return {
        "rows": rows,
        "bytes_per_row": per_row,
        "bytes": per_row * rows,
        "machines": machines,
        "cores_each": n_cores,
        "memory_each": MACHINE_BYTES,
        "power": power,
        "machine_seconds_per_million": batch_us * machines,
        "seconds_per_million": batch_us,
        "core_hours_per_million": batch_us * machines * n_cores / 3600,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--no-products", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found: list[dict[str, Any]] = []
    for rows in given.rows:
        found.append(measure(rows, given.features, given.classes, not given.no_products))
        print(json.dumps(found[-1]), flush=True)
        result = {
            "features": given.features,
            "classes": given.classes,
            "rule": repr(RULE),
            "sizes": found,
            "plan": plan(found, int(describe_machine()["cores"])),
        }
        keep(result, given.out)  # after each size: the last one may not fit
    print(json.dumps(result["plan"], indent=1))


if __name__ == "__main__":
    main()
