"""Decisions by bounds beside the bare products of queries and rows, rule by rule, in one race.

    python -m benchmarks.deciding                      # all cases; MNIST must be in $IKNOW_DATA
    python -m benchmarks.deciding embeddings --rows 1000000

Times are of this process's cores, best of seven rounds. Decisions are checked against those of all
distances, to the last bit.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.race import Contestant, keep, latencies, race
from benchmarks.records import PRODUCTS
from benchmarks.rivals import products
from iknow.core.arrays import Floats32, Ints
from iknow.core.decision import Decision, decide
from iknow.core.rule import Rule
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.search.cells import CpuIndex
from iknow.testing.index import assert_same_decision

N_QUERIES, CHECKED, SINGLE, ROUNDS = 1000, 100, 300, 7
INTRINSIC, WIDTH, CLUSTERS_PER_CLASS = 24, 256, 30


@dataclass(frozen=True, eq=False)
class Layer:
    """Rows with class codes, and queries with beliefs."""

    name: str
    points: Floats32
    labels: Ints
    queries: Floats32
    belief: Ints


def mnist_layers() -> Iterator[Layer]:
    """The pixels, and the layers of the paper's network."""
    from benchmarks.mnist import train_digits
    from reproduction.data.datasets import load_dataset

    digits, data = train_digits(None), load_dataset("mnist", seed=0)
    belief, labels = digits.test.outputs.belief[:N_QUERIES], digits.train.y_true
    pixels = (np.reshape(X, (len(X), -1)) for X in (data.X_train, data.X_test[:N_QUERIES]))
    yield Layer("mnist pixels", *_beside(pixels, labels, belief))
    for name in digits.layers:
        parts = digits.train.outputs, digits.test.outputs
        rows = (np.asarray(part.activations[name]) for part in parts)
        yield Layer(f"mnist {name}", *_beside(rows, labels, belief))


def embedding_layers(n_rows: int, n_features: int = 768, n_classes: int = 10) -> Iterator[Layer]:
    """What a random network of two layers makes of clusters in few dimensions."""
    rng = np.random.default_rng(0)
    centers = 2 * rng.standard_normal((n_classes * CLUSTERS_PER_CLASS, INTRINSIC))
    first = (rng.standard_normal((INTRINSIC, WIDTH)) / INTRINSIC**0.5).astype(np.float32)
    second = (rng.standard_normal((WIDTH, n_features)) / WIDTH**0.5).astype(np.float32)

    def draw(n: int) -> tuple[Floats32, Ints]:
        cluster = rng.integers(len(centers), size=n)
        places = (centers[cluster] + rng.standard_normal((n, INTRINSIC))).astype(np.float32)
        seen = np.empty((n, n_features), dtype=np.float32)
        for start in range(0, n, 20_000):
            part = slice(start, start + 20_000)
            seen[part] = np.maximum(places[part] @ first, 0) @ second
        return seen, cluster % n_classes

    points, labels = draw(n_rows)
    yield Layer(f"embeddings {n_rows:,}", points, labels, *draw(N_QUERIES))


def shapeless_layers(n_rows: int = 50_000, n_features: int = 784) -> Iterator[Layer]:
    """Uniform random points, of which no bound rules out any."""
    rng = np.random.default_rng(0)
    points, queries = (rng.random((n, n_features), dtype=np.float32) for n in (n_rows, N_QUERIES))
    labels, belief = (rng.integers(10, size=n) for n in (n_rows, N_QUERIES))
    yield Layer("uniform random", points, labels, queries, belief)


def _beside(rows: Any, labels: Ints, belief: Ints) -> tuple[Floats32, Ints, Floats32, Ints]:
    points, queries = (np.asarray(each, dtype=np.float32) for each in rows)
    return points, labels, np.ascontiguousarray(queries[:N_QUERIES]), belief


def rules_for(contrast_own: Any, many: bool) -> list[Rule]:
    """The default rule and, if `many`, one of every other kind, with a radius that most are in."""
    radius = float(np.quantile(contrast_own, 0.9))
    rules: list[Rule] = [RelativeBall(radius, 1.2, quorum=(1, 3))]
    if many:
        rules += [Nearest(5), BallElseNearest(radius, 5), BallWithNearest(radius, 5)]
        rules += [Nearest(5, quorum=(1, 3)), Ball(radius / 2, quorum=(1, 3))]
    return rules


def measure(layer: Layer, many: bool) -> dict[str, Any]:
    """Race the rules; prints and returns the times of a query, and of one that comes alone."""
    index = CpuIndex(layer.points, layer.labels, int(layer.labels.max()) + 1)
    index.warm_up()
    # The same rows: a copy of a large layer would not fit.
    dense = CpuIndex(index.points, index.labels, index.n_classes, index.rows)
    first = slice(0, CHECKED)
    evidence = dense.gather(layer.queries[first], 5, 3)
    usual = decide(evidence, RelativeBall(1.0, 1.2, quorum=(1, 3)), layer.belief[first])
    rules = rules_for(usual.contrast.own, many)
    contestants = [
        Contestant(PRODUCTS, products(index.points, layer.queries)),
        Contestant("dense index", lambda part: dense.gather(layer.queries[part], 0, 3)),
    ]
    for rule in rules:
        for _ in range(2):  # the first shows which bounds pay
            found = index.decide(layer.queries[first], rule, layer.belief[first])
        assert_same_decision(found, decide(evidence, rule, layer.belief[first]))
        contestants.append(Contestant(str(rule), partial(_ask, index, layer, rule)))
    laps = race(contestants, len(layer.queries), ROUNDS)
    us = {lap.contestant.name: lap.best_cpu for lap in laps}
    taken = latencies(partial(_ask, index, layer, rules[0]), SINGLE, 20.0)[:, 1]
    alone = 1e6 * float(np.median(taken))
    shape = " x ".join(f"{size:,}" for size in layer.points.shape)
    print(f"{layer.name}, {shape}")
    for name, took in us.items():
        ratios = us[PRODUCTS] / took, us["dense index"] / took
        print(f"  {name:62} {took:8.1f} µs  {ratios[0]:5.2f} x products {ratios[1]:5.2f} x dense")
    print(f"  one query, median: {alone:.0f} µs", flush=True)
    return {"layer": layer.name, "shape": layer.points.shape, "us": us, "alone_us": alone}


def _ask(index: CpuIndex, layer: Layer, rule: Rule, part: slice) -> Decision | None:
    if not index.decides(rule):  # as an assessment does
        index.gather(layer.queries[part], rule.n_neighbors, max(rule.quorum))
        return None
    return index.decide(layer.queries[part], rule, layer.belief[part])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=["mnist", "embeddings", "shapeless"])
    parser.add_argument("--rows", type=int, default=200_000, help="of the embeddings")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    layers: dict[str, Callable[[], Iterator[Layer]]] = {
        "mnist": mnist_layers,
        "embeddings": partial(embedding_layers, given.rows),
        "shapeless": shapeless_layers,
    }
    found: list[dict[str, Any]] = []
    for case in given.cases:
        for layer in layers[case]():
            found.append(measure(layer, many=case == "mnist"))
            keep({"layers": found}, given.out)


if __name__ == "__main__":
    main()
