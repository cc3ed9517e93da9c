"""Lists of neighbors, as other libraries return them → which classes are among them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Bools, Ints


def support_of_lists(neighbors: Sequence[NDArray[np.intp]], labels: Ints, n_classes: int) -> Bools:
    """A mask of shape (n_queries, n_classes) from the rows near each query."""
    sizes = [len(rows) for rows in neighbors]
    support = np.zeros((len(neighbors), n_classes), dtype=bool)
    if any(sizes):
        query = np.repeat(np.arange(len(neighbors)), sizes)
        support[query, labels[np.concatenate(neighbors)]] = True
    return support
