"""Cases: activations with labels, queries with beliefs, and a radius for each layer.

Synthetic ones are clustered, like the activations of a trained network: every class is a mixture of
Gaussian clusters. Each cluster lies on its own subspace of at most 8 dimensions, with standard
deviation 1 along each, and noise of standard deviation 0.05 in all directions. Cluster centers are
Gaussian, 8.5 apart on average (root mean square) for any number of features, farther apart if there
are so few that clusters would cover each other. One row in a hundred carries a wrong label, one
query in ten is pushed off its cluster by noise of length 4, and one belief in twenty is wrong.

Or they are isotropic: one standard normal cloud for each class, their centers close to each other.
In many dimensions all distances are nearly the same, so an index can rule out nothing without
measuring it: the worst case for any index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.records import CaseFacts
from iknow.core.arrays import Bools, Codes, Floats32, Ints
from iknow.core.assertion import Assertion, make_assertions
from iknow.core.support import justify
from iknow.rules import Ball
from iknow.search.cells import CpuIndex
from iknow.selection import Goal, Validation, select

RANK, AMBIENT_NOISE, CENTER_DISTANCE, N_CLUSTERS = 8, 0.05, 8.5, 200
PUSH, PUSHED, WRONG, MISLABELLED = 4.0, 0.1, 0.05, 0.01
N_VALIDATION = 500

Drawn = tuple[Floats32, Ints, Floats32, Ints, Ints]


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer: points of shape (n_rows, d), queries of shape (n_queries, d), and a radius."""

    name: str
    points: Floats32
    queries: Floats32
    radius: float


@dataclass(frozen=True, eq=False)
class Case:
    """Layers over the same rows and queries.

    labels: class codes of shape (n_rows,). belief: class codes of shape (n_queries,).
    """

    name: str
    about: str
    layers: tuple[Layer, ...]
    labels: Ints
    belief: Ints
    n_classes: int
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        return len(self.labels)

    @property
    def n_queries(self) -> int:
        return len(self.belief)

    def label_of(self, layer: Layer) -> str:
        """The case's name, with the layer's name if there are several."""
        return self.name if len(self.layers) == 1 else f"{self.name}, {layer.name}"

    def assert_about(self, part: slice, supports: list[Bools]) -> Codes:
        """The assertions about a slice of the queries, from a mask for each layer."""
        return make_assertions(self.belief[part], justify(supports))

    def describe(self, assertions: Codes) -> CaseFacts:
        """The facts of the case, and how its assertions are distributed."""
        counts = np.bincount(assertions, minlength=len(Assertion))
        shares = {each.name: float(counts[each] / len(assertions)) for each in reversed(Assertion)}
        radii = {layer.name: layer.radius for layer in self.layers}
        return CaseFacts(
            name=self.name,
            about=self.about,
            n_rows=self.n_rows,
            n_classes=self.n_classes,
            n_queries=self.n_queries,
            layers={layer.name: int(layer.points.shape[1]) for layer in self.layers},
            facts={**self.facts, "radii": radii, "assertions": shares},
        )


@dataclass(frozen=True)
class Shape:
    """The size of a synthetic case, and the seed that decides all of it."""

    n_rows: int
    n_features: int
    n_classes: int
    n_queries: int
    isotropic: bool = False
    seed: int = 0


