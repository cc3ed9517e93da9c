"""FaissProposer: an index of FAISS over the rows of one class.

FAISS computes in float32, where squares of large numbers overflow and those of tiny ones vanish, so
rows and queries are brought to its range by a power of two, and queries that are still too far away
are moved nearer. It starts a team of OpenMP threads for each call; we call it from threads of our
own, each a team of one: so callers in several threads do not multiply, nothing is left behind that
a forked child would wait for, and the same rows give the same index.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import faiss as typed
import numpy as np

from iknow.core.arrays import Floats32, Ints
from iknow.search.approximate.plan import Plan

faiss: Any = typed  # its types leave out much of it

SPARE = 4
"""Proposals beyond those asked for, as float32 may order near ties wrongly."""
REFINED = 8
"""Proposals for each one asked for where rows are compressed, and their order means less."""
USUAL_RANGE = 2.0**-40, 2.0**40
"""Sizes whose squares float32 can sum."""


class FaissProposer:
    """Proposes rows of one class; points: of shape (n_rows, n_features)."""

    def __init__(self, points: Floats32, plan: Plan) -> None:
        self._plan, self._n_rows = plan, len(points)
        self._exponent = _find_exponent(points)
        with one_thread():
            self._index = _build(self._fit(points), plan)

    def propose(self, queries: Floats32, n: int) -> Ints:
        """Positions of near rows, of shape (n_queries, at least n); -1 where there is none."""
        wanted = n * REFINED if self._plan.kind == "ivfpq" else n + SPARE
        wanted = min(wanted, self._n_rows)
        with one_thread():
            _, rows = self._index.search(self._fit(queries), wanted, params=self._params(wanted))
        found: Ints = rows
        return found

    def _params(self, wanted: int) -> Any:
        """How to search; given with each call, as attributes would be shared by threads."""
        plan = self._plan
        if plan.searches_whole(self._n_rows):
            return None
        if plan.kind == "hnsw":
            return faiss.SearchParametersHNSW(efSearch=max(plan.ef or 0, wanted))
        make = faiss.IVFPQSearchParameters if plan.kind == "ivfpq" else faiss.SearchParametersIVF
        return make(nprobe=plan.probes)

    def _fit(self, points: Floats32) -> Floats32:
        """Points in FAISS's range."""
        if self._exponent:
            with np.errstate(over="ignore"):
                points = np.ldexp(points.astype(np.float64), self._exponent).astype(np.float32)
        return np.ascontiguousarray(np.clip(points, -USUAL_RANGE[1], USUAL_RANGE[1]))


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep FAISS to the calling thread. OpenMP keeps the number for each thread by itself."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _find_exponent(points: Floats32) -> int:
    """The power of two to multiply with; 0 for most rows, which need none."""
    largest = float(np.abs(points).max(initial=0.0))
    if largest == 0 or USUAL_RANGE[0] <= largest <= USUAL_RANGE[1]:
        return 0
    return -int(np.frexp(largest)[1])


def _build(points: Floats32, plan: Plan) -> Any:
    n_rows, n_features = points.shape
    if plan.searches_whole(n_rows):
        index = faiss.IndexFlatL2(n_features)
    elif plan.kind == "hnsw":
        index = faiss.IndexHNSWFlat(n_features, plan.links)
    else:
        center, lists = faiss.IndexFlatL2(n_features), plan.count_lists(n_rows)
        if plan.kind == "ivf":
            index = faiss.IndexIVFFlat(center, n_features, lists)
        else:
            sizes = plan.count_codes(n_features), plan.bits
            index = faiss.IndexIVFPQ(center, n_features, lists, *sizes)
        index.train(points)
    index.add(points)
    return index
