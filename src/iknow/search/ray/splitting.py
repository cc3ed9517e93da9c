"""Splitting: which rows go to which shard.

Rows come sorted by class. Where the sizes allow it, every class goes to one shard as a whole: the
m-th nearest of a class is then known to that shard alone, so shards can decide without sending the
nearest of each class (see `deciding`). We hand out the largest class first, each to the shard with
the fewest rows. If that leaves a shard with more than `UNEVEN` times its share, as two classes on
four shards do, every shard gets every n-th row instead, and so the same share of every class.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from iknow.core.arrays import Ints

UNEVEN = 1.25

Part = tuple[slice, ...]
"""The rows of one shard, in ascending order."""


class Split(NamedTuple):
    """parts: the rows of each shard. whole: whether every class is in one of them as a whole."""

    parts: list[Part]
    whole: bool


def split_rows(class_starts: Ints, n_shards: int) -> Split:
    """Split rows into at most `n_shards` parts, none of them empty unless there are no rows.

    class_starts: the first row of each class and, last, the number of rows.

    Examples:
        >>> split_rows(np.array([0, 3, 6]), 2)
        Split(parts=[(slice(0, 3, None),), (slice(3, 6, None),)], whole=True)
        >>> split_rows(np.array([0, 1, 6]), 2)
        Split(parts=[(slice(0, None, 2),), (slice(1, None, 2),)], whole=False)
    """
    n_rows = int(class_starts[-1])
    n_parts = max(1, min(n_shards, n_rows))
    sizes = np.diff(class_starts)
    loads, classes = [0] * n_parts, [list[int]() for _ in range(n_parts)]
    for code in np.argsort(-sizes, kind="stable").tolist():
        lightest = loads.index(min(loads))
        loads[lightest] += int(sizes[code])
        classes[lightest].append(code)
    if min(loads) == 0 < n_rows or max(loads) * n_parts > UNEVEN * n_rows:
        return Split([(slice(part, None, n_parts),) for part in range(n_parts)], n_parts == 1)
    ends = class_starts.tolist()
    parts = [
        tuple(slice(ends[code], ends[code + 1]) for code in sorted(each) if sizes[code])
        for each in classes
    ]
    return Split(parts, whole=True)


def take(array: Any, part: Part) -> Any:
    """The rows of a part, in memory of their own and without gaps."""
    if not part:
        return array[:0].copy()
    return np.concatenate([array[rows] for rows in part])
