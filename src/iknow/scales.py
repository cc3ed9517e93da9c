"""Scales: whether distances between raw inputs are about all of their features.

A distance adds up squared differences, so a feature in square millimetres drowns one between 0 and
1, though a forest of decision trees reads both alike. What counts is how much of the squared
distance the quieter half of the features makes up: half of it where all spread alike, a hundredth
where the other half spreads ten times as far. Below that a ball is blind to half of what the model
may look at.
"""

from __future__ import annotations

import warnings

import numpy as np

from iknow.core.arrays import Floats, Floats32

LEAST_SHARE = 0.01
"""Of the squared distance, what the quieter half of the features should make up at least."""

TAILS = (5, 95)
"""Percentiles between which a feature spreads: outliers do not count, nor do rare values."""

MOST_ROWS = 10_000
"""So many samples tell the spread of a feature well enough."""


def warn_of_scales(inputs: Floats32) -> None:
    """Warn if half of the features hardly count in distances; inputs: shape (n, n_features)."""
    share = share_of_quieter_half(inputs)
    if share < LEAST_SHARE:
        warnings.warn(
            f"the features have very different scales: half of them make up {100 * share:.2g}% of "
            "the squared distance between samples in the layer 'input', so that support is blind "
            "to them. Put a scaler before the classifier, make_pipeline(StandardScaler(), "
            "classifier), whose output is then the layer to look at; or give metric=..., or "
            "layers=... to say that 'input' is meant",
            stacklevel=5,
        )


def share_of_quieter_half(inputs: Floats32) -> float:
    """The part that the features of smaller spread have in the sum of all squared spreads.

    Features without spread count for nothing and are left out; 1 where fewer than two are left.
    """
    spreads = spread(inputs)
    squares = np.sort(spreads[spreads > 0]) ** 2
    if len(squares) < 2:
        return 1.0
    return float(squares[: len(squares) // 2].sum() / squares.sum())


def spread(inputs: Floats32) -> Floats:
    """The distance between the percentiles `TAILS` of each feature, of shape (n_features,)."""
    step = -(-len(inputs) // MOST_ROWS)
    low, high = np.percentile(inputs[::step].astype(np.float64), TAILS, axis=0)
    spreads: Floats = high - low
    return spreads
