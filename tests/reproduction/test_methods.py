"""The methods of the tables against label sets that are collected sample by sample."""

from itertools import product

import numpy as np
import pytest
from scipy.special import softmax

from iknow.explain.assessment import Assessment
from iknow.rules import Ball
from iknow.testing import brute_force
from reproduction import methods
from reproduction.methods import METHODS, Chosen, choose, confidence_of, find_known

PAPERS_OWN = [method for method in METHODS if method != "default"]  # see test_default.py


class Problem:
    """Training samples of three classes that overlap, and queries, in two layers."""

    def __init__(self, seed, n_train=40, n_queries=25, rounded=None, spread=2.0):
        rng = np.random.default_rng(seed)
        self.rounded = seed % 2 == 0 if rounded is None else rounded
        self.labels = rng.permutation(np.arange(n_train) % 3)
        self.y_true = rng.integers(3, size=n_queries)
        self.points, self.queries = {}, {}
        for layer, width in [("relu2", 3), ("logits", 2)]:
            centers = spread * rng.normal(size=(3, width))
            self.points[layer] = self._round(centers[self.labels], rng)
            self.queries[layer] = self._round(centers[self.y_true], rng)
        mistaken = rng.random(n_queries) < 0.2
        self.belief = np.where(mistaken, rng.integers(3, size=n_queries), self.y_true)
        self.scores = rng.normal(size=(n_queries, 3)) + 3 * np.eye(3)[self.belief]

    def _round(self, centers, rng):
        values = centers + rng.normal(size=centers.shape)
        return (np.rint(values) if self.rounded else values).astype(np.float32)

    def assess(self, k, layers=("relu2", "logits")):
        evidence = {
            layer: brute_force(self.points[layer], self.labels, 3, self.queries[layer], k)
            for layer in layers
        }
        return Assessment(
            classes=np.arange(3),
            belief_codes=self.belief,
            scores=self.scores,
            evidence=evidence,
            neighborhoods=dict.fromkeys(layers, Ball(0.0)),
            invalid=np.zeros(len(self.belief), dtype=bool),
        )


def answer(problem, i, layers, support_of):
    """IK, IMK or IDK about one query, by the sets the layers find."""
    supports = []
    for layer in layers:
        points = problem.points[layer].astype(float)
        distances = np.sqrt(np.square(points - problem.queries[layer][i]).sum(axis=1))
        supports.append(support_of(layer, distances, problem.labels))
    justified = set() if not all(supports) else set().union(*supports)
    if problem.belief[i] not in justified:
        return "IDK"
    return "IK" if len(justified) == 1 else "IMK"


def slow_known(problem, chosen):
    """What each method knows, from the paper's definitions and from those in its code."""
    layers, k = tuple(chosen.radii), chosen.k

    def within(reach, distances, labels):
        return {int(label) for d, label in zip(distances, labels, strict=True) if d <= reach}

    def ball(layer, distances, labels):
        return within(chosen.radii[layer], distances, labels)

    def nearest(layer, distances, labels):
        return within(sorted(distances)[k - 1], distances, labels)

    def first_hybrid(*arguments):
        return ball(*arguments) or nearest(*arguments)

    def second_hybrid(*arguments):
        return ball(*arguments) | nearest(*arguments) if ball(*arguments) else set()

    rules = {"knn": nearest, "ball": ball, "h1": first_hybrid, "h2": second_hybrid}
    known = {method: [] for method in PAPERS_OWN}
    for i in range(len(problem.belief)):
        said = {method: answer(problem, i, layers, rule) for method, rule in rules.items()}
        said["h1_code"] = said["knn"] if said["ball"] == "IDK" else said["ball"]
        sure = max(softmax(problem.scores[i])) >= chosen.threshold
        said["softmax"] = "IK" if sure else "other"
        for method, word in said.items():
            known[method].append(word == "IK")
    return known


@pytest.mark.parametrize("layers", [("relu2", "logits"), ("logits",)])
def test_what_is_known_is_what_the_sets_say(layers):
    apart = dict.fromkeys([("h1", "h1_code"), ("knn", "h1"), ("ball", "h2")], 0)
    for seed in range(40):
        problem = Problem(seed)
        rng = np.random.default_rng(seed)
        chosen = Chosen(
            radii={layer: float(rng.choice([1.0, 1.5, 2.0])) for layer in layers},
            k=int(rng.integers(1, 6)),
            threshold=float(rng.random()),
            coverage=0.5,
        )
        # The assessment may hold more layers and more neighbours than are asked for.
        found = find_known(chosen, problem.assess(k=8))
        assert sorted(found) == sorted(PAPERS_OWN)
        expected = slow_known(problem, chosen)
        for method, known in found.items():
            assert known.dtype == bool
            np.testing.assert_array_equal(known, expected[method], err_msg=f"{method}, {seed}")
        for one, other in apart:
            apart[one, other] += int((found[one] != found[other]).sum())
        # The support of H-2 is a union, so the code's way, where both are IK, knows the same.
        np.testing.assert_array_equal(found["h2"], found["ball"] & found["knn"])
    # With one layer the nearest sample decides alike for H-1, too.
    assert (apart["h1", "h1_code"] > 0) == (len(layers) == 2)
    assert min(apart["knn", "h1"], apart["ball", "h2"]) > 0


