"""iknow next to FAISS, by number of features, on this machine.

    python -m benchmarks.beside_faiss --out faiss.json
    taskset -c 0,1 python -m benchmarks.beside_faiss     # on two cores

On processors with AVX-512, FAISS fuses the products with the search for the minimum for some sizes,
so the ratio differs between machines. Synthetic activations (`benchmarks.cases`), 10 classes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.cases import Shape, make_case
from benchmarks.race import keep
from benchmarks.records import Results
from benchmarks.sections import Effort, race_assertions, race_distances

FEATURES = (10, 32, 64, 128, 784)


def measure(n_features: int, n_rows: int, n_queries: int, repeats: int) -> dict[str, float]:
    """Microseconds per query, by task and contestant; wrong answers are not timed."""
    case = make_case("", Shape(n_rows, n_features, 10, n_queries))
    results, effort = Results("", False, repeats, {}), Effort(repeats, 60.0, pause=0.1)
    race_distances(case, case.layers[0], effort, results)
    race_assertions(case, effort, results, curve=True)
    for each in results.left_out:
        sys.exit(f"{each.contestant}, {each.task}: {each.reason}")
    found = {f"{each.task}, {each.contestant}": each.best for each in results.timings}
    return {"features": n_features, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--queries", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--features", type=int, nargs="+", default=FEATURES)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    table = []
    for n_features in given.features:
        row = measure(n_features, given.rows, given.queries, given.repeats)
        table.append(row)
        print({name: round(value, 2) for name, value in row.items()}, flush=True)
    keep({"rows": given.rows, "us_per_query": table}, given.out)


if __name__ == "__main__":
    main()
