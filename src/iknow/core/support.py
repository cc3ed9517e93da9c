"""Support: which classes have a training sample within reach, in one layer."""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Bools
from iknow.core.evidence import Evidence
from iknow.core.neighborhood import Neighborhood


def find_support(evidence: Evidence, neighborhood: Neighborhood) -> Bools:
    """The support S(x) = { c : d_c <= ρ(x) } as a mask of shape (n_queries, n_classes).

    A class without training samples is at distance inf and never counts, even within an infinite
    reach.
    """
    reach = neighborhood.reach(evidence)
    distances = evidence.class_distances
    within: Bools = distances <= (reach if reach.ndim == 2 else reach[:, None])
    return within & np.isfinite(distances)
