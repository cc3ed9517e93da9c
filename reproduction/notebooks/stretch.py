"""How much a network of dense layers stretches a radius, from the input to each layer.

The notebooks take the largest singular value of the product W_1 W_2 ⋯ W_i, as the paper's
supplement does. With ReLUs between the matrices that is no bound (see `iknow.metrics.lipschitz`);
the product of their largest singular values is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.metrics.lipschitz import spectral_norm


def product_norms(weights: Mapping[str, Floats]) -> dict[str, float]:
    """The norms of the products, by layer, of weights of shape (n_inputs, n_outputs)."""
    norms: dict[str, float] = {}
    product: Any = None
    for layer, matrix in weights.items():
        product = matrix if product is None else product @ matrix
        norms[layer] = float(np.linalg.norm(product, 2))
    return norms


def norm_products(weights: Mapping[str, Floats]) -> dict[str, float]:
    """The products of the norms, by layer, of weights of shape (n_inputs, n_outputs)."""
    norms = accumulate(map(spectral_norm, weights.values()), mul)
    return dict(zip(weights, norms, strict=True))
