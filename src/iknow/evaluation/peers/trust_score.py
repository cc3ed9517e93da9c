"""Trust Score: how much nearer the believed class is than the nearest other one.

Jiang and others, "To Trust Or Not To Trust A Classifier" (NeurIPS 2018):

    score = d_¬g / d_g

Each class is its training samples without the share α of lowest density, those with the largest
distance to their k-th nearest of the class (the sample itself is the first, as in the authors'
code). The default α = 0 keeps all, as theirs. At d_g = 0 the score is inf if d_¬g > 0, else 1: the
authors add 1e-12 to d_g, which differs only there.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.evidence import distances_for_and_against
from iknow.core.scalars import as_real, as_whole
from iknow.evaluation.peers.observed import Layer, Observed
from iknow.search.cells import CpuIndex
from iknow.search.index import IndexFactory


class TrustScore:
    """Scores an answer by the ratio of two distances.

    Args:
        layer: "hidden" or "input".
        alpha: Share of each class's samples to leave out as outliers.
        k: Which neighbor measures density.
        index: The index to search with, such as one on another device.

    Examples:
        >>> bool((TrustScore().fit(training, validation).score(test) >= 0).all())
        True
    """

    def __init__(
        self,
        layer: Layer = "hidden",
        alpha: float = 0.0,
        k: int = 10,
        *,
        index: IndexFactory = CpuIndex,
    ) -> None:
        self.layer: Layer = layer
        self.alpha = as_real(alpha, "alpha", "be at least 0 and below 1", lambda a: 0 <= a < 1)
        self.k = as_whole(k, "k", "be a whole number >= 1")
        self.index = index
        self.name = f"Trust Score ({layer})"

    def fit(self, training: Observed, validation: Observed) -> Self:
        """Store the dense part of `training`; `validation` does not matter."""
        points, truth = training.layer(self.layer), training.truth()
        kept = dense_rows(points, truth, self.k, self.alpha)
        self._index = self.index(points[kept], truth[kept], training.n_classes)
        return self

    def score(self, observed: Observed) -> Floats:
        """Return a score for each sample of `observed`, of shape (n,)."""
        evidence = self._index.gather(observed.layer(self.layer))
        own, other = distances_for_and_against(evidence, observed.belief)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = other / own
        return np.where((own == 0) & (other == 0), 1.0, np.where(np.isinf(own), 0.0, ratio))


def dense_rows(points: NDArray[Any], truth: Ints, k: int, alpha: float) -> Bools:
    """Which samples to keep, of shape (n,): those not among their class's least dense."""
    kept = np.ones(len(points), dtype=bool)
    for code in np.unique(truth) if alpha > 0 else ():
        rows = np.flatnonzero(truth == code)
        index = CpuIndex(points[rows], np.zeros(len(rows), dtype=np.int64), 1)
        nearest = min(k, len(rows))
        radii = index.gather(points[rows], nearest).neighbor_distance(nearest)
        kept[rows] = radii <= np.percentile(radii, 100 * (1 - alpha))
    return kept
