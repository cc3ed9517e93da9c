"""Scales: whether distances between raw inputs reflect all of their features.

A distance adds up squared differences, so a feature in square millimeters drowns out one between 0
and 1, although a random forest reads both equally well. What matters is the share of the squared
distance that comes from the quieter half of the features: one half if all have the same spread, a
hundredth if the other half spreads ten times as far. Below that a ball is blind to half of what the
model may use.

Activations are float32, with about 7 digits: timestamps in seconds that are two minutes apart may
become equal. If its steps are coarse relative to a feature's spread, distances are mostly rounding.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32

LEAST_SHARE = 0.01
"""The least share of the squared distance for the quieter half of the features."""

TAILS = (5, 95)
"""Percentiles between which to measure a feature's spread, without outliers and rare values."""

LARGEST_EXACT = 2.0**24
"""float32 holds all integers up to here; beyond are timestamps, money and ids."""

STEPS_IN_SPREAD = 100
"""How many float32 numbers the spread of a feature beyond that should contain."""

MOST_ROWS = 10_000
"""Enough samples to estimate the spread of a feature."""


def warn_of_layers(activations: Mapping[str, Floats32], *, raw: bool) -> None:
    """Warn of layers where distances mean little; raw: the user did not choose "input"."""
    if raw and "input" in activations:
        warn_of_scales(activations["input"])
    for layer, values in activations.items():
        warn_of_rounding(layer, values)


def warn_of_scales(inputs: Floats32) -> None:
    """Warn if half of the features hardly count in distances; inputs: shape (n, n_features)."""
    share = share_of_quieter_half(inputs)
    if share < LEAST_SHARE:
        warnings.warn(
            f"the features have very different scales: half of them make up {100 * share:.2g}% of "
            "the squared distance between samples in the layer 'input', so support is blind to "
            "them. Put a scaler before it, make_pipeline(StandardScaler(), classifier), whose "
            "output then becomes the default layer; or pass metric=..., or layers=... to confirm "
            "'input'",
            stacklevel=6,
        )


def warn_of_rounding(layer: str, activations: Floats32) -> None:
    """Warn if a feature of a layer, shape (n, n_features), varies by little more than rounding."""
    coarse = np.flatnonzero(are_coarse(activations))
    if len(coarse):
        size = float(np.abs(activations[:, coarse[0]]).max())
        warnings.warn(
            f"feature {coarse[0]} of layer {layer!r} has values near {size:.6g}, where float32 has "
            f"steps of {float(np.spacing(np.float32(size))):.2g}, too coarse for how little they "
            f"vary (features affected: {len(coarse)}); subtract an offset, for example with a "
            "StandardScaler before the model",
            stacklevel=6,
        )


def are_coarse(activations: Floats32) -> Bools:
    """Which features spread over too few numbers of float32, of shape (n_features,)."""
    low, high = _percentiles(activations)
    size = np.maximum(np.abs(low), np.abs(high))
    steps = np.spacing(size.astype(np.float32)).astype(np.float64)
    coarse: Bools = (size >= LARGEST_EXACT) & (high - low < STEPS_IN_SPREAD * steps)
    return coarse


def share_of_quieter_half(inputs: Floats32) -> float:
    """The share of the sum of squared spreads that comes from the quieter half of the features.

    Constant features are left out; 1 if fewer than two are left.
    """
    spreads = spread(inputs)
    squares = np.sort(spreads[spreads > 0]) ** 2
    if len(squares) < 2:
        return 1.0
    return float(squares[: len(squares) // 2].sum() / squares.sum())


def spread(inputs: Floats32) -> Floats:
    """The distance between the percentiles `TAILS` of each feature, of shape (n_features,)."""
    low, high = _percentiles(inputs)
    return high - low


def _percentiles(inputs: Floats32) -> tuple[Floats, Floats]:
    step = -(-len(inputs) // MOST_ROWS)
    low, high = np.percentile(inputs[::step].astype(np.float64), TAILS, axis=0)
    return low, high
