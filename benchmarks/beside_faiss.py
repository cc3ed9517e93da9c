"""iknow next to FAISS, by number of features, on this machine.

    python benchmarks/beside_faiss.py --out faiss.json
    taskset -c 0,1 python benchmarks/beside_faiss.py     # on two cores

On processors with AVX-512, FAISS fuses the products with the search for the minimum for some sizes,
so the ratio differs between machines. Synthetic activations (`benchmarks.synthetic`), 10 classes;
answers are compared before they are timed; the best round counts.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.entrants import (
    contestants_in_assertion,
    enter_dense,
    enter_products,
    rivals_in_distances,
)
from benchmarks.machine import describe_machine
from benchmarks.racing import Contestant, race
from benchmarks.records import CELLS, DENSE, FAISS, PRODUCTS
from benchmarks.synthetic import Shape, make_case

FEATURES = (10, 32, 64, 128, 784)


def measure(n_features: int, n_rows: int, n_queries: int, repeats: int) -> dict[str, float]:
    """Microseconds per query, by task and contestant."""
    case = make_case("", Shape(n_rows, n_features, 10, n_queries))
    layer = case.layers[0]
    distances = [enter_products([layer]), enter_dense(case, layer)]
    distances += [each for each in rivals_in_distances(case, layer) if each.name == FAISS]
    assertions = [
        each for each in contestants_in_assertion(case) if each.name in (DENSE, CELLS, FAISS)
    ]
    found: dict[str, float] = {"features": n_features}
    for task, entrants in (("class distances", distances), ("assertion", assertions)):
        contestants = [Contestant(each.name, each.build(), whole=True) for each in entrants]
        answers = [each.answer(slice(0, 500)) for each in contestants if each.name != PRODUCTS]
        for answer in answers[1:]:
            if task == "assertion":
                # A distance that equals the radius up to float32 rounding may fall on either side.
                assert (answer != answers[0]).mean() < 0.01
            else:
                np.testing.assert_allclose(answer, answers[0], rtol=1e-3, atol=1e-2)
        for lap in race(contestants, n_queries, repeats, seconds_per_call=60, pause=0.1):
            found[f"{task}, {lap.contestant.name}"] = min(lap.seconds) / n_queries * 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--queries", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    table = []
    for n_features in FEATURES:
        row = measure(n_features, given.rows, given.queries, given.repeats)
        table.append(row)
        print({name: round(value, 2) for name, value in row.items()}, flush=True)
    record = {"machine": describe_machine(), "rows": given.rows, "us_per_query": table}
    if given.out:
        given.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
