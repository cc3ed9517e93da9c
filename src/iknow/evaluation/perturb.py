"""Perturbations: inputs with noise, to see what is still known when the world drifts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats

Limits = tuple[float, float]


def add_gaussian(
    X: NDArray[Any], deviation: float, rng: np.random.Generator, limits: Limits | None = None
) -> NDArray[Any]:
    """Add normal noise to every value, and return an array of the same shape and dtype.

    Args:
        X: Inputs of shape (n, ...).
        deviation: Standard deviation of the noise.
        rng: Source of randomness.
        limits: Smallest and largest value an input can have, such as (0, 1) for an image; values
            beyond them are clipped.

    Examples:
        >>> add_gaussian(np.zeros((1, 3)), 0.1, np.random.default_rng(0)).round(3)
        array([[ 0.013, -0.013,  0.064]])
    """
    return _add(X, deviation * rng.standard_normal(X.shape), limits)


def add_uniform(
    X: NDArray[Any], amplitude: float, rng: np.random.Generator, limits: Limits | None = None
) -> NDArray[Any]:
    """Add uniform noise to every value, and return an array of the same shape and dtype.

    Args:
        X: Inputs of shape (n, ...).
        amplitude: The noise is drawn from [-amplitude, amplitude].
        rng: Source of randomness.
        limits: Smallest and largest value an input can have; values beyond them are clipped.

    Examples:
        >>> add_uniform(np.zeros((1, 3)), 0.1, np.random.default_rng(0), limits=(0, 1)).round(3)
        array([[0.027, 0.   , 0.   ]])
    """
    return _add(X, rng.uniform(-amplitude, amplitude, X.shape), limits)


def _add(X: NDArray[Any], noise: Floats, limits: Limits | None) -> NDArray[Any]:
    perturbed = X + noise
    if limits is not None:
        np.clip(perturbed, *limits, out=perturbed)
    return perturbed.astype(X.dtype)
