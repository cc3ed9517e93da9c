"""Regions and supports: a small network in the plane, and balls around its inputs.

The paper names two inputs and not the data: (2, 2) is believed to be 1, finds both classes, and is
IMK; (8, 0) is IK. So the data is ours: two blobs, by scikit-learn's `make_blobs`, with centers at
(-2, 3) and (5, 1) and a standard deviation of 2. Both examples hold for it. Support is found in the
input layer, where balls are the circles that one sees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.datasets import make_blobs
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.arrays import Bools, Codes, Floats, Ints
from iknow.core.assertion import Assertion
from iknow.explain.assessment import Assessment
from iknow.rules import Ball
from iknow.search.threads import single_threaded_blas

CENTERS = np.array([[-2.0, 3.0], [5.0, 1.0]])
NOISE = 2.0
EXAMPLES = np.array([[2.0, 2.0], [8.0, 0.0]])
HIDDEN = (16, 16)


@dataclass(frozen=True, eq=False)
class Query:
    """One input, of shape (2,), and why it gets its assertion.

    neighbors: training rows within the ball. support: their classes.
    """

    point: Floats
    belief: int
    neighbors: Ints
    support: tuple[int, ...]
    assertion: Assertion


@dataclass(frozen=True, eq=False)
class Regions:
    """The assertions all over the plane.

    x, y: coordinates of shape (w,) and (h,). belief, assertion: of shape (h, w). examples: inputs
    in the plane. points, labels: the training data.
    """

    points: Floats
    labels: Ints
    radius: float
    x: Floats
    y: Floats
    belief: Ints
    assertion: Codes
    examples: tuple[Query, ...]


@dataclass(frozen=True, eq=False)
class Supports:
    """A few training points, and one query each whose support is pure, mixed and empty."""

    points: Floats
    labels: Ints
    radius: float
    queries: tuple[Query, ...]


def make_regions(n_cells: int, seed: int = 0, radius: float = 1.0, n_train: int = 600) -> Regions:
    """Assess the whole plane, at n_cells positions in each direction."""
    points, labels = draw_blobs(n_train, seed)
    classifier = fit_network(points, labels, radius, seed)
    x, y = (np.linspace(*ends, n_cells) for ends in ((-11.0, 14.0), (-7.0, 11.0)))
    plane = classifier.assess(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2))
    return Regions(
        points=points,
        labels=labels,
        radius=radius,
        x=x,
        y=y,
        belief=plane.belief_codes.reshape(n_cells, n_cells),
        assertion=plane.assertion.reshape(n_cells, n_cells),
        examples=_ask(classifier, EXAMPLES, points, radius),
    )


def make_supports(seed: int = 0, radius: float = 1.5, n_train: int = 70) -> Supports:
    """Find three telling queries: the purest, the most contested, and one just out of reach."""
    points, labels = draw_blobs(n_train, seed)
    classifier = fit_network(points, labels, radius, seed)
    corner, opposite = points.min(axis=0), points.max(axis=0)
    axes = [np.linspace(*ends, 60) for ends in zip(corner, opposite, strict=True)]
    candidates = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    assessment = classifier.assess(candidates, evidence=True)
    distances = assessment.evidence["input"].class_distances
    near, far = distances.min(axis=1), distances.max(axis=1)
    crowd = _within(candidates, points, radius).sum(axis=1)
    pure = _best(crowd + far, assessment.assertion == Assertion.IK)
    mixed = _best(-far, assessment.assertion == Assertion.IMK)
    apart = ~_within(candidates, candidates[[pure, mixed]], 3 * radius).any(axis=1)
    empty = _best(-np.abs(near - 1.4 * radius), (near > radius) & apart)
    chosen = candidates[[pure, mixed, empty]]
    return Supports(points, labels, radius, _ask(classifier, chosen, points, radius))


def draw_blobs(n: int, seed: int) -> tuple[Floats, Ints]:
    """Points of shape (n, 2), and their classes, of shape (n,)."""
    points, labels = make_blobs(n, centers=CENTERS, cluster_std=NOISE, random_state=seed)
    return points, labels


def fit_network(points: Floats, labels: Ints, radius: float, seed: int) -> EpistemicClassifier:
    """A small network, and balls of one radius in its input layer."""
    with single_threaded_blas():  # for such small products threads only add overhead
        network = MLPClassifier(HIDDEN, max_iter=1000, random_state=seed).fit(points, labels)
    return EpistemicClassifier(
        FrozenEstimator(network),
        layers=["input"],
        rule=Ball(radius),
        batch_size=1 << 16,
        progress=False,
    ).fit(points, labels)


def _ask(
    classifier: EpistemicClassifier, queries: Floats, points: Floats, radius: float
) -> tuple[Query, ...]:
    """The records of queries, of shape (n, 2)."""
    assessment: Assessment = classifier.assess(queries)
    within = _within(queries, points, radius)
    return tuple(
        Query(
            point=queries[i],
            belief=int(assessment.belief_codes[i]),
            neighbors=np.flatnonzero(within[i]),
            support=tuple(np.flatnonzero(assessment.supports["input"][i]).tolist()),
            assertion=Assertion(assessment.assertion[i]),
        )
        for i in range(len(queries))
    )


def _within(queries: Floats, points: Floats, radius: float) -> Bools:
    """Which points lie in the ball around each query, a mask of shape (n_queries, n_points)."""
    # In float32, like the index.
    inside: Bools = cdist(queries.astype(np.float32), points.astype(np.float32)) <= radius
    return inside


def _best(merit: Floats, allowed: Bools) -> int:
    return int(np.argmax(np.where(allowed, merit, -np.inf)))
