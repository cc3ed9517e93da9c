"""The few statistics that the tables need."""

from __future__ import annotations

import math
from collections.abc import Sequence

from iknow.errors import InputError


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the values do not exceed.

    It is one of the values: a tail is not softened by interpolation.
    """
    if not values or not 0 < percent <= 100:
        raise InputError(
            f"a percentile needs values and a percentage in (0, 100]; got {len(values)} values and "
            f"{percent}"
        )
    return sorted(values)[math.ceil(percent / 100 * len(values)) - 1]


def growth_exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of log cost against log size, by least squares: 1 is linear, 0 is constant."""
    if len(sizes) != len(costs) or len(set(sizes)) < 2:
        raise InputError(
            f"growth needs costs at two sizes or more; got {len(sizes)} sizes, {len(costs)} costs"
        )
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    spread = sum((each - x_mean) ** 2 for each in x)
    return sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True)) / spread
