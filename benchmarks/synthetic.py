"""Synthetic activations, of any size and number of classes.

Clustered: like the activations of a trained network. Every class is a mixture of Gaussian clusters.
Each cluster lies on its own subspace of at most 8 dimensions, with standard deviation 1 along each,
and noise of standard deviation 0.05 in all directions. Cluster centers are Gaussian, 8.5 apart on
average (root mean square) for any number of features, farther apart if there are so few that
clusters would cover each other. One row in a hundred carries a wrong label, one query in ten is
pushed off its cluster by noise of length 4, and one belief in twenty is wrong.

Isotropic: one standard normal cloud for each class, their centers close to each other. In many
dimensions all distances are nearly the same, so an index can rule out nothing without measuring it:
the worst case for any index, included for honesty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.cases import Case, Layer
from iknow.core.arrays import Floats32, Ints
from iknow.rules import Ball
from iknow.search.cells import CpuIndex
from iknow.selection import Goal, Validation, select

RANK = 8
AMBIENT_NOISE = 0.05
CENTER_DISTANCE = 8.5
PUSH = 4.0
PUSHED = 0.1
WRONG = 0.05
MISLABELLED = 0.01
N_CLUSTERS = 200
N_VALIDATION = 500


@dataclass(frozen=True)
class Shape:
    """The size of a synthetic case, and the seed that decides all of it."""

    n_rows: int
    n_features: int
    n_classes: int
    n_queries: int
    isotropic: bool = False
    seed: int = 0


def make_case(name: str, shape: Shape) -> Case:
    """A case of one layer, with the radius of the largest coverage on held-out queries."""
    kind = "isotropic Gaussian" if shape.isotropic else "clustered"
    draw = draw_isotropic if shape.isotropic else draw_clustered
    points, labels, asked, y_true, belief = draw(shape, extra=N_VALIDATION)
    held_out, queries = asked[:N_VALIDATION], asked[N_VALIDATION:]
    index = CpuIndex(points, labels, shape.n_classes)
    evidence = {"layer": index.gather(held_out)}
    validation = Validation(evidence, belief[:N_VALIDATION], y_true[:N_VALIDATION])
    rule = select(Goal(), validation, Ball).neighborhoods["layer"]
    assert isinstance(rule, Ball)
    return Case(
        name=name,
        about=f"{kind}, {shape.n_rows:,} × {shape.n_features}, {shape.n_classes:,} classes",
        layers=(Layer("layer", points, queries, rule.radius),),
        labels=labels,
        belief=belief[N_VALIDATION:],
        n_classes=shape.n_classes,
    )


Drawn = tuple[Floats32, Ints, Floats32, Ints, Ints]


def draw_clustered(shape: Shape, extra: int = 0) -> Drawn:
    """Points with labels, and n_queries + extra queries with true and believed classes."""
    rng = np.random.default_rng(shape.seed)
    per_class = max(2, N_CLUSTERS // shape.n_classes)
    n_clusters = per_class * shape.n_classes
    rank = min(RANK, shape.n_features)
    room = n_clusters ** (1 / shape.n_features)
    spread = max(room, CENTER_DISTANCE / np.sqrt(2 * shape.n_features))
    centers = rng.normal(scale=spread, size=(n_clusters, shape.n_features)).astype(np.float32)
    bases = rng.standard_normal((n_clusters, rank, shape.n_features))
    # The columns of Q are orthonormal; each basis is its transpose.
    bases = np.linalg.qr(bases.transpose(0, 2, 1))[0].transpose(0, 2, 1).astype(np.float32)

    def draw(n: int) -> tuple[Floats32, Ints]:
        cluster = rng.integers(n_clusters, size=n)
        points = rng.standard_normal((n, shape.n_features), dtype=np.float32)
        points *= np.float32(AMBIENT_NOISE)
        inside = rng.standard_normal((n, rank), dtype=np.float32)
        order = np.argsort(cluster, kind="stable")
        bounds = np.searchsorted(cluster[order], np.arange(n_clusters + 1))
        for i in range(n_clusters):
            rows = order[bounds[i] : bounds[i + 1]]
            points[rows] += inside[rows] @ bases[i] + centers[i]
        return points, cluster // per_class

    return _complete(shape, extra, rng, draw)


def draw_isotropic(shape: Shape, extra: int = 0) -> Drawn:
    """The same, from one standard normal cloud for each class."""
    rng = np.random.default_rng(shape.seed)
    centers = rng.normal(scale=0.5, size=(shape.n_classes, shape.n_features)).astype(np.float32)

    def draw(n: int) -> tuple[Floats32, Ints]:
        labels = rng.integers(shape.n_classes, size=n)
        points = rng.standard_normal((n, shape.n_features), dtype=np.float32)
        points += centers[labels]
        return points, labels

    return _complete(shape, extra, rng, draw)


def _complete(
    shape: Shape,
    extra: int,
    rng: np.random.Generator,
    draw: Callable[[int], tuple[Floats32, Ints]],
) -> Drawn:
    points, labels = draw(shape.n_rows)
    mislabelled = rng.random(shape.n_rows) < MISLABELLED
    labels[mislabelled] = rng.integers(shape.n_classes, size=int(mislabelled.sum()))
    queries, y_true = draw(shape.n_queries + extra)
    pushed = rng.random(len(queries)) < PUSHED
    push = rng.normal(scale=PUSH / np.sqrt(shape.n_features), size=queries[pushed].shape)
    queries[pushed] += push.astype(np.float32)
    wrong = rng.random(len(queries)) < WRONG
    belief = np.where(wrong, rng.integers(shape.n_classes, size=len(queries)), y_true)
    return points, labels, queries, y_true, belief
