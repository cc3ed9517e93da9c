"""The paper's weighted metric: distances in a layer, measured in units of the input.

With W̃ = W_1 W_2 ⋯ W_i (each of shape (n_inputs, n_outputs), h = Wᵀx + b) and its singular value
decomposition W̃ = U Σ Vᵀ, cut to the r nonzero singular values, the paper has two versions. For a
linear network, where h(x) - h(z) = W̃ᵀδ with δ = x - z, they measure

    new       D = V Λ⁻¹ Vᵀ = V Σ⁻² Vᵀ         |Uᵀδ|, the part of δ that the layer can see: <= |δ|
    previous  D = W̃ᵀ U Λ⁻¹ Uᵀ W̃ = V Vᵀ       |Σ Uᵀδ| = |h(x) - h(z)|₂, the plain ℓ2 distance

The previous version weights nothing, and its claimed bound, distance <= |δ|, holds only if
|W̃|₂ <= 1. So we offer only the new version.

With ReLU the claimed bound fails for the new version too: relu has Lipschitz constant 1 in ℓ2, but
may lengthen a difference as D measures it. For W = [[1, 1], [0, t]] and b = (0, -2), the inputs
(0, 0) and (1, 0) are 1 apart, but relu gives (0, 0) and (1, 0), which are √(1 + 1/t²) apart under
D: no constant factor repairs it. The bound does hold before the first activation function, and for
one layer with ReLU whose W has orthogonal columns, which makes D diagonal. With the layer's ℓ2
Lipschitz constant L, `metric.expansion(n)` · L · |δ| always bounds the distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.errors import InputError
from iknow.metrics.lipschitz import (
    FLOAT32_ROUNDING,
    FLOAT64_ROUNDING,
    ROUND_UP,
    as_matrix,
    spectral_norm,
)
from iknow.metrics.metric import Metric, check_fitted, in_parts, register_metric


@register_metric
@dataclass(frozen=True, eq=False, repr=False)
class Weighted(Metric):
    """The distance |(a - b) @ map|₂, with a `map` of shape (n_features, m): D = map mapᵀ.

    Examples:
        >>> Weighted(np.diag([1.0, 2.0])).distances([[0, 0]], [[0, 3]])
        array([[6.]])
    """

    map: Floats
    p = 2.0

    def __post_init__(self) -> None:
        values = as_matrix(self.map, "the map of a weighted metric")
        values.flags.writeable = False
        object.__setattr__(self, "map", values)

    @property
    def width(self) -> int:
        return int(self.map.shape[1])

    def transform(self, activations: Any) -> Any:
        check_fitted(self)
        return in_parts(lambda values: values @ self.map, activations, len(self.map))

    def expansion(self, n_features: int) -> float:
        check_fitted(self)
        return spectral_norm(self.map)

    def rounding(self, n_features: int) -> float:
        check_fitted(self)
        # |a| @ |map| bounds the sums in any order, and is at most |a|₂ times this norm.
        size = float(np.linalg.norm(self.map))
        return (FLOAT32_ROUNDING + 2 * (len(self.map) + 1) * FLOAT64_ROUNDING) * size * ROUND_UP


def weighted_metric(weights: Sequence[Any], rank_tolerance: float | None = None) -> Weighted:
    """Return the metric of the layer that the weights W_1, ..., W_i lead to: its map is V Σ⁻¹.

    `weights` have shape (n_inputs, n_outputs), first layer first: the transpose of what a torch
    Linear stores. Singular values up to the share `rank_tolerance` of the largest count as 0, which
    only makes distances smaller; by default numpy's rule for float64 says which.

    Examples:
        >>> weighted_metric([np.diag([2.0, 4.0])]).map.shape
        (2, 2)
    """
    matrices = [as_matrix(w, f"weight matrix {i + 1}") for i, w in enumerate(weights)]
    if not matrices:
        raise InputError("a weighted metric needs at least one weight matrix; got none")
    for i, (left, right) in enumerate(pairwise(matrices)):
        if left.shape[1] != right.shape[0]:
            raise InputError(
                f"weight matrices of shape (n_inputs, n_outputs) must chain; matrix {i + 1} has "
                f"shape {left.shape}, matrix {i + 2} {right.shape}: transpose weights from torch"
            )
    product = reduce(np.matmul, matrices)
    _, sizes, v_transposed = np.linalg.svd(product, full_matrices=False)
    if rank_tolerance is None:
        rank_tolerance = max(product.shape) * float(np.finfo(np.float64).eps)
    kept = (sizes > rank_tolerance * sizes.max(initial=0.0)) & (sizes > 0)
    if not kept.any():
        raise InputError(
            f"the product of the {len(matrices)} weight matrices is 0: the layer does not depend "
            "on the input, so it has no weighted metric"
        )
    return Weighted(v_transposed[kept].T / sizes[kept])
