"""FAISS as a rival: flat indexes, float32, with all its threads."""

from __future__ import annotations

from collections.abc import Callable

import faiss
import numpy as np

from benchmarks.cases import Case, Layer
from iknow.core.arrays import Bools, Floats, Floats32, Ints


def nearest_per_class(case: Case, layer: Layer) -> Callable[[Floats32], Floats]:
    """Class distances by one flat index per class, searched for its nearest row."""
    indexes = [_flat(layer.points[case.labels == code]) for code in range(case.n_classes)]

    def answer(queries: Floats32) -> Floats:
        distances = np.full((len(queries), len(indexes)), np.inf)
        for code, index in enumerate(indexes):
            if index.ntotal:
                squared, _ = index.search(queries, 1)
                distances[:, code] = np.sqrt(np.maximum(squared[:, 0], 0))
        return distances

    return answer


def range_support(case: Case, layer: Layer) -> Callable[[Floats32], Bools]:
    """Classes within the radius by a range search over all rows."""
    index = _flat(layer.points)

    def answer(queries: Floats32) -> Bools:
        ends, _, rows = index.range_search(queries, layer.radius**2)
        support = np.zeros((len(queries), case.n_classes), dtype=bool)
        sizes: Ints = ends[1:].astype(np.int64) - ends[:-1].astype(np.int64)
        query = np.repeat(np.arange(len(queries)), sizes)
        support[query, case.labels[rows]] = True
        return support

    return answer


def _flat(points: Floats32) -> faiss.IndexFlatL2:
    index = faiss.IndexFlatL2(points.shape[1])
    index.add(np.ascontiguousarray(points))
    return index
