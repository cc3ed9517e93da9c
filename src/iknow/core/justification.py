"""Justification: what the layers' supports add up to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from iknow.core.arrays import Bools
from iknow.errors import InputError


def justify(supports: Sequence[Bools]) -> Bools:
    """Return the union of the layers' supports, or nothing if any layer's support is empty.

    Args:
        supports: One mask of shape (n_queries, n_classes) per layer; the result has the same shape.

    Examples:
        >>> justify([np.array([[True, False]]), np.array([[True, True]])])
        array([[ True,  True]])
    """
    if not supports:
        raise InputError("a justification needs the support of at least one layer; got none")
    shapes = {support.shape for support in supports}
    if len(shapes) > 1:
        raise InputError(f"supports must share a shape; got {', '.join(map(str, sorted(shapes)))}")
    stacked = np.stack(list(supports))
    every_layer_found_some: Bools = np.logical_and.reduce(stacked.any(axis=2), axis=0)
    return stacked.any(axis=0) & every_layer_found_some[:, None]
