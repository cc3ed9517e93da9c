"""Scaled: each feature in units of its own spread, for tables of unlike features.

A distance adds up squared differences, so a feature in square millimeters drowns out one between 0
and 1. Here each is divided by its scale, the larger of

    IQR / 1.349   the interquartile range, which for a normal distribution is 1.349 σ;
    m             the median of |x - median| over the samples that differ from the median.

Neither minds a few outliers. The first counts for features that
vary smoothly. The second counts where most values are equal: a flag then has the scale 1, rare or
not, where the IQR of a rare one would be 0 and its standard deviation so small that the flag
outweighs everything else; and an amount that is mostly 0 has the scale of the typical amount.

A feature that is constant in training has no scale, yet a query that differs there is new and must
not look familiar: it gets the smallest scale of all features. That is strict and costs little: if
n samples agree, a further one differs with probability below 3/n, at 95% confidence. If all
features are constant their scales are 1.

Medians are subtracted in float64, before the points are rounded to float32. Distances do not
depend on it, but the rounding does: of a timestamp only what varies is left. Points beyond the
range of float32 are moved to its ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.errors import InputError
from iknow.metrics.lipschitz import FLOAT32_ROUNDING, FLOAT64_ROUNDING, ROUND_UP, as_matrix
from iknow.metrics.metric import Metric, not_fitted
from iknow.metrics.rows import in_parts

NORMAL_IQR = 1.3489795003921634  # the interquartile range of the standard normal distribution
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False, repr=False)
class Scaled(Metric):
    """The ℓ2 distance of features divided by robust scales, |(a - b) / scale|₂.

    `fit` finds center and scale, as the module explains; until then they are empty.

    Attributes:
        center: Of shape (n_features,).
        scale: Of shape (n_features,), positive.

    Examples:
        >>> table = [[1, 0.001], [2, 0.003], [3, 0.005], [4, 0.002], [5, 0.004]]
        >>> metric = Scaled().fit(table, [0, 0, 0, 0, 0])
        >>> (metric.scale[0] / metric.scale[1]).round(6)
        np.float64(1000.0)
    """

    center: Floats = field(default_factory=lambda: np.empty(0))
    scale: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        for name in ("center", "scale"):
            values = as_matrix([getattr(self, name)], f"the {name} of a scaled metric")[0]
            values.flags.writeable = False
            object.__setattr__(self, name, values)
        if self.center.shape != self.scale.shape or not (self.scale > 0).all():
            raise InputError(
                "a scaled metric needs a center and a positive scale for each feature; got shapes "
                f"{self.center.shape} and {self.scale.shape}, the smallest scale "
                f"{self.scale.min(initial=np.inf):.3g}"
            )

    @property
    def p(self) -> float:  # type: ignore[override]
        return 2.0

    @property
    def width(self) -> int:
        return len(self.center)

    def fit(self, activations: Any, labels: Any) -> Scaled:
        values = np.asarray(activations)
        if values.ndim != 2 or not values.size:
            raise InputError(
                f"scales need activations of shape (n, n_features); got {values.shape}"
            )
        columns = (values[:, j : j + 1] for j in range(values.shape[1]))
        center, scale = np.array([find_spread(column) for column in columns]).T
        varies = scale > 0
        scale[~varies] = scale[varies].min(initial=np.inf) if varies.any() else 1.0
        return Scaled(center, scale)

    def transform(self, activations: Any) -> Any:
        if not len(self.center):
            raise not_fitted(self)
        return in_parts(self._scale, activations, len(self.center))

    def _scale(self, values: Floats) -> Floats:
        with np.errstate(over="ignore"):
            points: Floats = (values - self.center) / self.scale
        return np.clip(points, -LARGEST, LARGEST, out=points)

    def restore(self, points: Any) -> Any:
        return in_parts(lambda part: part * self.scale + self.center, points, len(self.center))

    def expansion(self, n_features: int) -> float:
        if not len(self.center):
            raise not_fitted(self)
        return float(1 / self.scale.min()) * ROUND_UP

    def rounding(self, n_features: int) -> float:
        return 0.0  # see relative_rounding: only what is left of an activation is rounded

    def relative_rounding(self, n_features: int) -> float:
        return (FLOAT32_ROUNDING + 4 * FLOAT64_ROUNDING) * ROUND_UP

    def to_dict(self) -> dict[str, Any]:
        return {"metric": type(self).__name__}

    def arrays(self) -> dict[str, Floats]:
        return {"center": self.center, "scale": self.scale} if len(self.center) else {}

    def __repr__(self) -> str:
        return f"Scaled({len(self.center)} features)" if len(self.center) else "Scaled()"


def find_spread(feature: Any) -> tuple[float, float]:
    """The median and the scale of one feature, of shape (n, 1); the scale is 0 if it is constant.

    Quantiles are values that occur: between two of them a flag would have a tiny spread.
    """
    column = as_matrix(feature, "activations").ravel()
    low, center, high = np.quantile(column, [0.25, 0.5, 0.75], method="inverted_cdf")
    apart = np.abs(column - center)
    apart = apart[apart > 0]
    if not len(apart):
        return float(center), 0.0
    return float(center), max(float(high - low) / NORMAL_IQR, float(np.median(apart)))
