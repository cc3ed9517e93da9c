"""Whitened: Mahalanobis distances, in units of the variation within classes.

Let σ_j be the standard deviation of feature j about the means of the classes, and R the correlation
matrix of these residuals. The distance is that of

    D = S⁻¹ R̂⁻¹ S⁻¹,   S = diag(σ),   R̂ = (1 - s) R + s I,

so a direction in which samples of one class differ a lot counts little, and features may have any
units. Few samples underestimate the small eigenvalues of R, on whose inverses everything depends,
so it is shrunk toward the identity. The share s that minimizes the expected squared error of R̂ is
estimated as Ledoit and Wolf do (2004, "A well-conditioned estimator for large-dimensional
covariance matrices"): of n residuals z of p standardized features, with R the mean of z zᵀ,

    s = min(1, mean |z zᵀ - R|² / (n |R - I|²)).

Where there is nothing to estimate, distances must not explode or vanish. A feature that is constant
within all classes gets the smallest σ of the others, as in `iknow.metrics.table`, and no
correlations; if all are, σ is 1, the Euclidean distance. Eigenvalues of R̂ are at least 1e-6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.core.text import as_real
from iknow.errors import InputError
from iknow.metrics.lipschitz import FLOAT32_ROUNDING, as_matrix
from iknow.metrics.metric import register_metric
from iknow.metrics.weighted import Weighted

LEAST_EIGENVALUE = 1e-6  # of a correlation matrix, whose eigenvalues are 1 on average
MOST_FEATURES = 8192  # a square matrix of them takes half a gigabyte


@register_metric
@dataclass(frozen=True, eq=False, repr=False)
class Whitened(Weighted):
    """The Mahalanobis distance for the shrunk covariance within classes.

    `fit` finds the `map`, of shape (n_features, n_features); until then it is empty. `shrinkage`,
    from 0 to 1, says how far to shrink correlations toward 0; by default it is estimated.

    Examples:
        >>> spread = [[0, 0], [4, 0], [0, 1], [4, 1], [9, 9], [13, 9], [9, 10], [13, 10]]
        >>> metric = Whitened().fit(spread, [0, 0, 0, 0, 1, 1, 1, 1])
        >>> metric.distances([[0, 0]], [[4, 0], [0, 1]])
        array([[2., 2.]])
    """

    map: Floats = field(default_factory=lambda: np.empty((0, 0)), kw_only=True)
    shrinkage: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shrinkage is not None:
            wanted = "be a number from 0 to 1, or None to estimate it"
            share = as_real(self.shrinkage, "shrinkage", wanted, lambda number: 0 <= number <= 1)
            object.__setattr__(self, "shrinkage", share)

    def fit(self, activations: Any, labels: Any) -> Whitened:
        values, codes = np.asarray(activations), np.asarray(labels)
        if values.ndim != 2 or not values.size or codes.shape != values.shape[:1]:
            raise InputError(
                "whitening needs activations of shape (n, n_features) with labels of shape (n,); "
                f"got {values.shape} and {codes.shape}"
            )
        if values.shape[1] > MOST_FEATURES:
            raise InputError(
                f"whitening needs a square matrix of the {values.shape[1]:,} features, too large "
                f"beyond {MOST_FEATURES:,}: choose another layer, or the metric Scaled or Cosine"
            )
        return Whitened(self.shrinkage, map=_find_map(values, codes, self.shrinkage))


def _residuals(values: Any, codes: Any) -> Iterator[Floats]:
    """The samples of one class after the other, less their mean."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order])) + 1
    for rows in np.split(order, starts):
        part = as_matrix(values[rows], "activations")
        yield part - part.mean(axis=0)


def _find_map(values: Any, codes: Any, shrinkage: float | None) -> Floats:
    """S⁻¹ times the symmetric root of R̂⁻¹: unlike other roots it is unique."""
    n, n_features = values.shape
    squares = sum(np.square(part).sum(axis=0) for part in _residuals(values, codes))
    spread: Floats = np.sqrt(np.asarray(squares) / n)
    # Activations are float32: less than a step of it is the rounding of the mean.
    varies = spread > FLOAT32_ROUNDING * np.abs(values).max(axis=0).astype(np.float64)
    spread[~varies] = spread[varies].min() if varies.any() else 1.0
    products, fourth = np.zeros((n_features, n_features)), 0.0
    for part in _residuals(values, codes):
        units = np.where(varies, part / spread, 0.0)
        products += units.T @ units
        fourth += float(np.square(np.square(units).sum(axis=1)).sum())
    found: Floats = products / n
    if shrinkage is None:
        # mean |z zᵀ - R|² = mean |z|⁴ - |R|²
        error = (fourth / n - np.square(found).sum()) / n
        apart = np.square(found - np.diag(varies.astype(np.float64))).sum()
        shrinkage = float(min(max(error, 0.0) / apart, 1.0)) if apart > 0 else 1.0
    found *= 1 - shrinkage
    np.fill_diagonal(found, 1.0)  # the diagonal of R is 1, and of constant features too
    sizes, vectors = np.linalg.eigh(found)
    root: Floats = (vectors / np.sqrt(np.maximum(sizes, LEAST_EIGENVALUE))) @ vectors.T
    return root / spread[:, None]
