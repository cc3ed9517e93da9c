"""Perturbations: inputs with noise, to see what is still known when the world drifts.

Both return an array like X, of the same shape and dtype. `limits` are the smallest and the largest
value an input can have, such as (0, 1) for an image; what the noise carries past them is clipped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats

Limits = tuple[float, float]


def add_gaussian(
    X: NDArray[Any], deviation: float, rng: np.random.Generator, limits: Limits | None = None
) -> NDArray[Any]:
    """Add normal noise of a standard deviation to every value of X, of shape (n, ...)."""
    return _add(X, deviation * rng.standard_normal(X.shape), limits)


def add_uniform(
    X: NDArray[Any], amplitude: float, rng: np.random.Generator, limits: Limits | None = None
) -> NDArray[Any]:
    """Add noise from [-amplitude, amplitude] to every value of X, of shape (n, ...)."""
    return _add(X, rng.uniform(-amplitude, amplitude, X.shape), limits)


def _add(X: NDArray[Any], noise: Floats, limits: Limits | None) -> NDArray[Any]:
    perturbed = X + noise
    if limits is not None:
        np.clip(perturbed, *limits, out=perturbed)
    return perturbed.astype(X.dtype)
