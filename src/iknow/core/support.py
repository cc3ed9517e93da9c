"""Support: which classes have enough training samples within reach, in one layer.

Enough is one, or a quorum (`iknow.core.quorum`).

The tie rule: the ball is closed. A sample at exactly the reach counts, and so do all samples tied
with the k-th neighbor. A support therefore never depends on the order of the training set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.evidence import Evidence
from iknow.core.quorum import weigh

if TYPE_CHECKING:
    from iknow.core.rule import Rule


def find_support(evidence: Evidence, rule: Rule, belief: Ints | None = None) -> Bools:
    """Return the support S(x) = { c : d_c <= ρ(x) } as a mask of shape (n_queries, n_classes).

    Args:
        evidence: Evidence about the queries, in one layer.
        rule: The rule that gives the reach ρ(x), and the quorum.
        belief: Class codes of shape (n_queries,), for rules that depend on it. Default: the nearest
            class of each query.

    Examples:
        >>> find_support(a.evidence["input"], a.neighborhoods["input"]).shape
        (75, 3)
    """
    weighed = weigh(evidence, rule.quorum, belief)
    reach = rule.reach(weighed)
    return within(weighed.class_distances, reach if reach.ndim == 2 else reach[:, None])


def within(distances: Floats, reach: Floats | float) -> Bools:
    """Which of the distances, of shape (n_queries, n_classes) or any other, are within reach.

    A class without training samples is at distance inf and never counts, even if the reach is inf.
    """
    counted: Bools = distances <= reach
    return counted & np.isfinite(distances)
