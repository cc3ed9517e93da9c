"""Scales: whether distances between raw inputs reflect all of their features.

A distance adds up squared differences, so a feature in square millimeters drowns out one between 0
and 1, although a random forest reads both equally well. If the quieter half of the features makes
up less than a hundredth of the squared distance (the other half spreads over ten times as far), a
ball is blind to half of what the model may use.

Activations are float32, with about 7 digits: timestamps in seconds that are two minutes apart may
become equal, and distances are then mostly rounding.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32

LEAST_SHARE = 0.01  # of the squared distance, for the quieter half of the features
TAILS = (5, 95)  # the percentiles that a spread lies between, without outliers and rare values
LARGEST_EXACT = 2.0**24  # float32 holds all integers up to here, but few timestamps, money and ids
STEPS_IN_SPREAD = 100  # how many float32 numbers the spread of a larger feature should contain
MOST_ROWS = 10_000  # enough samples to estimate a spread
MOST_NUMBERS = 1 << 24  # of wide layers, such as words in documents, fewer have to do


def warn_of_layers(activations: Mapping[str, Floats32], *, raw: bool) -> None:
    """Warn of layers where distances mean little; raw: the user did not choose "input"."""
    share = share_of_quieter_half(activations["input"]) if raw and "input" in activations else 1.0
    if share < LEAST_SHARE:
        warnings.warn(
            f"the features have very different scales: half of them make up {100 * share:.2g}% of "
            "the squared distance between samples in the layer 'input', so support is blind to "
            "them. Put a scaler before it, make_pipeline(StandardScaler(), classifier), whose "
            "output then becomes the default layer; or pass metric=..., or layers=... to confirm "
            "'input'",
            stacklevel=5,
        )
    for layer, values in activations.items():
        coarse = np.flatnonzero(are_coarse(values))
        if len(coarse):
            size = float(np.abs(values[:, coarse[0]]).max())
            step = float(np.spacing(np.float32(size)))
            warnings.warn(
                f"feature {coarse[0]} of layer {layer!r} has values near {size:.6g}, where float32 "
                f"has steps of {step:.2g}, too coarse for how little they vary (features affected: "
                f"{len(coarse)}); subtract an offset, for example with a StandardScaler before the "
                "model",
                stacklevel=5,
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

    Constant features do not count; 1 if fewer than two others are left.
    """
    low, high = _percentiles(inputs)
    spreads = high - low
    squares = np.sort(spreads[spreads > 0]) ** 2
    if len(squares) < 2:
        return 1.0
    return float(squares[: len(squares) // 2].sum() / squares.sum())


def _percentiles(inputs: Floats32) -> tuple[Floats, Floats]:
    step = max(-(-len(inputs) // MOST_ROWS), -(-inputs.size // MOST_NUMBERS))
    low, high = np.percentile(inputs[::step].astype(np.float64), TAILS, axis=0)
    return low, high
