"""Recent: the last rows, by believed class and by level.

Totals since the start change ever more slowly. The last `N_RECENT` rows tell what a model does not
know now, and whether its levels lie as those of the reference samples do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.assertion import Assertion
from iknow.core.codes import NO_BELIEF
from iknow.service.seen import Seen

N_RECENT = 10_000
N_BINS = 20  # of levels, each 0.05 wide
MOST_CLASSES = 50

NOT_THERE = -2  # the belief in a place that no row has taken yet


class Recent:
    """Belief, assertion and level of the last rows. Not for threads to share.

    Args:
        n_classes: Number of classes.
        reference: Levels of reference samples, of shape (n_reference,), if they are known.
        threshold: The level from which on an answer is IK, if there is one.
    """

    def __init__(
        self, n_classes: int, reference: Floats | None = None, threshold: float | None = None
    ) -> None:
        self._n_classes = n_classes
        self._reference = None if reference is None else _shares(_histogram(reference))
        self._threshold = threshold
        self._belief = np.full(N_RECENT, NOT_THERE, dtype=np.int64)
        self._assertion = np.zeros(N_RECENT, dtype=np.int8)
        self._level = np.full(N_RECENT, np.nan)
        self._next = 0

    def add(self, seen: Seen) -> None:
        """Remember rows; the oldest are forgotten."""
        count = min(len(seen), N_RECENT)
        places = (self._next + np.arange(count)) % N_RECENT
        last = slice(len(seen) - count, None)
        self._belief[places] = seen.belief[last]
        self._assertion[places] = seen.assertion[last]
        self._level[places] = np.nan if seen.level is None else seen.level[last]
        self._next = (self._next + count) % N_RECENT

    def levels(self) -> dict[str, Any] | None:
        """How many rows have which level, for JSON; None without levels.

        `counts` and `reference`, shares, have an entry for each of `N_BINS` bins of equal width
        between 0 and 1.
        """
        counts = _histogram(self._level)
        if not counts.any() and self._reference is None:
            return None
        return {
            "n": int(counts.sum()),
            "counts": counts.tolist(),
            "reference": self._reference,
            "threshold": self._threshold,
        }

    def by_class(self, labels: list[str]) -> dict[str, Any]:
        """How often each class was believed with which assertion, for JSON.

        `rows`, those with most IDKs first; `more`, how many further classes there are; `n`, rows.
        """
        there = self._belief != NOT_THERE
        codes = np.where(self._belief == NO_BELIEF, self._n_classes, self._belief)[there]
        joint = codes * len(Assertion) + self._assertion[there]
        counts = np.bincount(joint, minlength=(self._n_classes + 1) * len(Assertion))
        table = counts.reshape(-1, len(Assertion))
        seen = np.flatnonzero(table.sum(axis=1))
        order = seen[np.lexsort((-table[seen].sum(axis=1), -table[seen, Assertion.IDK]))]
        rows = [
            {
                "label": labels[code] if code < self._n_classes else None,
                **{each.name: int(table[code, each]) for each in Assertion},
            }
            for code in order[:MOST_CLASSES].tolist()
        ]
        return {"n": int(there.sum()), "rows": rows, "more": max(len(order) - MOST_CLASSES, 0)}


def _histogram(levels: Floats) -> Ints:
    """Rows by level, of shape (N_BINS,); those without a level, NaN, do not count."""
    known = levels[~np.isnan(levels)]
    bins = np.clip((known * N_BINS).astype(np.int64), 0, N_BINS - 1)
    return np.bincount(bins, minlength=N_BINS)


def _shares(counts: Ints) -> list[float] | None:
    total = int(counts.sum())
    return (counts / total).tolist() if total else None
