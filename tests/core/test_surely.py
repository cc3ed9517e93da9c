"""The theorem of `iknow.core.surely`, tried on tables of distances with random bounds."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iknow.core.assertion import Assertion, make_assertions
from iknow.core.decision import decide
from iknow.core.evidence import (
    Bounded,
    Evidence,
    bounded,
    discard_evidence,
    merge_evidence,
    stack_evidence,
)
from iknow.core.justification import justify
from iknow.core.margin import find_margins
from iknow.core.neighborhood import Neighborhood
from iknow.core.quorum import stack_weighed, weigh
from iknow.core.slack import find_slack
from iknow.core.stability import find_stability
from iknow.core.support import find_support
from iknow.errors import InputError
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.testing.scene import LARGEST_K, N_CLASSES, gather_all

N = 40


def make_rule(rng: np.random.Generator) -> Neighborhood:
    """Any rule, with radii on the grid of the distances, so that ties are common."""
    quorum = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    radius, k = float(rng.integers(0, 7)), int(rng.integers(1, 5))
    ratio = float(rng.choice([0.0, 0.5, 1.0, 1.5, 2.0]))
    rules: list[Neighborhood] = [
        Ball(radius, quorum=quorum),
        Ball(tuple(rng.integers(0, 7, N_CLASSES).astype(float)), quorum=quorum),
        Nearest(k, quorum=quorum),
        BallElseNearest(radius, k, quorum=quorum),
        BallWithNearest(radius, k, quorum=quorum),
        RelativeBall(radius, ratio, quorum=quorum),
    ]
    return rules[rng.integers(len(rules))]


def make_layer(
    rng: np.random.Generator, n_rows: int, labels: np.ndarray
) -> tuple[Evidence, Bounded]:
    """The true evidence of a layer, and evidence of it up to bounds, often exact ones."""
    true = rng.integers(0, 7, (N, n_rows)).astype(float)
    spread = rng.choice([0.0, 0.4, 2.0]) * (rng.random((2, N, n_rows)) < rng.choice([0.1, 0.6]))
    low = np.maximum(true - spread[0] * rng.random(true.shape), 0.0)
    high = true + spread[1] * rng.random(true.shape)
    high[rng.random(true.shape) < 0.02] = np.inf
    least, most = gather_all(low, labels, LARGEST_K), gather_all(high, labels, LARGEST_K)
    return gather_all(true, labels, LARGEST_K), bounded(least, most)


def assert_layers(
    evidence: list[Evidence], rules: list[Neighborhood], belief: np.ndarray, **also: object
) -> np.ndarray:
    pairs = zip(evidence, rules, strict=True)
    supports = [find_support(each, rule, belief) for each, rule in pairs]
    return np.asarray(make_assertions(belief, justify(supports), **also))  # type: ignore[arg-type]


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_an_answer_by_bounds_is_the_true_one_or_idk(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_rows, n_layers = int(rng.integers(1, 12)), int(rng.integers(1, 4))
    labels = rng.integers(0, N_CLASSES, n_rows)
    layers = [make_layer(rng, n_rows, labels) for _ in range(n_layers)]
    rules = [make_rule(rng) for _ in range(n_layers)]
    belief = rng.integers(-1, N_CLASSES, N)
    also = {"knowable": [0, 1] if seed % 2 else None, "doubted": rng.random(N) < 0.2}
    true = assert_layers([one for one, _ in layers], rules, belief, **also)
    told = assert_layers([both for _, both in layers], rules, belief, **also)
    assert ((told == true) | (told == Assertion.IDK)).all()
    for (exact, both), rule in zip(layers, rules, strict=True):
        contrast = decide(exact, rule, belief).contrast, decide(both, rule, belief).contrast
        assert (contrast[1].own >= contrast[0].own).all()
        assert (contrast[1].other <= contrast[0].other).all()
        answered = belief >= 0
        margins = [find_margins(each, rule, belief)[answered] for each in (exact, both)]
        assert (margins[1] <= margins[0]).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_bounds_that_agree_decide_as_the_distances_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, N_CLASSES, 10)
    exact, _ = make_layer(rng, 10, labels)
    both, belief, rule = bounded(exact, exact), rng.integers(-1, N_CLASSES, N), make_rule(rng)
    np.testing.assert_array_equal(
        find_support(both, rule, belief), find_support(exact, rule, belief)
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_levels_of_bounds_agree_with_assertions(seed: int) -> None:
    """What tuning takes for IK, by contrast alone, is IK; radii and ratios choose both alike."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, N_CLASSES, 9)
    _, both = make_layer(rng, 9, labels)
    belief, quorum = rng.integers(0, N_CLASSES, N), (1, int(rng.integers(1, 4)))
    for rule in (RelativeBall(4.0, 1.5, quorum=quorum), Ball(3.0, quorum=quorum)):
        contrast = decide(both, rule, belief).contrast
        sides = rule.box(contrast, None)
        values = [getattr(rule, axis) for axis in rule.axes]
        pairs = zip(sides, values, strict=True)
        pure = np.logical_and.reduce([(low <= v) & (v < high) for (low, high), v in pairs])
        known = assert_layers([both], [rule], belief) == Assertion.IK
        np.testing.assert_array_equal(known, pure & np.isfinite(contrast.own))


def test_evidence_up_to_bounds_is_cut_joined_merged_and_discarded_as_such() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, N_CLASSES, 9)
    exact, both = make_layer(rng, 9, labels)
    again = stack_evidence([both[:13], both[13:]])
    assert isinstance(again, Bounded)
    np.testing.assert_array_equal(again.least.class_distances, both.least.class_distances)
    gone = discard_evidence(both, np.arange(N) == 3)
    assert isinstance(gone, Bounded)
    assert np.isinf(gone.least.class_distances[3]).all()
    assert np.isinf(gone.class_distances[3]).all()
    merged = merge_evidence([exact, both])
    assert isinstance(merged, Bounded)
    assert (merged.least.class_distances <= exact.class_distances).all()
    belief = rng.integers(0, N_CLASSES, N)
    weighed = weigh(both, (1, 2), belief)
    joined = stack_weighed([weighed[:5], weighed[5:]])
    rule = RelativeBall(3.0, 1.0, quorum=(1, 2))
    np.testing.assert_array_equal(find_support(joined, rule), find_support(both, rule, belief))


def test_what_bounds_cannot_say_is_left_out() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, N_CLASSES, 9)
    _, both = make_layer(rng, 9, labels)
    belief, known = np.zeros(N, dtype=np.int64), rng.random(N) < 0.5
    found = find_stability([both], [Ball(3.0)], belief, known)
    assert (found.at_least == known).all()
    assert not found.changes.any()
    assert not found.exact[known].any()
    assert find_slack(both[:1], Ball(3.0), [], 0) is None
    with pytest.raises(InputError, match="give the beliefs"):
        find_support(both, Ball(3.0))
    with pytest.raises(InputError, match="same shapes"):
        replace(both, least=both.least[:2])


def test_a_rule_without_the_promise_is_refused() -> None:
    @dataclass(frozen=True, repr=False)
    class Other(Ball):
        def reach(self, evidence: Evidence) -> np.ndarray:  # no promise about this one
            return np.cos(evidence.nearest_distance())

    both = make_layer(np.random.default_rng(2), 9, np.arange(9) % 3)[1]
    with pytest.raises(InputError, match="Other does not promise"):
        find_support(both, Other(1.0), np.zeros(N, dtype=np.int64))
