"""scikit-learn as a rival, in the fastest way that gives the same result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.neighbors import BallTree, KDTree, NearestNeighbors

from benchmarks.cases import Case, Layer
from benchmarks.records import BALL_TREE, KD_TREE
from benchmarks.support import support_of_lists
from iknow.core.arrays import Bools, Floats, Floats32
from iknow.search.threads import for_each, n_cores

TREES = {BALL_TREE: BallTree, KD_TREE: KDTree}

Distances = Callable[[Floats32], Floats]
Support = Callable[[Floats32], Bools]


def nearest_per_class(case: Case, layer: Layer) -> Distances:
    """Class distances by a search for the nearest row of each class in turn."""
    parts = [layer.points[case.labels == code] for code in range(case.n_classes)]

    def answer(queries: Floats32) -> Floats:
        distances = np.full((len(queries), len(parts)), np.inf)
        for code, part in enumerate(parts):
            if len(part):
                distances[:, code] = pairwise_distances_argmin_min(queries, part)[1]
        return distances

    return answer


def neighbors_per_class(case: Case, layer: Layer) -> Distances:
    """The same by one `NearestNeighbors` per class; which of the two is faster depends on size."""
    codes = np.unique(case.labels)
    searches = [
        NearestNeighbors(algorithm="brute", n_neighbors=1).fit(layer.points[case.labels == code])
        for code in codes
    ]

    def answer(queries: Floats32) -> Floats:
        distances = np.full((len(queries), case.n_classes), np.inf)
        for code, search in zip(codes, searches, strict=True):
            distances[:, code] = search.kneighbors(queries)[0][:, 0]
        return distances

    return answer


def brute_support(case: Case, layer: Layer) -> Support:
    """Classes within the radius by scikit-learn's brute force."""
    search = NearestNeighbors(algorithm="brute", radius=layer.radius).fit(layer.points)

    def answer(queries: Floats32) -> Bools:
        near = search.radius_neighbors(queries, return_distance=False)
        return support_of_lists(near, case.labels, case.n_classes)

    return answer


def tree_support(case: Case, layer: Layer, name: str) -> Support:
    """Classes within the radius by a tree, which computes in float64; queries on all cores."""
    tree = TREES[name](layer.points)

    def answer(queries: Floats32) -> Bools:
        support = np.empty((len(queries), case.n_classes), dtype=bool)

        def work(part: slice) -> None:
            near = tree.query_radius(queries[part], layer.radius)
            support[part] = support_of_lists(near, case.labels, case.n_classes)

        if len(queries) == 1:
            work(slice(0, 1))
        else:
            # Several parts for each core, as some queries take longer than others.
            step = max(1, len(queries) // (4 * n_cores()))
            for_each(work, [slice(i, i + step) for i in range(0, len(queries), step)])
        return support

    return answer