def test_a_hybrid_of_the_code_is_made_of_assertions():
    """Ball IMK, k-NN IK: the paper's H-1 and the code's both stay with the ball."""
    problem = Problem(0, rounded=False)
    problem.labels = np.array([0, 1, 1])
    problem.belief, problem.scores = np.array([0, 0]), np.zeros((2, 3))
    problem.points["logits"] = np.array([[0], [1], [30]], dtype=np.float32)
    problem.queries["logits"] = np.array([[0.1], [-5]], dtype=np.float32)
    chosen = Chosen({"logits": 2.0}, 1, 0.9, 0.5)
    found = find_known(chosen, problem.assess(2, ("logits",)))
    assert found["ball"].tolist() == [False, False]
    assert found["knn"].tolist() == [True, True]
    assert found["h1_code"].tolist() == [False, True]


# The choice


def best_ball(evidence, belief):
    """The largest fraction of IK over all pairs of radii at which anything changes."""
    radii = [np.unique(layer.class_distances) for layer in evidence.values()]
    best = 0.0
    for pair in product(*radii):
        n_known = 0
        for i, code in enumerate(belief):
            supports = [
                set(np.flatnonzero(layer.class_distances[i] <= radius))
                for layer, radius in zip(evidence.values(), pair, strict=True)
            ]
            n_known += all(supports) and set().union(*supports) == {code}
        best = max(best, n_known / len(belief))
    return best


def coverage_of_nearest(problem, layers, k):
    assessment = problem.assess(k, layers)
    n_known = 0
    for i, code in enumerate(assessment.belief_codes):
        found = set()
        for layer in assessment.evidence.values():
            reach = layer.neighbor_distances[i, k - 1]
            found |= set(np.flatnonzero(layer.class_distances[i] <= reach))
        n_known += found == {code}
    return n_known / len(assessment)


@pytest.mark.parametrize("layers", [("relu2", "logits"), ("logits",)])
@pytest.mark.parametrize("seed", range(4))
def test_the_ball_has_the_largest_coverage_and_the_others_match_it(layers, seed):
    problem = Problem(seed, n_train=20, n_queries=12)
    chosen = choose(problem.assess, problem.y_true, layers, n_train=20)
    assert tuple(chosen.radii) == layers
    evidence = {layer: problem.assess(0).evidence[layer] for layer in layers}
    assert chosen.coverage == pytest.approx(best_ball(evidence, problem.belief))
    found = {m: known.mean() for m, known in find_known(chosen, problem.assess(20)).items()}
    assert found["ball"] == pytest.approx(chosen.coverage)

    gaps = [abs(coverage_of_nearest(problem, layers, k) - chosen.coverage) for k in range(1, 21)]
    assert chosen.k == int(np.argmin(gaps)) + 1
    assert abs(found["knn"] - chosen.coverage) == pytest.approx(min(gaps))

    confidence = [max(softmax(row)) for row in problem.scores]
    reachable = [sum(c >= t for c in confidence) / 12 for t in [*confidence, np.inf]]
    nearest = min(abs(each - chosen.coverage) for each in reachable)
    assert abs(found["softmax"] - chosen.coverage) == pytest.approx(nearest, abs=1e-12)


class Asked:
    """Assesses, and writes down how many neighbours it was asked for."""

    def __init__(self, problem):
        self.problem, self.numbers = problem, []

    def __call__(self, n_neighbors):
        self.numbers.append(n_neighbors)
        return self.problem.assess(n_neighbors)


def choose_with(monkeypatch, first, problem, n_train):
    """The choice when so many neighbours are asked for at first, and the numbers asked for."""
    monkeypatch.setattr(methods, "FIRST_NEIGHBORS", first)
    asked = Asked(problem)
    return choose(asked, problem.y_true, ("logits",), n_train), asked.numbers


def test_more_neighbours_are_asked_for_while_the_largest_k_is_the_best(monkeypatch):
    rounds = []
    for seed, spread in product(range(20), (3.0, 10.0)):
        problem = Problem(seed, n_train=60, n_queries=60, rounded=False, spread=spread)
        wanted, numbers = choose_with(monkeypatch, 128, problem, 60)
        assert numbers == [60]
        found, numbers = choose_with(monkeypatch, 2, problem, 60)
        assert numbers == [2, 8, 32, 60][: len(numbers)]
        assert (found.radii, found.threshold) == (wanted.radii, wanted.threshold)
        if len(numbers) > 1:
            assert found.k >= numbers[-2] or found.k == wanted.k
        rounds.append(len(numbers))
    assert len(set(rounds)) >= 3  # the problems do ask for different numbers


def test_k_is_the_best_of_all_however_many_neighbours_were_asked_for_first(monkeypatch):
    apart = []
    for seed in range(20):
        problem = Problem(seed, n_train=60, n_queries=12, rounded=False)
        wanted, _ = choose_with(monkeypatch, 128, problem, 60)
        found, _ = choose_with(monkeypatch, 2, problem, 60)
        apart += [seed] if found.k != wanted.k else []
    assert apart == []


def test_there_are_no_more_neighbours_than_training_samples():
    problem = Problem(1, n_train=7)
    asked = Asked(problem)
    choose(asked, problem.y_true, ("relu2", "logits"), n_train=7)
    assert asked.numbers == [7]


def test_confidence_is_the_largest_softmax():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(50, 4)) * np.logspace(-2, 3, 50)[:, None]
    np.testing.assert_allclose(confidence_of(scores), softmax(scores, axis=1).max(axis=1))
    assert confidence_of(np.array([[1e4, 0.0], [-1e4, -1e4]])).tolist() == [1.0, 0.5]
