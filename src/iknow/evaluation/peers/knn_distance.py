"""k-NN distance: how far away the k-th nearest training sample is, whatever its class.

Sun and others, "Out-of-Distribution Detection with Deep Nearest Neighbors" (ICML 2022): with
activations scaled to length 1,

    score = -|z - z_(k)|

where z_(k) is the k-th nearest training activation. k = 50 is the paper's choice for the 50,000
images of CIFAR-10; with fewer than 50 training samples it is their number.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats
from iknow.core.scalars import as_whole
from iknow.evaluation.peers.observed import Layer, Observed
from iknow.search.cells import CpuIndex
from iknow.search.index import IndexFactory


class KNNDistance:
    """Scores an answer by the distance to the k-th nearest training sample, negated.

    Args:
        k: Which neighbor.
        layer: "hidden" or "input".
        index: The index to search with, such as one on another device.

    Examples:
        >>> bool((KNNDistance(k=5).fit(training, validation).score(test) <= 0).all())
        True
    """

    def __init__(
        self, k: int = 50, layer: Layer = "hidden", *, index: IndexFactory = CpuIndex
    ) -> None:
        self.k = as_whole(k, "k", "be a whole number >= 1")
        self.layer: Layer = layer
        self.index = index
        self.name = "k-NN distance" if layer == "hidden" else f"k-NN distance ({layer})"

    def fit(self, training: Observed, validation: Observed) -> Self:
        """Store the activations of `training`; `validation` does not matter."""
        points = unit(training.layer(self.layer))
        self._n_rows = len(points)
        self._index = self.index(points, np.zeros(len(points), dtype=np.int64), 1)
        return self

    def score(self, observed: Observed) -> Floats:
        """Return a score for each sample of `observed`, of shape (n,)."""
        k = min(self.k, self._n_rows)
        return -self._index.gather(unit(observed.layer(self.layer)), k).neighbor_distance(k)


def unit(points: NDArray[Any]) -> Floats:
    """Rows scaled to length 1; a row of zeros stays."""
    lengths = np.linalg.norm(points.astype(np.float64), axis=1, keepdims=True)
    scaled: Floats = points / np.maximum(lengths, 1e-12)
    return scaled
