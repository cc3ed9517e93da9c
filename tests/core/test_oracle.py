"""The algebra against the paper's definitions, with plain sets over raw points."""

import math
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest

from iknow.core.assertion import Assertion, Reason, find_reasons, make_assertions
from iknow.core.justification import justify
from iknow.core.support import find_support
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall

N_PROBLEMS = 600
RULES = ("ball", "k-NN", "H-1", "H-2", "relative")


# The oracle. A sample is a row number of the training set, a layer is a list of points.


def distance(x, z):
    return math.sqrt(sum((a - b) * (a - b) for a, b in zip(x, z, strict=True)))


def samples_in_ball(x, train, radius):
    return {row for row, z in enumerate(train) if distance(x, z) <= radius}


def samples_nearest(x, train, k):
    kth = sorted(distance(x, z) for z in train)[k - 1]
    return {row for row, z in enumerate(train) if distance(x, z) <= kth}


def samples_not_much_further_than_the_nearest(x, train, radius, ratio):
    nearest = min(distance(x, z) for z in train)
    return samples_in_ball(x, train, ratio * nearest) if nearest <= radius else set()


def neighborhood_of(rule, x, train, radius, k, ratio):
    if rule == "ball":
        return samples_in_ball(x, train, radius)
    if rule == "k-NN":
        return samples_nearest(x, train, k)
    if rule == "relative":
        return samples_not_much_further_than_the_nearest(x, train, radius, ratio)
    ball = samples_in_ball(x, train, radius)
    if rule == "H-1":
        return ball if ball else samples_nearest(x, train, k)
    return ball | samples_nearest(x, train, k) if ball else set()


def justification_of(supports):
    return set() if set() in supports else set().union(*supports)


def assertion_of(belief, justification):
    if justification == {belief}:
        return "IK"
    return "IMK" if belief in justification else "IDK"


def reason_of(belief, supports):
    if set() in supports:
        return "EXTRAPOLATION"
    if all(belief not in support for support in supports):
        return "CONTRADICTION"
    if all(support == {belief} for support in supports):
        return "KNOWN"
    if any(len(support) > 1 for support in supports):
        return "OVERLAP"
    return "DISAGREEMENT"


# The problems. Coordinates are integers or multiples of 1/64, so that distances carry no rounding
# but that of the square root, and a tie for the oracle is a tie for numpy.


class Layer(NamedTuple):
    train: list
    queries: list
    radius: float
    k: int
    ratio: float


class Problem(NamedTuple):
    layers: list[Layer]
    labels: list
    beliefs: list
    n_classes: int


def draw_radius(rng, train, queries):
    tie = distance(queries[rng.integers(len(queries))], train[rng.integers(len(train))])
    below, above = math.nextafter(tie, 0), math.nextafter(tie, math.inf)
    choices = [0.0, tie, tie, tie, tie, below, above, 0.5, 2.0, 1e9, math.inf]
    return choices[rng.integers(len(choices))]


def draw_ratio(rng, train, queries):
    """Often one at which a sample lies exactly at the end of the reach, or just beyond."""
    x = queries[rng.integers(len(queries))]
    nearest, some = min(distance(x, z) for z in train), distance(x, train[0])
    tie = some / nearest if nearest > 0 else 2.0
    choices = [1.0, tie, tie, max(1.0, math.nextafter(tie, 0)), math.nextafter(tie, 9e9), 1.5, 3.0]
    return choices[rng.integers(len(choices))]


def draw_layer(rng, n_train, n_queries, local):
    """local: the neighborhoods hold little more than the nearest sample, so layers may disagree."""
    n_dimensions = int(rng.integers(1, 4))
    step, width = (1, int(rng.integers(1, 5))) if rng.random() < 0.7 else (1 / 64, 200)
    points = rng.integers(-width, width + 1, size=(n_train + n_queries, n_dimensions)) * step
    train, queries = points[:n_train].tolist(), points[n_train:].tolist()
    if local:
        return Layer(train, queries, min(distance(queries[0], z) for z in train), k=1, ratio=1.0)
    radius, k = draw_radius(rng, train, queries), int(rng.integers(n_train)) + 1
    return Layer(train, queries, radius, k, draw_ratio(rng, train, queries))


