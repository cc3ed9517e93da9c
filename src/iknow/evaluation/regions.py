"""Regions: what is believed and asserted all over a plane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Codes, Floats, Ints, Labels
from iknow.errors import InputError
from iknow.explain.assessment import Assessment

Limits = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Regions:
    """Beliefs and assertions at the points of a grid; see `map_regions`.

    Attributes:
        x: Horizontal coordinates, ascending, of shape (w,).
        y: Vertical coordinates, ascending, of shape (h,).
        classes: Labels of shape (n_classes,).
        belief: Positions in `classes`, of shape (h, w).
        assertion: One `Assertion` per point, of shape (h, w).
    """

    x: Floats
    y: Floats
    classes: Labels
    belief: Ints
    assertion: Codes


def map_regions(
    assess: Callable[[Floats], Assessment],
    x_limits: Limits,
    y_limits: Limits,
    resolution: int = 300,
) -> Regions:
    """Assess the points of a grid over a plane.

    Args:
        assess: Assesses points of shape (n, 2), such as a fitted classifier's `assess`.
        x_limits: Smallest and largest horizontal coordinate.
        y_limits: Smallest and largest vertical coordinate.
        resolution: Number of points in each direction.

    Examples:
        >>> flat = EpistemicClassifier(LogisticRegression()).fit(X[:, :2], y)
        >>> map_regions(flat.assess, (4, 8), (2, 5), resolution=50).assertion.shape
        (50, 50)
    """
    if resolution < 2:
        raise InputError(f"resolution must be at least 2 places each way; got {resolution}")
    x, y = (_places(limits, resolution) for limits in (x_limits, y_limits))
    plane = assess(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2))
    return Regions(
        x=x,
        y=y,
        classes=plane.classes,
        belief=plane.belief_codes.reshape(resolution, resolution),
        assertion=plane.assertion.reshape(resolution, resolution),
    )


def _places(limits: Limits, resolution: int) -> Floats:
    low, high = limits
    if not low < high or not np.isfinite([low, high]).all():
        raise InputError(f"limits must be two finite numbers, the lower first; got {limits}")
    return np.linspace(low, high, resolution)