class Mixture:
    """Clusters in subspaces of at most 8 dimensions, shared out among the classes."""

    def __init__(self, n_features: int, n_classes: int, rng: np.random.Generator) -> None:
        self.n_features, self.per_class = n_features, max(2, N_CLUSTERS // n_classes)
        self.n_clusters, rank = self.per_class * n_classes, min(RANK, n_features)
        room = self.n_clusters ** (1 / n_features)
        spread = max(room, CENTER_DISTANCE / np.sqrt(2 * n_features))
        centers = rng.normal(scale=spread, size=(self.n_clusters, n_features))
        bases = rng.standard_normal((self.n_clusters, rank, n_features)).transpose(0, 2, 1)
        self.centers = centers.astype(np.float32)
        # The columns of Q are orthonormal; each basis is its transpose.
        self.bases = np.linalg.qr(bases)[0].transpose(0, 2, 1).astype(np.float32)

    def draw(self, clusters: NDArray[np.integer[Any]], rng: np.random.Generator) -> Floats32:
        """One point of each cluster, of shape (n, n_features)."""
        n, rank = len(clusters), self.bases.shape[1]
        points = rng.standard_normal((n, self.n_features), dtype=np.float32)
        points *= np.float32(AMBIENT_NOISE)
        inside = rng.standard_normal((n, rank), dtype=np.float32)
        order = np.argsort(clusters, kind="stable")
        bounds = np.searchsorted(clusters[order], np.arange(self.n_clusters + 1))
        for cluster, (start, end) in enumerate(pairwise(bounds.tolist())):
            rows = order[start:end]
            points[rows] += inside[rows] @ self.bases[cluster] + self.centers[cluster]
        return points


def draw_clustered(shape: Shape, extra: int = 0) -> Drawn:
    """Points with labels, and n_queries + extra queries with true and believed classes."""
    rng = np.random.default_rng(shape.seed)
    mixture = Mixture(shape.n_features, shape.n_classes, rng)

    def draw(n: int) -> tuple[Floats32, Ints]:
        clusters = rng.integers(mixture.n_clusters, size=n)
        return mixture.draw(clusters, rng), clusters // mixture.per_class

    return _complete(shape, extra, rng, draw)


def draw_isotropic(shape: Shape, extra: int = 0) -> Drawn:
    """The same, from one standard normal cloud for each class."""
    rng = np.random.default_rng(shape.seed)
    centers = rng.normal(scale=0.5, size=(shape.n_classes, shape.n_features)).astype(np.float32)

    def draw(n: int) -> tuple[Floats32, Ints]:
        labels = rng.integers(shape.n_classes, size=n)
        points = rng.standard_normal((n, shape.n_features), dtype=np.float32)
        return points + centers[labels], labels

    return _complete(shape, extra, rng, draw)


def _complete(
    shape: Shape,
    extra: int,
    rng: np.random.Generator,
    draw: Callable[[int], tuple[Floats32, Ints]],
) -> Drawn:
    points, labels = draw(shape.n_rows)
    mislabel(labels, shape.n_classes, rng)
    queries, y_true = draw(shape.n_queries + extra)
    return points, labels, queries, y_true, disturb(queries, y_true, shape.n_classes, rng)


def mislabel(labels: Ints, n_classes: int, rng: np.random.Generator) -> None:
    """Give one row in a hundred another label, in place."""
    wrong = rng.random(len(labels)) < MISLABELLED
    labels[wrong] = rng.integers(n_classes, size=int(wrong.sum()))


def disturb(queries: Floats32, y_true: Ints, n_classes: int, rng: np.random.Generator) -> Ints:
    """Push one query in ten off its cluster, in place; returns beliefs, one in twenty wrong."""
    pushed = rng.random(len(queries)) < PUSHED
    push = rng.normal(scale=PUSH / np.sqrt(queries.shape[1]), size=queries[pushed].shape)
    queries[pushed] += push.astype(np.float32)
    wrong = rng.random(len(queries)) < WRONG
    return np.where(wrong, rng.integers(n_classes, size=len(queries)), y_true)


def make_case(name: str, shape: Shape) -> Case:
    """A case of one layer, with the radius of the largest coverage on held-out queries."""
    kind = "isotropic Gaussian" if shape.isotropic else "clustered"
    draw = draw_isotropic if shape.isotropic else draw_clustered
    points, labels, asked, y_true, belief = draw(shape, extra=N_VALIDATION)
    index = CpuIndex(points, labels, shape.n_classes)
    evidence = {"layer": index.gather(asked[:N_VALIDATION])}
    validation = Validation(evidence, belief[:N_VALIDATION], y_true[:N_VALIDATION])
    rule = select(Goal(), validation, Ball).neighborhoods["layer"]
    assert isinstance(rule, Ball)
    return Case(
        name=name,
        about=f"{kind}, {shape.n_rows:,} × {shape.n_features}, {shape.n_classes:,} classes",
        layers=(Layer("layer", points, asked[N_VALIDATION:], rule.radius),),
        labels=labels,
        belief=belief[N_VALIDATION:],
        n_classes=shape.n_classes,
    )
