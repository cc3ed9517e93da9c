"""Resampling: how far a figure would move with other samples, by the bootstrap.

Each resample draws as many samples as there are, with replacement; what it draws is a weight for
each sample, and figures take weights. The same weights serve every method, and every perturbation
of the same samples, so that what they share cancels in their differences and does not in their
means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from iknow.core.arrays import Floats

RESAMPLES = 200
"""Enough for the ends of a 95% interval to within a tenth of its width or so."""


def draw_weights(n_samples: int, rng: np.random.Generator, resamples: int = RESAMPLES) -> Floats:
    """How often each resample draws each sample, of shape (resamples, n_samples)."""
    drawn = rng.integers(n_samples, size=(resamples, n_samples))
    return np.stack([np.bincount(row, minlength=n_samples) for row in drawn]).astype(np.float64)


def interval(figures: Any, confidence: float) -> Floats:
    """The percentile interval of resampled figures of shape (resamples, ...): shape (..., 2)."""
    tail = (1 - confidence) / 2
    return np.moveaxis(np.quantile(figures, [tail, 1 - tail], axis=0), 0, -1)


def join(parts: Sequence[Floats]) -> Floats:
    """Weights for several sets joined, (resamples, sum of sizes): each set counts the same."""
    return np.hstack([part / part.shape[1] for part in parts])
