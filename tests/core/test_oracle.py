"""The algebra against the paper's definitions, with plain sets over raw points, and a quorum."""

import math
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest

from iknow.core.assertion import Assertion, Reason, find_reasons, make_assertions
from iknow.core.support import find_support, justify
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from tests.oracles import (
    assertion_of,
    distance,
    gather,
    justification_of,
    nearest_of,
    support_of,
)

N_PROBLEMS = 600
RULES = {
    "ball": lambda layer, **more: Ball(layer.radius, **more),
    "k-NN": lambda layer, **more: Nearest(layer.k, **more),
    "H-1": lambda layer, **more: BallElseNearest(layer.radius, layer.k, **more),
    "H-2": lambda layer, **more: BallWithNearest(layer.radius, layer.k, **more),
    "relative": lambda layer, **more: RelativeBall(layer.radius, layer.ratio, **more),
}


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
    """Often one at which a sample lies exactly at the end of a reach, or just beyond."""
    x = queries[rng.integers(len(queries))]
    nearest, some = min(distance(x, z) for z in train), distance(x, train[0])
    tie = some / nearest if nearest > 0 else 2.0
    beside = math.nextafter(tie, 0), math.nextafter(tie, 9e9)
    choices = [1.0, tie, tie, *beside, 1.5, 3.0, 0.5, 0.0]
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


def solve_by_oracle(problem, rule, quorum=(1, 1)):
    """For each query: supports per layer, justification, assertion and reason."""
    answers = []
    for query, belief in enumerate(problem.beliefs):
        supports = []
        for layer in problem.layers:
            distances = [distance(layer.queries[query], z) for z in layer.train]
            made = RULES[rule](layer, quorum=quorum)
            supports.append(support_of(made, distances, problem.labels, belief))
        answers.append((supports, justification_of(supports), *assertion_of(belief, supports)))
    return answers


def solve_by_iknow(problem, rule, quorum=(1, 1)):
    labels, beliefs = np.array(problem.labels), np.array(problem.beliefs)
    supports = []
    for layer in problem.layers:
        train, queries = np.array(layer.train), np.array(layer.queries)
        n_neighbors = 0 if rule in ("ball", "relative") else layer.k + layer.k % 3
        sizes = problem.n_classes, n_neighbors
        per_class = max(quorum) + layer.k % 2
        evidence = gather(train, labels, queries, *sizes, per_class=per_class)
        supports.append(find_support(evidence, RULES[rule](layer, quorum=quorum), beliefs))
    justification = justify(supports)
    assertions = make_assertions(beliefs, justification)
    reasons = find_reasons(beliefs, supports)
    return [
        (
            [as_set(support[query]) for support in supports],
            as_set(justification[query]),
            Assertion(assertions[query]),
            Reason(reasons[query]),
        )
        for query in range(len(beliefs))
    ]


def as_set(mask):
    return set(np.flatnonzero(mask).tolist())


@pytest.mark.parametrize("quorum", [(1, 1), (1, 3), (2, 2), (3, 1)])
@pytest.mark.parametrize("rule", RULES)
def test_iknow_agrees_with_the_papers_definitions_and_counting_under_a_quorum(
    rule, quorum, problems
):
    known = 0
    for seed, problem in enumerate(problems if quorum == (1, 1) else problems[:150]):
        expected = solve_by_oracle(problem, rule, quorum)
        assert solve_by_iknow(problem, rule, quorum) == expected, f"problem {seed}: {problem}"
        known += sum(reason == Reason.KNOWN for *_, reason in expected)
    assert known >= 15


@pytest.mark.parametrize("rule", RULES)
def test_the_problems_lead_to_every_reason_a_rule_can_give(rule, problems):
    counts = Counter(
        reason for problem in problems for _, _, _, reason in solve_by_oracle(problem, rule)
    )
    possible = {Reason.KNOWN, Reason.OVERLAP}
    if rule != "relative":  # which looks for the belief first
        possible |= {Reason.DISAGREEMENT, Reason.CONTRADICTION}
    if rule in ("ball", "H-2", "relative"):
        possible.add(Reason.EXTRAPOLATION)
    assert set(counts) == possible
    assert min(counts.values()) >= 20


def at_the_radius(layer, x):
    return any(distance(x, z) == layer.radius for z in layer.train)


def tied_with_the_kth(layer, x):
    return len(nearest_of(layer.k, [distance(x, z) for z in layer.train])) > layer.k


def at_the_end_of_the_relative_reach(layer, x):
    distances = [distance(x, z) for z in layer.train]
    nearest = min(distances)
    return any(0 < nearest < far == layer.ratio * nearest for far in distances)


@pytest.mark.parametrize(
    ("is_tie", "least"),
    [(at_the_radius, 300), (tied_with_the_kth, 300), (at_the_end_of_the_relative_reach, 100)],
)
def test_the_problems_hold_ties(is_tie, least, problems):
    layers = [layer for problem in problems for layer in problem.layers]
    assert sum(any(is_tie(layer, x) for x in layer.queries) for layer in layers) >= least


def test_the_problems_hold_classes_without_samples(problems):
    assert sum(len(set(problem.labels)) < problem.n_classes for problem in problems) >= 100
