"""Likeness: do validation samples look like the training data?

If validation samples have another unit, or were prepared otherwise, strange samples are ordinary
from then on, and nothing is IDK any more. So we compare, in what enters the model, how far they and
training samples are from the nearest other training sample, and from the middle of the training
data. Draws from the same source exceed the 98th percentile of training samples about twice in a
hundred. We tell if more than a quarter do, by a binomial test at 1e-4: that is no drift, but
another kind of data. In layers that the model has learned, training samples are nearer to one
another than any others, so these say nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import binom

from iknow.core.arrays import Floats
from iknow.core.evidence import Evidence
from iknow.core.quorum import Contrast
from iknow.errors import warn
from iknow.selection.validation import LEVEL

FEWEST_TRAINED = 50
MEASURED = 200  # training samples
BEYOND = 0.02  # of training samples are farther, or nearer
STRANGE = 0.25  # of validation samples


def warn_of_strangers(
    index: Any, found: Contrast | Evidence, ours: Floats, training: Floats, what: str
) -> None:
    """Warn of samples that look unlike the training data.

    index: the training samples, as `iknow.search.layer.LayerIndex`. found: what it found about the
    others. ours, training: sketches of both. what: the samples, in words.
    """
    if len(training) < FEWEST_TRAINED:
        return
    some = np.linspace(0, len(training) - 1, min(len(training), MEASURED)).astype(np.int64)
    to_others = index.gather_among(some, 2).neighbor_distance(2)  # each is nearest to itself
    nearest = found.neighbor_distance(1) if found.n_neighbors else found.nearest_distance()
    center = training.mean(axis=0)
    theirs, usual = (np.linalg.norm(each - center, axis=1) for each in (ours, training[some]))
    for values, typical, words in (
        (nearest, to_others, "farther from the nearest training sample"),
        (theirs, usual, "farther from the middle of the training data"),
        (-theirs, -usual, "nearer to the middle of the training data"),
    ):
        n_strange = int((values > np.quantile(typical, 1 - BEYOND)).sum())
        if binom.sf(n_strange - 1, len(values), STRANGE) <= LEVEL:
            warn(
                f"{n_strange:,} of the {len(values):,} {what} samples are {words} than "
                f"{1 - BEYOND:.0%} of the training samples are, so they are another kind of data, "
                "and tuning takes what is like them for ordinary: check units, scaling and "
                "preprocessing, or give samples like those that you will assess"
            )
            return
