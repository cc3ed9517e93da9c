"""Noise: what the paper adds to test inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from iknow.core.arrays import Floats
from iknow.core.rule import Limits


def add_gaussian(
    X: NDArray[Any], deviation: float, rng: Generator, limits: Limits | None = None
) -> NDArray[Any]:
    """Add normal noise of a standard `deviation` to every value of `X`, keeping shape and dtype.

    Values beyond `limits`, the smallest and largest that an input can have, such as (0, 1) for an
    image, are clipped. `rng`: source of randomness.

    Examples:
        >>> add_gaussian(np.zeros((1, 3)), 0.1, np.random.default_rng(0)).round(3)
        array([[ 0.013, -0.013,  0.064]])
    """
    return _add(X, deviation * rng.standard_normal(X.shape), limits)


def add_uniform(
    X: NDArray[Any], amplitude: float, rng: Generator, limits: Limits | None = None
) -> NDArray[Any]:
    """Add noise drawn evenly from -`amplitude` to `amplitude` to every value of `X`.

    `rng` and `limits` are those of `add_gaussian`.

    Examples:
        >>> add_uniform(np.zeros((1, 3)), 0.1, np.random.default_rng(0), limits=(0, 1)).round(3)
        array([[0.027, 0.   , 0.   ]])
    """
    return _add(X, rng.uniform(-amplitude, amplitude, X.shape), limits)


def _add(X: NDArray[Any], noise: Floats, limits: Limits | None) -> NDArray[Any]:
    perturbed = X + noise
    return (perturbed if limits is None else np.clip(perturbed, *limits)).astype(X.dtype)
