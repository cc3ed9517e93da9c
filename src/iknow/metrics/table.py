"""Tables: each feature in units of its own spread, and gaps as a dimension of their own.

A distance adds up squared differences, so a feature in square millimeters drowns out one between 0
and 1. `Scaled` divides each by its scale, the larger of

    IQR / 1.349   the interquartile range, which for a normal distribution is 1.349 σ;
    m             the median of |x - median| over the samples that differ from the median.

Neither minds a few outliers. The second counts where most values are equal: a flag has the scale 1,
rare or not, where its IQR would be 0 and its standard deviation so small that it outweighs
everything else; and an amount that is mostly 0 has the scale of the typical amount.

A feature that is constant in training has no scale, yet a query that differs there is new and must
not look familiar: it gets the smallest scale of all features, or 1 if all are constant. That costs
little: if n samples agree, a further one differs with probability below 3/n, at 95% confidence.

Medians are subtracted in float64, before the points are rounded to float32: of a timestamp only
what varies is left. Points beyond the range of float32 are moved to its ends.

`Table` does the same where values are missing. Its activations hold d values, 0 where one is
missing, and then d flags, 1 where one is missing. Median and scale are those of the training values
that are there. A missing one lies at the median, and its flag adds a dimension: samples that lack
the same value agree about it, and one that has it is √(1 + ((x - median) / scale)²) away from one
that lacks it. Where no training sample lacks a value, a sample that does is new: its flag counts as
`NEW`, further than any ordinary sample, so that it fails closed. Flags jump, so no robust radius
rests on a `Table`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.errors import InputError
from iknow.metrics.lipschitz import FLOAT32_ROUNDING, FLOAT64_ROUNDING, ROUND_UP, as_matrix
from iknow.metrics.metric import Metric, check_fitted, in_parts, register_metric

NORMAL_IQR = 1.3489795003921634  # the interquartile range of the standard normal distribution
LARGEST = float(np.finfo(np.float32).max)
NEW = 1e6  # how far a gap is where training has none


@register_metric
@dataclass(frozen=True, eq=False, repr=False)
class Scaled(Metric):
    """The ℓ2 distance of features divided by robust scales, |(a - b) / scale|₂.

    `fit` finds `center` and `scale`, both of shape (n_features,); until then they are empty.

    Examples:
        >>> table = [[1, 0.001], [2, 0.003], [3, 0.005], [4, 0.002], [5, 0.004]]
        >>> metric = Scaled().fit(table, [0, 0, 0, 0, 0])
        >>> (metric.scale[0] / metric.scale[1]).round(6)
        np.float64(1000.0)
    """

    center: Floats = field(default_factory=lambda: np.empty(0))
    scale: Floats = field(default_factory=lambda: np.empty(0))
    p = 2.0

    def __post_init__(self) -> None:
        kind, names = type(self).__name__, [each.name for each in fields(self)]
        for name in names:
            values = as_matrix([getattr(self, name)], f"the {name} of the metric {kind}")[0]
            values.flags.writeable = False
            object.__setattr__(self, name, values)
        shapes = [getattr(self, name).shape for name in names]
        least = min(getattr(self, name).min(initial=np.inf) for name in names[1:])
        if len(set(shapes)) > 1 or least <= 0:
            raise InputError(
                f"the metric {kind} needs a {', a positive '.join(names)} for each feature; got "
                f"shapes {' and '.join(map(str, shapes))}, the smallest {' or '.join(names[1:])} "
                f"{least:.3g}"
            )

    @property
    def width(self) -> int:
        return len(self.center)

    def fit(self, activations: Any, labels: Any) -> Scaled:
        values = np.asarray(activations)
        if values.ndim != 2 or not values.size:
            raise InputError(
                f"scales need activations of shape (n, n_features); got {values.shape}"
            )
        return Scaled(*_find_spreads(values.T))

    def transform(self, activations: Any) -> Any:
        check_fitted(self)
        return in_parts(self._scale, activations, self.width)

    def _scale(self, values: Floats) -> Floats:
        with np.errstate(over="ignore"):
            points: Floats = (values - self.center) / self.scale
        return np.clip(points, -LARGEST, LARGEST, out=points)

    def restore(self, points: Any) -> Any:
        return in_parts(lambda part: part * self.scale + self.center, points, len(self.center))

    def expansion(self, n_features: int) -> float:
        check_fitted(self)
        return float(1 / self.scale.min()) * ROUND_UP

    def rounding(self, n_features: int) -> float:
        return 0.0  # see relative_rounding: only what is left of an activation is rounded

    def relative_rounding(self, n_features: int) -> float:
        return (FLOAT32_ROUNDING + 4 * FLOAT64_ROUNDING) * ROUND_UP


@register_metric
@dataclass(frozen=True, eq=False, repr=False)
class Table(Scaled):
    """The ℓ2 distance of scaled values and of the flags of missing ones.

    `fit` finds `center` and `scale` of the d values and `weight` of the d flags, each of shape
    (d,); until then they are empty.

    Examples:
        >>> table = [[1, 0], [2, 0], [3, 0], [0, 1]]  # the last value is missing
        >>> Table().fit(table, [0, 0, 0, 0]).transform([[2, 0], [0, 1]])
        array([[0., 0.],
               [0., 1.]])
    """

    weight: Floats = field(default_factory=lambda: np.empty(0))

    @property
    def width(self) -> int:
        return 2 * len(self.center)

    def fit(self, activations: Any, labels: Any) -> Table:
        table = np.asarray(activations)
        if table.ndim != 2 or not table.size or table.shape[1] % 2:
            raise InputError(
                "the metric Table needs activations of shape (n, 2 d), d values and the d flags of "
                f"missing ones; got {table.shape}"
            )
        values, flags = np.split(table, 2, axis=1)
        missing = flags != 0
        there = (column[~gaps] for column, gaps in zip(values.T, missing.T, strict=True))
        return Table(*_find_spreads(there), np.where(missing.any(axis=0), 1.0, NEW))

    def _scale(self, values: Floats) -> Floats:
        numbers, flags = np.split(values, 2, axis=1)
        scaled = np.where(flags != 0, 0.0, super()._scale(numbers))
        return np.column_stack([scaled, flags * self.weight])

    def restore(self, points: Any) -> Any:
        return None  # a gap is no number

    def expansion(self, n_features: int) -> float:
        return math.inf


def _find_spreads(features: Iterable[Any]) -> tuple[Floats, Floats]:
    """The medians and the scales of features, each the values of shape (n,) that are there."""
    center, scale = np.array([_find_spread(feature) for feature in features]).T
    varies = scale > 0
    scale[~varies] = scale[varies].min() if varies.any() else 1.0
    return center, scale


def _find_spread(feature: Any) -> tuple[float, float]:
    """The median and the scale of one feature; the scale is 0 if it is constant.

    Quantiles are values that occur: between two of them a flag would have a tiny spread. A value
    that is never there has no spread; should it be there once, that is new.
    """
    column = as_matrix(feature[:, None], "activations").ravel()
    if not len(column):
        return 0.0, 0.0
    low, center, high = np.quantile(column, [0.25, 0.5, 0.75], method="inverted_cdf")
    apart = np.abs(column - center)
    apart = apart[apart > 0]
    if not len(apart):
        return float(center), 0.0
    return float(center), max(float(high - low) / NORMAL_IQR, float(np.median(apart)))
