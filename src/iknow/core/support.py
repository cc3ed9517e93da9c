"""Support: which classes have enough training samples within reach, in one layer; and the
justification, what the layers' supports add up to.

Enough is one, or a quorum (`iknow.core.quorum`).

The tie rule: the ball is closed. A sample at exactly the reach counts, and so do all samples tied
with the k-th neighbor. A support therefore never depends on the order of the training set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.evidence import Evidence
from iknow.core.quorum import weigh
from iknow.errors import InputError

if TYPE_CHECKING:
    from iknow.core.rule import Rule


def find_support(evidence: Evidence, rule: Rule, belief: Ints | None = None) -> Bools:
    """Return the support S(x) = { c : d_c <= ρ(x) } as a mask of shape (n_queries, n_classes).

    belief: class codes of shape (n_queries,), for rules that depend on it; by default the nearest
    class of each query.

    Examples:
        >>> find_support(a.evidence["input"], a.neighborhoods["input"]).shape
        (75, 3)
    """
    weighed = weigh(evidence, rule.quorum, belief)
    reach = rule.reach(weighed)
    return within(weighed.distances[:, :, 0], reach if reach.ndim == 2 else reach[:, None])


def within(distances: Floats, reach: Floats | float) -> Bools:
    """Which distances are within reach; never inf, that of a class without training samples."""
    counted: Bools = distances <= reach
    return counted & np.isfinite(distances)


def justify(supports: Sequence[Bools]) -> Bools:
    """Return the union of the layers' supports, or nothing if any layer's support is empty.

    There is one mask of shape (n_queries, n_classes) per layer; the result has the same shape.

    Examples:
        >>> justify([np.array([[True, False]]), np.array([[True, True]])])
        array([[ True,  True]])
    """
    if not supports:
        raise InputError("a justification needs the support of at least one layer; got none")
    shapes = set(map(np.shape, supports))
    if len(shapes) > 1:
        raise InputError(f"supports must share a shape; got {', '.join(map(str, sorted(shapes)))}")
    stacked = np.stack(supports)
    every_layer_found_some = stacked.any(axis=2, keepdims=True).all(axis=0)
    return np.asarray(stacked.any(axis=0) & every_layer_found_some)
