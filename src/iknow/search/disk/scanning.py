"""Scanning: from coded blocks in memory to the rows that may matter; see `coding` for the bounds.

With the extra `fast` this is compiled; without it, scipy computes the same sums in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.disk.coded_rows import CodedRows
from iknow.search.disk.coding import FAR, LEAST_SLACK, ROUND_UP, looseness
from iknow.search.disk.hunt import Hunt
from iknow.search.kernels.numba import is_compiled

CANDIDATES = 1 << 16


@dataclass(frozen=True, eq=False)
class Loaded:
    """The codes of some blocks, read into memory, and what is known of each.

    codes: int8, of shape (n, n_features). places: the first row of each in codes and, last, their
    end. slots: its first slot. The others: see `CodedRows`.
    """

    codes: np.ndarray
    places: Ints
    slots: Ints
    classes: Ints
    centers: Floats32
    units: Floats
    errors: Floats
    radii: Floats


def load(coded: CodedRows, blocks: Ints) -> Loaded:
    """Read ascending blocks."""
    sizes = coded.starts[blocks + 1] - coded.starts[blocks]
    places = np.append(0, np.cumsum(sizes))
    codes = np.empty((int(places[-1]), coded.n_features), dtype=np.int8)
    coded.read(blocks, codes, places)
    return Loaded(
        codes,
        places,
        coded.starts[blocks],
        coded.classes[blocks],
        coded.centers[blocks],
        coded.units[blocks],
        coded.errors[blocks],
        coded.radii[blocks],
    )


class Finds:
    """Pairs of a query and a slot that may matter, with the lower bound on their distance."""

    def __init__(self, size: int) -> None:
        capacity = max(CANDIDATES, size)
        self.pairs = np.empty((capacity, 2), dtype=np.int64)
        self.bounds = np.empty(capacity)
        self.count = np.zeros(1, dtype=np.int64)


def scan(
    loaded: Loaded, queries: Floats32, pairs: Ints, first: int, hunt: Hunt, finds: Finds
) -> int:
    """Compare pairs of a block and a query from the `first` on, until `finds` is full.

    pairs: of shape (n_pairs, 2), ascending by block. Returns the first pair that is left.
    """
    if not is_compiled():
        return _scan_with_scipy(loaded, queries, pairs, first, hunt, finds)
    from iknow.search.kernels.numba.coded import scan_pairs
    from iknow.search.kernels.numba.search import read_only

    return int(
        scan_pairs(
            *(loaded.codes, loaded.places, loaded.slots, loaded.classes, loaded.centers),
            *(loaded.units, loaded.errors, loaded.radii, read_only(queries), pairs, first),
            *(looseness(queries.shape[1]), LEAST_SLACK, FAR, ROUND_UP),
            *(hunt.limits, hunt.within, hunt.others, hunt.upper, hunt.upper_any),
            *(finds.pairs, finds.bounds, finds.count),
        )
    )


def _scan_with_scipy(
    loaded: Loaded, queries: Floats32, pairs: Ints, first: int, hunt: Hunt, finds: Finds
) -> int:
    """The same in float64, where nothing overflows, block by block."""
    while first < len(pairs):
        block = int(pairs[first, 0])
        start, end = loaded.places[block : block + 2].tolist()
        room = (len(finds.bounds) - int(finds.count[0])) // (end - start)
        if room == 0:
            break
        last = min(first + room, int(np.searchsorted(pairs[:, 0], block, side="right")))
        query = pairs[first:last, 1]
        _compare(loaded, queries, block, query, hunt, finds)
        first = last
    return first


def _compare(
    loaded: Loaded, queries: Floats32, block: int, query: Ints, hunt: Hunt, finds: Finds
) -> None:
    """Bound the distances between a block and some queries, and keep what may matter."""
    unit, error, code = loaded.units[block], loaded.errors[block], int(loaded.classes[block])
    codes = loaded.codes[loaded.places[block] : loaded.places[block + 1]].astype(np.float64)
    center = loaded.centers[block].astype(np.float64)
    placed = (queries[query] - center) / unit
    loose = looseness(queries.shape[1])
    blur = np.sqrt(np.einsum("ij,ij->i", placed, placed)) * 2.0**-23 + LEAST_SLACK
    root = np.sqrt(cdist(placed, codes, "sqeuclidean"))
    low = unit * (root / loose - blur[:, None]) - error
    low -= np.abs(low) * (ROUND_UP - 1)
    high = (unit * (root * loose + blur[:, None]) + error) * ROUND_UP
    at, row = np.nonzero(low <= hunt.reach(code)[query, None])
    n = int(finds.count[0])
    kept = slice(n, n + len(at))
    finds.pairs[kept, 0], finds.pairs[kept, 1] = query[at], loaded.slots[block] + row
    finds.bounds[kept] = low[at, row]
    finds.count[0] += len(at)
    m, k = hunt.upper.shape[2], hunt.upper_any.shape[1]
    known = np.concatenate([hunt.upper[query, code], high], axis=1)
    known.sort(axis=1)
    hunt.upper[query, code] = known[:, :m]
    hunt.limits[query, code] = np.minimum(hunt.limits[query, code], known[:, m - 1])
    hunt.others[query] = np.minimum(hunt.others[query], hunt.limits[query, code])
    if k:
        near = np.concatenate([hunt.upper_any[query], high], axis=1)
        near.sort(axis=1)
        hunt.upper_any[query] = near[:, :k]
