"""Uncertainty: how far the share of close cells would move with other seeds, by the bootstrap.

A cell is close when our mean over the seeds is within 0.05 of the published value. Each resample
draws as many seeds of a dataset as were run, with replacement, and finds the means, the cells that
count and the share of them that are close anew; datasets are drawn apart. The interval holds the
middle 95% of these shares. It is about our seeds alone: the paper prints one network's numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Bools, Floats
from iknow.evaluation.compare import draw_weights, interval
from reproduction.agreement import LEAST_SHARE, coverage_of, is_within, share_of
from reproduction.claims import list_numbers
from reproduction.protocol import Outcome
from reproduction.tables import Key, load_published

CONFIDENCE = 0.95
RESAMPLES = 2000
HOW = (
    f"The intervals come from a bootstrap over the seeds: {RESAMPLES:,} times we draw as many "
    "seeds of each dataset as were run, with replacement, and find the means, the counted cells "
    "and the share within 0.05 anew. Each interval holds the middle "
    f"{CONFIDENCE:.0%} of these shares."
)


@dataclass(frozen=True, eq=False)
class Resamples:
    """Which published cells count, and which of these are close: of shape (resamples, n_cells)."""

    keys: tuple[Key, ...]
    counted: Bools
    close: Bools

    def find_interval(self, keys: Collection[Key] | None = None) -> tuple[float, float] | None:
        """The interval of the share of close cells, of all or of some; None if it has none."""
        columns = [keys is None or key in keys for key in self.keys]
        counted, close = self.counted[:, columns].sum(axis=1), self.close[:, columns].sum(axis=1)
        if not len(counted) or not counted.all():
            return None
        low, high = interval(close / counted, CONFIDENCE)
        return float(low), float(high)


def resample_seeds(experiments: Iterable[tuple[str, Sequence[Outcome]]]) -> Resamples:
    """Resample the seeds of experiments, each under the name of a dataset of the paper.

    With a single seed of any there is nothing to draw from: no resamples.
    """
    parts = [_resample(*each) for each in experiments]
    if not parts or any(not len(part.counted) for part in parts):
        return Resamples((), np.empty((0, 0), dtype=bool), np.empty((0, 0), dtype=bool))
    return Resamples(
        tuple(key for part in parts for key in part.keys),
        np.hstack([part.counted for part in parts]),
        np.hstack([part.close for part in parts]),
    )


def show_interval(ends: tuple[float, float] | None) -> str:
    """An interval as text."""
    return "–" if ends is None else f"{100 * ends[0]:.1f}% to {100 * ends[1]:.1f}%"


def _resample(dataset: str, outcomes: Sequence[Outcome]) -> Resamples:
    rows = [list_numbers(dataset, outcome) for outcome in outcomes]
    keys = tuple(key for key in load_published() if key in rows[0])
    if len(rows) < 2:
        return Resamples(keys, *(np.empty((0, len(keys)), dtype=bool) for _ in range(2)))
    values = np.array([[row[key] for key in keys] for row in rows])
    # The dataset's name is the seed: its draws do not depend on which others are there.
    rng = np.random.default_rng(zlib.crc32(dataset.encode()))
    means = dict(zip(keys, _means(values, draw_weights(len(rows), rng, RESAMPLES)).T, strict=True))
    published = load_published()
    counted, close = [], []
    for key in keys:
        shares = (share_of(each[coverage_of(key)], key.metric) for each in (published, means))
        counts = np.all(np.broadcast_arrays(*(s >= LEAST_SHARE for s in shares)), axis=0)
        counted.append(np.broadcast_to(counts, RESAMPLES))
        close.append(counted[-1] & is_within(means[key], published[key]))
    return Resamples(keys, np.column_stack(counted), np.column_stack(close))


def _means(values: Floats, weights: Floats) -> Floats:
    """Means over the seeds for which a cell is defined, of shape (resamples, n_cells)."""
    defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):  # NaN where none of the seeds drawn defines a cell
        means: Floats = weights @ np.where(defined, values, 0.0) / (weights @ defined)
    return means
