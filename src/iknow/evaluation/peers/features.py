"""Peers that look at where a sample lies in a layer: Mahalanobis and ViM.

Mahalanobis: the distance to the nearest class mean, in units of the spread within classes.

Lee and others, "A Simple Unified Framework for Detecting Out-of-Distribution Samples and
Adversarial Attacks" (NeurIPS 2018), on one layer and without their input preprocessing:

    score = -min_c (h - μ_c)ᵀ Σ⁺ (h - μ_c)

with the class means μ_c and one covariance Σ of all samples around their class's mean. Σ⁺ is the
pseudoinverse, as in the authors' code: dead pixels and dead units have no say.

ViM: energy minus a virtual logit, the part of the features that training data hardly uses.

Wang and others, "ViM: Out-Of-Distribution with Virtual-logit Matching" (CVPR 2022). With logits
W h + b, features are centered at o = -W⁺ b; the principal subspace is spanned by the first D
eigenvectors of their second moments on training data, and r(h) is what h - o has outside of it:

    score = log Σ_c exp(l_c) - α |r(h)|,    α = mean of max_c l_c / mean of |r|, on training data

The paper takes D = 1000 of 2048 features and 512 of 768; here it is half of them. Without the
weights of the last layer, least squares of logits on features finds them: exactly, as the logits
are linear in the features, except for what no training sample ever shows.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from iknow.core.arrays import Floats
from iknow.evaluation.peers.peer import Layer, Observed


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


ROUNDING = 1e-6
"""Singular values below this share of the largest are rounding: networks compute in float32."""


class ViM:
    """Scores an answer by its energy minus its virtual logit.

    Args:
        dimension: Size of the principal subspace. Default: half of the features.

    Examples:
        >>> ViM(dimension=1).fit(training, validation).score(test).shape == test.belief.shape
        True
    """

    name = "ViM"

    def __init__(self, dimension: int | None = None) -> None:
        self.dimension = dimension

    def fit(self, training: Observed, validation: Observed) -> Self:
        """Find the subspace and α on `training`; `validation` does not matter."""
        hidden = training.layer("hidden").astype(np.float64)
        weights, bias = last_layer(hidden, training.logits)
        self._origin = -np.linalg.pinv(weights, rcond=ROUNDING) @ bias
        centered = hidden - self._origin
        _, vectors = np.linalg.eigh(centered.T @ centered)  # ascending
        kept = hidden.shape[1] // 2 if self.dimension is None else self.dimension
        self._residual: Floats = vectors[:, : hidden.shape[1] - kept]
        lengths = np.linalg.norm(centered @ self._residual, axis=1)
        # Without any residual on training data there is no virtual logit to match.
        mean = float(lengths.mean())
        self._alpha = float(training.logits.max(axis=1).mean()) / mean if mean else 0.0
        return self

    def score(self, observed: Observed) -> Floats:
        """Return a score for each sample of `observed`, of shape (n,)."""
        residual = (observed.layer("hidden") - self._origin) @ self._residual
        energy = logsumexp(observed.logits.astype(np.float64), axis=1)
        return np.asarray(energy - self._alpha * np.linalg.norm(residual, axis=1))


def last_layer(hidden: Floats, logits: NDArray[Any]) -> tuple[Floats, Floats]:
    """W and b of the linear layer between two arrays, by least squares of minimum norm."""
    design = np.column_stack([hidden, np.ones(len(hidden))])
    solution = np.linalg.lstsq(design, logits.astype(np.float64), rcond=None)[0]
    return solution[:-1].T, solution[-1]
