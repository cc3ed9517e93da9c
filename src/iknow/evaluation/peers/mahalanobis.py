"""Mahalanobis: the distance to the nearest class mean, in units of the spread within classes.

Lee and others, "A Simple Unified Framework for Detecting Out-of-Distribution Samples and
Adversarial Attacks" (NeurIPS 2018), on one layer and without their input preprocessing:

    score = -min_c (h - μ_c)ᵀ Σ⁺ (h - μ_c)

with the class means μ_c and one covariance Σ of all samples around their class's mean. Σ⁺ is the
pseudoinverse, as in the authors' code: dead pixels and dead units have no say.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats
from iknow.evaluation.peers.observed import Layer, Observed


class Mahalanobis:
    """Scores an answer by the squared distance to the nearest class mean, negated.

    Args:
        layer: "hidden" or "input".

    Examples:
        >>> bool((Mahalanobis().fit(training, validation).score(test) <= 0).all())
        True
    """

    def __init__(self, layer: Layer = "hidden") -> None:
        self.layer: Layer = layer
        self.name = "Mahalanobis" if layer == "hidden" else f"Mahalanobis ({layer})"

    def fit(self, training: Observed, validation: Observed) -> Self:
        """Find means and covariance on `training`; `validation` does not matter."""
        points, truth = training.layer(self.layer).astype(np.float64), training.truth()
        present = np.unique(truth)
        means = np.stack([points[truth == code].mean(axis=0) for code in present])
        self._whiten = whitening(points - means[np.searchsorted(present, truth)])
        self._centers = means @ self._whiten
        return self

    def score(self, observed: Observed) -> Floats:
        """Return a score for each sample of `observed`, of shape (n,)."""
        white = observed.layer(self.layer).astype(np.float64) @ self._whiten
        squares = [((white - center) ** 2).sum(axis=1) for center in self._centers]
        nearest: Floats = np.min(squares, axis=0)
        return -nearest


def whitening(residuals: NDArray[Any]) -> Floats:
    """The matrix W with W Wᵀ = Σ⁺, of shape (n_features, rank), for centered samples."""
    values, vectors = np.linalg.eigh(residuals.T @ residuals / len(residuals))
    # The usual cutoff of a pseudoinverse: what is below it is rounding.
    real = values > values.max() * len(values) * np.finfo(np.float64).eps
    whiten: Floats = vectors[:, real] / np.sqrt(values[real])
    return whiten
