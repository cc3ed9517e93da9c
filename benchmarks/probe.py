"""Run as a program: how much memory an index holds, and how much a search needs on top.

The question and the answer are JSON, on standard input and output.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.records import CELLS
from benchmarks.resident import peak_growth, resident
from benchmarks.synthetic import Shape, draw_clustered, draw_isotropic
from iknow.rules import Ball
from iknow.search.cpu.cell_index import CellIndex
from iknow.search.cpu.dense_index import DenseIndex


def probe(shape: Shape, k: int, contestant: str) -> dict[str, int]:
    """Bytes that an index holds, and that a search needs at its peak beyond index and result."""
    draw = draw_isotropic if shape.isotropic else draw_clustered
    make: Any = CellIndex if contestant == CELLS else DenseIndex
    _compile(make)
    points, labels, queries, _, _ = draw(shape)
    start = peak_growth(resident)[0]
    index = make(points, labels, shape.n_classes)
    del points, labels  # do not count what the index does not use
    start -= shape.n_rows * shape.n_features * 4

    def search(n: int) -> int:
        if contestant == CELLS:
            return int(index.find_support(queries[:n], Ball(1.0)).nbytes)
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


def _compile(make: Any) -> None:
    """Compile the search on a few rows, so that the compiler's memory is not counted."""
    points, labels, queries, _, _ = draw_clustered(Shape(100, 4, 2, 10))
    index = make(points, labels, 2)
    index.find_support(queries, Ball(1.0))
    index.gather(queries, 1)


if __name__ == "__main__":
    question = json.load(sys.stdin)
    print(json.dumps(probe(Shape(**question["shape"]), question["k"], question["contestant"])))
