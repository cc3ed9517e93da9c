"""Run as a program: how much memory an index holds, and how much a search needs on top.

The question and the answer are JSON, on standard input and output.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from benchmarks.records import CELLS
from benchmarks.resident import peak_growth, resident
from benchmarks.synthetic import Shape, draw_clustered, draw_isotropic
from iknow.rules import Ball
from iknow.search.cells import CpuIndex


def probe(shape: Shape, k: int, contestant: str) -> dict[str, int]:
    """Bytes that an index holds, and that a search needs at its peak beyond index and result."""
    draw = draw_isotropic if shape.isotropic else draw_clustered
    _compile()
    points, labels, queries, _, _ = draw(shape)
    start = peak_growth(resident)[0]
    index = CpuIndex(points, labels, shape.n_classes)
    del points, labels  # do not count what the index does not use
    start -= shape.n_rows * shape.n_features * 4

    def search(n: int) -> int:
        if contestant == CELLS:
            belief = np.zeros(n, dtype=np.int64)
            return int(index.decide(queries[:n], Ball(1.0), belief).support.nbytes)
        evidence = index.gather(queries[:n], k)
        return sum(
            each.nbytes
            for each in (
                evidence.class_distances, evidence.neighbor_distances, evidence.exemplars
            )
        )  # fmt: skip

    search(1)
    held = peak_growth(resident)[0] - start
    result, grown = peak_growth(lambda: search(len(queries)))
    return {"extra": max(0, grown - result), "held": held}


def _compile() -> None:
    """Compile the search on few rows, so that the compiler's memory is not counted."""
    points, labels, _, _, _ = draw_clustered(Shape(CpuIndex.FEWEST_ROWS, 4, 2, 10))
    CpuIndex(points, labels, 2).warm_up()


if __name__ == "__main__":
    question = json.load(sys.stdin)
    print(json.dumps(probe(Shape(**question["shape"]), question["k"], question["contestant"])))
