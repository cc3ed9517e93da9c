"""Gapped: each feature in units of its own spread, in tables with missing values.

The activations hold d values, 0 where one is missing, and then d flags, 1 where one is missing. A
value that is there is measured as `Scaled` does, from the median in units of its spread, both of
the training values that are there. A missing one lies at the median, and its flag adds a dimension
of its own: samples that lack the same value agree about it, and one that has it is

    √(1 + ((x - median) / scale)²)

away from one that lacks it: a little further than the median itself.

Where no training sample lacks a value, a sample that does is new, whatever it looks like. Its flag
counts as `NEW`, further than any ordinary sample, so that it fails closed.

Flags jump, so no constant bounds how far an activation can move: no robust radius rests on this
metric.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.errors import InputError
from iknow.metrics.lipschitz import FLOAT32_ROUNDING, ROUND_UP, as_matrix
from iknow.metrics.metric import Metric, not_fitted
from iknow.metrics.rows import in_parts
from iknow.metrics.scaled import LARGEST, find_spread

NEW = 1e6


@dataclass(frozen=True, eq=False, repr=False)
class Gapped(Metric):
    """The ℓ2 distance of scaled values and of the flags of missing ones.

    `fit` finds centers, scales and weights, as the module explains; until then they are empty.

    Attributes:
        center: Of the d values, of shape (d,).
        scale: Of the d values, positive.
        weight: Of the d flags, positive.

    Examples:
        >>> table = [[1, 0], [2, 0], [3, 0], [0, 1]]  # the last value is missing
        >>> Gapped().fit(table, [0, 0, 0, 0]).transform([[2, 0], [0, 1]])
        array([[0., 0.],
               [0., 1.]])
    """

    center: Floats = field(default_factory=lambda: np.empty(0))
    scale: Floats = field(default_factory=lambda: np.empty(0))
    weight: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        for name in ("center", "scale", "weight"):
            values = as_matrix([getattr(self, name)], f"the {name} of a gapped metric")[0]
            values.flags.writeable = False
            object.__setattr__(self, name, values)
        shapes = {self.center.shape, self.scale.shape, self.weight.shape}
        if len(shapes) > 1 or not ((self.scale > 0).all() and (self.weight > 0).all()):
            raise InputError(
                "a gapped metric needs a center, a positive scale and a positive weight for each "
                f"value; got shapes {', '.join(map(str, shapes))}"
            )

    @property
    def p(self) -> float:  # type: ignore[override]
        return 2.0

    @property
    def width(self) -> int:
        return 2 * len(self.center)

    def fit(self, activations: Any, labels: Any) -> Gapped:
        table = np.asarray(activations)
        if table.ndim != 2 or not table.size or table.shape[1] % 2:
            raise InputError(
                "a gapped metric needs activations of shape (n, 2 d), d values and the d flags of "
                f"missing ones; got {table.shape}"
            )
        values, missing = np.split(table, 2, axis=1)
        missing = missing != 0
        # A value that is never there has no spread; should it be there once, that is new.
        spreads = [
            find_spread(column[~gaps, None]) if not gaps.all() else (0.0, 0.0)
            for column, gaps in zip(values.T, missing.T, strict=True)
        ]
        center, scale = np.array(spreads).T
        varies = scale > 0
        scale[~varies] = scale[varies].min(initial=np.inf) if varies.any() else 1.0
        return Gapped(center, scale, np.where(missing.any(axis=0), 1.0, NEW))

    def transform(self, activations: Any) -> Any:
        if not len(self.center):
            raise not_fitted(self)
        return in_parts(self._scale, activations, self.width)

    def _scale(self, table: Floats) -> Floats:
        values, flags = np.split(table, 2, axis=1)
        with np.errstate(over="ignore"):
            scaled = np.where(flags != 0, 0.0, (values - self.center) / self.scale)
            points = np.column_stack([scaled, flags * self.weight])
        return np.clip(points, -LARGEST, LARGEST, out=points)

    def expansion(self, n_features: int) -> float:
        return math.inf

    def rounding(self, n_features: int) -> float:
        return 0.0  # see relative_rounding

    def relative_rounding(self, n_features: int) -> float:
        return 2 * FLOAT32_ROUNDING * ROUND_UP

    def to_dict(self) -> dict[str, Any]:
        return {"metric": type(self).__name__}

    def arrays(self) -> dict[str, Floats]:
        names = ("center", "scale", "weight")
        return {name: getattr(self, name) for name in names} if len(self.center) else {}

    def __repr__(self) -> str:
        return f"Gapped({len(self.center)} values)" if len(self.center) else "Gapped()"
