"""Scales: whether distances between raw inputs are about all of their features.

A distance adds up squared differences, so a feature in square millimetres drowns one between 0 and
1, though a forest of decision trees reads both alike. What counts is how much of the squared
distance the quieter half of the features makes up: half of it where all spread alike, a hundredth
where the other half spreads ten times as far. Below that a ball is blind to half of what the model
may look at.

Activations are kept in float32, which tells numbers apart to about 7 digits: of timestamps in
seconds those two minutes apart may be one. Where its steps are coarse for what a feature spreads,
distances are made of rounding.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32

LEAST_SHARE = 0.01
"""Of the squared distance, what the quieter half of the features should make up at least."""

TAILS = (5, 95)
"""Percentiles between which a feature spreads: outliers do not count, nor do rare values."""

LARGEST_EXACT = 2.0**24
"""Up to here float32 holds all whole numbers; beyond are timestamps, money and ids."""

STEPS_IN_SPREAD = 100
"""So many numbers of float32 should lie within the spread of a feature beyond that."""

MOST_ROWS = 10_000
"""So many samples tell the spread of a feature well enough."""


def warn_of_layers(activations: Mapping[str, Floats32], *, raw: bool) -> None:
    """Warn of layers in which distances say little; raw: the layer "input" was chosen by nobody."""
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
            "the squared distance between samples in the layer 'input', so that support is blind "
            "to them. Put a scaler before the classifier, make_pipeline(StandardScaler(), "
            "classifier), whose output is then the layer to look at; or give metric=..., or "
            "layers=... to say that 'input' is meant",
            stacklevel=6,
        )


def warn_of_rounding(layer: str, activations: Floats32) -> None:
    """Warn if a feature of a layer, shape (n, n_features), varies by little more than rounding."""
    coarse = np.flatnonzero(are_coarse(activations))
    if len(coarse):
        size = float(np.abs(activations[:, coarse[0]]).max())
        warnings.warn(
            f"feature {coarse[0]} of layer {layer!r} has values near {size:.6g}, which float32 "
            f"tells apart in steps of {float(np.spacing(np.float32(size))):.2g}, too coarse for "
            f"how little they vary ({len(coarse)} such features): take away an offset, such as by "
            "a StandardScaler before the model",
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
    low, high = _percentiles(inputs)
    return high - low


def _percentiles(inputs: Floats32) -> tuple[Floats, Floats]:
    step = -(-len(inputs) // MOST_ROWS)
    low, high = np.percentile(inputs[::step].astype(np.float64), TAILS, axis=0)
    return low, high