def draw_problem(seed):
    rng = np.random.default_rng(seed)
    n_train, n_queries = int(rng.integers(1, 13)), int(rng.integers(1, 6))
    n_classes = int(rng.integers(2, 6))
    used = rng.permutation(n_classes)[: rng.integers(1, n_classes + 1)]
    local, n_layers = rng.random() < 0.3, rng.integers(1, 4)
    layers = [draw_layer(rng, n_train, n_queries, local) for _ in range(n_layers)]
    labels = rng.choice(used, size=n_train).tolist()
    beliefs = np.where(
        rng.random(n_queries) < 0.2,
        rng.integers(n_classes, size=n_queries),
        rng.choice(labels, size=n_queries),
    ).tolist()
    return Problem(layers, labels, beliefs, n_classes)


@pytest.fixture(scope="module")
def problems():
    return [draw_problem(seed) for seed in range(N_PROBLEMS)]


def solve_by_oracle(problem, rule):
    """For each query: supports per layer, justification, assertion and reason."""
    answers = []
    for query, belief in enumerate(problem.beliefs):
        supports = []
        for layer in problem.layers:
            x = layer.queries[query]
            rows = neighborhood_of(rule, x, layer.train, layer.radius, layer.k, layer.ratio)
            supports.append({problem.labels[row] for row in rows})
        justification = justification_of(supports)
        assertion = assertion_of(belief, justification)
        answers.append((supports, justification, assertion, reason_of(belief, supports)))
    return answers


def solve_by_iknow(problem, rule, gather):
    make = {
        "ball": lambda layer: Ball(layer.radius),
        "k-NN": lambda layer: Nearest(layer.k),
        "H-1": lambda layer: BallElseNearest(layer.radius, layer.k),
        "H-2": lambda layer: BallWithNearest(layer.radius, layer.k),
        "relative": lambda layer: RelativeBall(layer.radius, layer.ratio),
    }[rule]
    labels, beliefs = np.array(problem.labels), np.array(problem.beliefs)
    supports = []
    for layer in problem.layers:
        train, queries = np.array(layer.train), np.array(layer.queries)
        n_neighbors = 0 if rule in ("ball", "relative") else layer.k + layer.k % 3
        evidence = gather(train, labels, queries, problem.n_classes, n_neighbors)
        supports.append(find_support(evidence, make(layer)))
    justification = justify(supports)
    assertions = make_assertions(beliefs, justification)
    reasons = find_reasons(beliefs, supports)
    return [
        (
            [as_set(support[query]) for support in supports],
            as_set(justification[query]),
            Assertion(assertions[query]).name,
            Reason(reasons[query]).name,
        )
        for query in range(len(beliefs))
    ]


def as_set(mask):
    return set(np.flatnonzero(mask).tolist())


@pytest.mark.parametrize("rule", RULES)
def test_iknow_agrees_with_the_papers_definitions(rule, problems, gather):
    for seed, problem in enumerate(problems):
        found, expected = solve_by_iknow(problem, rule, gather), solve_by_oracle(problem, rule)
        assert found == expected, f"problem {seed}: {problem}"


@pytest.mark.parametrize("rule", RULES)
def test_the_problems_lead_to_every_reason_a_rule_can_give(rule, problems):
    counts = Counter(
        reason for problem in problems for _, _, _, reason in solve_by_oracle(problem, rule)
    )
    possible = {"KNOWN", "OVERLAP", "DISAGREEMENT", "CONTRADICTION"}
    if rule in ("ball", "H-2", "relative"):
        possible.add("EXTRAPOLATION")
    assert set(counts) == possible
    assert min(counts.values()) >= 20


def test_the_problems_hold_samples_exactly_at_the_radius(problems):
    ties = sum(
        any(distance(x, z) == layer.radius for x in layer.queries for z in layer.train)
        for problem in problems
        for layer in problem.layers
    )
    assert ties >= 300


def test_the_problems_hold_samples_tied_with_the_kth_neighbor(problems):
    ties = sum(
        any(len(samples_nearest(x, layer.train, layer.k)) > layer.k for x in layer.queries)
        for problem in problems
        for layer in problem.layers
    )
    assert ties >= 300


def test_the_problems_hold_samples_exactly_at_the_end_of_the_relative_reach(problems):
    ties = sum(
        any(
            0 < min(distance(x, z) for z in layer.train) < distance(x, far)
            and distance(x, far) == layer.ratio * min(distance(x, z) for z in layer.train)
            for x in layer.queries
            for far in layer.train
        )
        for problem in problems
        for layer in problem.layers
    )
    assert ties >= 100


def test_the_problems_hold_classes_without_samples(problems):
    assert sum(len(set(problem.labels)) < problem.n_classes for problem in problems) >= 100
