"""Whether two contestants give the same answer: a wrong answer is not worth timing.

FAISS and parts of scikit-learn expand |x - q|² into products in float32, whose error is a few
millionths of |x|² + |q|². We tolerate that much, and a relative error of 1e-3; a wrong assertion
only if some class lies that close to the radius. For contestants that compute in float64 we
tolerate differences in the last digits only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.cases import Case, Layer
from iknow.core.arrays import Bools, Codes, Floats


@dataclass(frozen=True)
class Precision:
    """Tolerances: a relative error of distances, and a fraction of the squared norms."""

    relative: float
    cancelled: float


FLOAT32 = Precision(relative=1e-3, cancelled=8e-6)
FLOAT64 = Precision(relative=1e-9, cancelled=0.0)


def distances_differ(
    layer: Layer, ours: Floats, theirs: Floats, precision: Precision
) -> str | None:
    """Why class distances of the first queries, (n, n_classes), differ; None if they agree."""
    if theirs.shape != ours.shape:
        return f"its answer has shape {theirs.shape}, and {ours.shape} was expected"
    slack = _cancelled(layer, len(ours), precision)
    with np.errstate(invalid="ignore"):
        allowed = 2 * precision.relative * np.square(ours) + slack
        close = np.abs(np.square(theirs) - np.square(ours)) <= allowed
    same = np.where(np.isinf(ours), theirs == ours, close)
    if same.all():
        return None
    query, code = (int(each) for each in np.argwhere(~same)[0])
    return (
        f"its answer differs in {int((~same).sum())} of {same.size} distances, such as "
        f"{theirs[query, code]:.6g}; expected {ours[query, code]:.6g}"
    )


def assertions_differ(
    case: Case, distances: list[Floats], ours: Codes, theirs: Codes, precision: Precision
) -> str | None:
    """Why assertions about the first queries, (n,), differ; None if they agree.

    distances: for each layer, the class distances of shape (n, n_classes).
    """
    if theirs.shape != ours.shape:
        return f"its answer has shape {theirs.shape}, and {ours.shape} was expected"
    wrong = (theirs != ours) & ~_undecided(case, distances, precision)
    if not wrong.any():
        return None
    query = int(np.flatnonzero(wrong)[0])
    return (
        f"its answer differs in {int(wrong.sum())} of {len(ours)} assertions, such as "
        f"{theirs[query]}; expected {ours[query]} (query {query})"
    )


def _cancelled(layer: Layer, n: int, precision: Precision) -> Floats:
    """The tolerance of squared distances of the first n queries, of shape (n, 1)."""
    largest = float(np.einsum("ij,ij->i", layer.points, layer.points).max(initial=0.0))
    queries = layer.queries[:n].astype(np.float64)
    norms: Floats = largest + np.einsum("ij,ij->i", queries, queries)
    return precision.cancelled * norms[:, None]


def _undecided(case: Case, distances: list[Floats], precision: Precision) -> Bools:
    """Queries, (n,), with a class so close to the edge of a ball that rounding decides."""
    undecided = np.zeros(len(distances[0]), dtype=bool)
    for layer, found in zip(case.layers, distances, strict=True):
        squared = layer.radius**2
        allowed = 2 * precision.relative * squared + _cancelled(layer, len(found), precision)
        undecided |= (np.abs(np.square(found) - squared) <= allowed).any(axis=1)
    return undecided
