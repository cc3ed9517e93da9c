"""One experiment with one seed: its methods against label sets collected sample by sample, and the
protocol: complete, repeatable, and chosen without a look at test data."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import product

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_digits

from iknow import Assertion, EpistemicClassifier
from iknow.errors import MissingExtraError
from iknow.explain.assessment import Assessment
from iknow.rules import Ball
from iknow.testing import brute_force
from reproduction import methods, protocol
from reproduction.data.datasets import Dataset, load_dataset
from reproduction.methods import (
    METHODS,
    Chosen,
    Default,
    choose,
    confidence_of,
    find_known,
    tune_default,
)
from reproduction.protocol import run_seed
from reproduction.setups import SETUPS, Architecture, Attack, Convolution, Noise, Setup, Training
from reproduction.tables import METRICS
from reproduction.torch import one_thread, train_network

pytestmark = pytest.mark.slow
PAPERS_OWN = [method for method in METHODS if method != "default"]


class Problem:
    """Training samples of three classes that overlap, and queries, in two layers."""

    def __init__(self, seed, n_train=40, n_queries=25, rounded=None, spread=2.0):
        rng = np.random.default_rng(seed)
        rounded = seed % 2 == 0 if rounded is None else rounded
        self.labels = rng.permutation(np.arange(n_train) % 3)
        self.y_true = rng.integers(3, size=n_queries)
        self.points, self.queries = {}, {}
        for layer, width in [("relu2", 3), ("logits", 2)]:
            centers = spread * rng.normal(size=(3, width))
            for kept, codes in ((self.points, self.labels), (self.queries, self.y_true)):
                values = centers[codes] + rng.normal(size=(len(codes), width))
                kept[layer] = (np.rint(values) if rounded else values).astype(np.float32)
        mistaken = rng.random(n_queries) < 0.2
        self.belief = np.where(mistaken, rng.integers(3, size=n_queries), self.y_true)
        self.scores = rng.normal(size=(n_queries, 3)) + 3 * np.eye(3)[self.belief]

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
        steps = problem.points[layer].astype(float) - problem.queries[layer][i]
        supports.append(support_of(layer, np.sqrt(np.square(steps).sum(axis=1)), problem.labels))
    justified = set() if not all(supports) else set().union(*supports)
    if problem.belief[i] not in justified:
        return "IDK"
    return "IK" if len(justified) == 1 else "IMK"


def slow_known(problem, chosen):
    """What each method knows, from the paper's definitions and from those in its code."""

    def within(reach, distances, labels):
        return {int(label) for d, label in zip(distances, labels, strict=True) if d <= reach}

    def ball(layer, distances, labels):
        return within(chosen.radii[layer], distances, labels)

    def nearest(layer, distances, labels):
        return within(sorted(distances)[chosen.k - 1], distances, labels)

    def first_hybrid(*arguments):
        return ball(*arguments) or nearest(*arguments)

    def second_hybrid(*arguments):
        return ball(*arguments) | nearest(*arguments) if ball(*arguments) else set()

    rules = {"knn": nearest, "ball": ball, "h1": first_hybrid, "h2": second_hybrid}
    known = {method: [] for method in PAPERS_OWN}
    for i in range(len(problem.belief)):
        said = {name: answer(problem, i, tuple(chosen.radii), rule) for name, rule in rules.items()}
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
        problem, rng = Problem(seed), np.random.default_rng(seed)
        radii = {layer: float(rng.choice([1.0, 1.5, 2.0])) for layer in layers}
        chosen = Chosen(radii, int(rng.integers(1, 6)), float(rng.random()), coverage=0.5)
        # The assessment may hold more layers and more neighbours than are asked for.
        found, expected = find_known(chosen, problem.assess(k=8)), slow_known(problem, chosen)
        assert sorted(found) == sorted(PAPERS_OWN)
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
    found = find_known(Chosen({"logits": 2.0}, 1, 0.9, 0.5), problem.assess(2, ("logits",)))
    assert found["ball"].tolist() == [False, False]
    assert found["knn"].tolist() == [True, True]
    assert found["h1_code"].tolist() == [False, True]


def share_known(problem, layers, reaches):
    """The share of IK by sets: reaches, by layer and query."""
    evidence = problem.assess(20, layers).evidence
    known = []
    for i, code in enumerate(problem.belief):
        distances = [evidence[layer].class_distances[i] for layer in layers]
        found = [set(np.flatnonzero(d <= r[i])) for d, r in zip(distances, reaches, strict=True)]
        known.append(all(found) and set().union(*found) == {code})
    return np.mean(known)


@pytest.mark.parametrize("layers", [("relu2", "logits"), ("logits",)])
@pytest.mark.parametrize("seed", range(4))
def test_the_ball_has_the_largest_coverage_and_the_others_match_it(layers, seed):
    problem = Problem(seed, n_train=20, n_queries=12)
    chosen = choose(problem.assess, problem.y_true, layers, n_train=20)
    assert tuple(chosen.radii) == layers
    evidence = problem.assess(20, layers).evidence
    radii = product(*(np.unique(evidence[layer].class_distances) for layer in layers))
    best = max(share_known(problem, layers, [[r] * 12 for r in pair]) for pair in radii)
    assert chosen.coverage == pytest.approx(best)
    found = {m: known.mean() for m, known in find_known(chosen, problem.assess(20)).items()}
    assert found["ball"] == pytest.approx(best)
    by_k = [
        share_known(problem, layers, [evidence[each].neighbor_distances[:, k] for each in layers])
        for k in range(20)
    ]
    gaps = np.abs(np.array(by_k) - best)
    assert chosen.k == int(np.argmin(gaps)) + 1
    assert abs(found["knn"] - best) == pytest.approx(min(gaps))
    confidence = [max(softmax(row)) for row in problem.scores]
    reachable = [sum(c >= t for c in confidence) / 12 for t in [*confidence, np.inf]]
    nearest = min(abs(each - best) for each in reachable)
    assert abs(found["softmax"] - best) == pytest.approx(nearest, abs=1e-12)


def choose_with(monkeypatch, first, problem, n_train, layers=("logits",)):
    """The choice when so many neighbours are asked for at first, and the numbers asked for."""
    monkeypatch.setattr(methods, "FIRST_NEIGHBORS", first)
    asked = []

    def assess(n_neighbors):
        asked.append(n_neighbors)
        return problem.assess(n_neighbors)

    return choose(assess, problem.y_true, layers, n_train), asked


def test_more_neighbours_are_asked_for_and_k_is_the_best_of_all(monkeypatch):
    rounds = []
    for seed, (n, spread) in product(range(20), ((60, 3.0), (60, 10.0), (12, 2.0))):
        problem = Problem(seed, n_train=60, n_queries=n, rounded=False, spread=spread)
        wanted, numbers = choose_with(monkeypatch, 128, problem, 60)
        assert numbers == [60]
        found, numbers = choose_with(monkeypatch, 2, problem, 60)
        assert numbers == [2, 8, 32, 60][: len(numbers)]
        assert (found.radii, found.threshold) == (wanted.radii, wanted.threshold)
        if n == 12:
            assert found.k == wanted.k
        elif len(numbers) > 1:
            assert found.k >= numbers[-2] or found.k == wanted.k
        rounds.append(len(numbers))
    assert len(set(rounds)) >= 3  # the problems do ask for different numbers
    few = choose_with(monkeypatch, 128, Problem(1, n_train=7), 7, ("relu2", "logits"))
    assert few[1] == [7]


def test_confidence_is_the_largest_softmax():
    scores = np.random.default_rng(0).normal(size=(50, 4)) * np.logspace(-2, 3, 50)[:, None]
    np.testing.assert_allclose(confidence_of(scores), softmax(scores, axis=1).max(axis=1))
    assert confidence_of(np.array([[1e4, 0.0], [-1e4, -1e4]])).tolist() == [1.0, 0.5]


# iknow's default

COVERAGES = {"two": 0.62, "logit": 0.85}


def test_one_search_gives_what_each_classifier_tuned_by_itself_asserts():
    X, y = load_digits(return_X_y=True)
    X, order = (X / 16).astype(np.float32), np.random.default_rng(0).permutation(len(y))
    train, val, test = ((X[rows], y[rows]) for rows in np.split(order, [900, 1300]))
    training = Training(batch=32, epochs=20, least=0.8)
    with one_thread():
        network, _ = train_network(Architecture(hidden=(32, 16)), training, train, val, 10, seed=0)

    def wrap():
        return EpistemicClassifier(network, classes=np.arange(10), progress=False).fit(*train)

    default = tune_default(wrap(), val[0], COVERAGES)
    assert list(default.levels) == list(COVERAGES)
    assert default.classifier.layers_ == ("input", "relu2")  # as it comes
    assert default.classifier.selection_.levels.quorum == (1, 3)
    for layers, known in default.find_known(val[0]).items():
        assert known.mean() == pytest.approx(COVERAGES[layers], abs=0.01)
    noise = np.random.default_rng(1).normal(0, 0.2, test[0].shape).astype(np.float32)
    for asked in (test[0], test[0] + noise):
        found = default.find_known(asked)
        for layers, coverage in COVERAGES.items():
            alone = wrap().tune(val[0], coverage=coverage).assess(asked)
            np.testing.assert_array_equal(found[layers], alone.assertion == Assertion.IK)
        # The levels are nested: more coverage keeps all that was known.
        assert (found["two"] <= found["logit"]).all()
        assert (found["two"] != found["logit"]).any()


# The protocol

IRIS = Setup(
    name="iris",
    published="iris",
    dataset="iris",
    architecture=Architecture(hidden=(8, 5)),
    training=Training(batch=16, epochs=30, least=0.0, until=0.9, rate=0.01),
    layers=("relu2", "logits"),
    noise=Noise(gaussian=0.03, uniform=0.09, relative=True, large=0.5),
)
SERIES = replace(
    IRIS,
    name="synthetic_control",
    published="synthetic_control",
    dataset="synthetic_control",
    architecture=Architecture(convolutions=(Convolution(4, 3), Convolution(5, 4))),
    layers=("relu2", "gap"),
    noise=Noise(gaussian=0.1, uniform=0.3, limits=(0.0, 1.0)),
    attack=Attack(0.1, 0.02, 5),
)
BOTH = pytest.mark.parametrize("setup", [IRIS, SERIES], ids=["iris", "series"])


def make_series(seed=0, n=60, noise=0.15):
    """Short series in [0, 1] of three classes that overlap."""
    rng, parts = np.random.default_rng(seed), {}
    for part in ("train", "val", "test"):
        y = rng.permutation(np.arange(n) % 3)
        X = 0.25 + 0.25 * y[:, None, None] + noise * rng.normal(size=(n, 1, 12))
        parts |= {f"X_{part}": np.clip(X, 0, 1).astype(np.float32), f"y_{part}": y}
    return Dataset(name="series", classes=("a", "b", "c"), **parts)


@pytest.fixture
def serve(monkeypatch):
    """Serve made-up series as a dataset, or another one; the function says which."""

    def serve(dataset):
        monkeypatch.setattr(protocol, "load_dataset", lambda name, seed: dataset)

    serve(make_series())
    return serve


def conditions_of(setup):
    return ("nominal", "gaussian", "uniform", "large" if setup.attack is None else "adversarial")


def table_of(outcome):
    return {(c.layers, c.method, c.perturbation, c.metric): c.value for c in outcome.cells}


@BOTH
def test_every_cell_is_there_once_and_the_parts_add_up_to_the_accuracy(setup, serve):
    if setup is IRIS:
        serve(load_dataset("iris", 1))
    outcome = run_seed(setup, 1)
    assert (outcome.name, outcome.seed) == (setup.name, 1)
    found, conditions = table_of(outcome), conditions_of(setup)
    assert set(found) == set(product(("two", "logit"), METHODS, conditions, METRICS))
    assert len(outcome.cells) == len(found)
    for (*_, metric), value in found.items():
        assert type(value) is float or (value is None and metric != "F_IK")
        assert value is None or 0 <= value <= 1
    json.dumps(outcome.facts, allow_nan=False)
    assert list(outcome.facts["accuracy"]) == list(conditions)
    for layers, method, condition in product(("two", "logit"), METHODS, conditions):
        covered, inside, outside = (found[layers, method, condition, each] for each in METRICS)
        total = covered * (inside or 0) + (1 - covered) * (outside or 0)
        assert total == pytest.approx(outcome.facts["accuracy"][condition], abs=1e-12)
        assert (inside is None, outside is None) == (covered == 0, covered == 1)


def test_on_validation_data_all_methods_match_the_coverage_of_the_ball(serve):
    data = make_series()
    serve(replace(data, X_test=data.X_val, y_test=data.y_val))
    outcome = run_seed(SERIES, 0)
    found = table_of(outcome)
    for layers, chosen in outcome.facts["chosen"].items():
        assert found[layers, "ball", "nominal", "F_IK"] == pytest.approx(chosen["coverage"])
        for method in ("softmax", "knn", "default"):
            gap = abs(found[layers, method, "nominal", "F_IK"] - chosen["coverage"])
            assert gap <= 0.1, method
        assert list(chosen["radii"]) == list(SERIES.layer_sets[layers])
    assert outcome.facts["validation_accuracy"] == outcome.facts["accuracy"]["nominal"]


def test_training_and_both_searches_are_on_the_device(serve, monkeypatch):
    from reproduction import torch as networks

    seen, train_as_ever = [], networks.train_network

    def train(*arguments):
        seen.append(arguments[-1])
        return train_as_ever(*arguments[:-1])

    def wrap(*arguments, search, **options):
        seen.append(search)
        return EpistemicClassifier(*arguments, **options)

    monkeypatch.setattr(networks, "train_network", train)
    monkeypatch.setattr(protocol, "EpistemicClassifier", wrap)
    here = run_seed(SERIES, 0)
    assert seen == ["cpu", None, None]  # iknow's own search, not torch's
    assert run_seed(SERIES, 0, "cuda") == here  # and the outcome does not say where
    assert seen[3:] == ["cuda"] * 3
    assert table_of(run_seed(SERIES, 6)) != table_of(here)


SCRIPT = """
import json
from dataclasses import asdict, replace
from reproduction.protocol import run_seed
from reproduction.setups import SETUPS, Training
setup = replace(SETUPS["iris"], training=Training(16, 30, 0.0, 0.9, rate=0.01))
print(json.dumps(asdict(run_seed(setup, 3))))
"""


def test_another_process_with_other_threads_gives_the_same():
    here = run_seed(replace(SETUPS["iris"], training=IRIS.training), 3)
    threads = {f"{name}_NUM_THREADS": "3" for name in ("OMP", "MKL", "OPENBLAS")}
    command, pipes = [sys.executable, "-c", SCRIPT], {"capture_output": True, "text": True}
    there = subprocess.run(command, env=os.environ | threads, check=True, **pipes)
    assert json.loads(there.stdout) == json.loads(json.dumps(asdict(here)))


@BOTH
def test_nothing_is_chosen_on_test_data(setup, serve):
    data = load_dataset("iris", 0) if setup is IRIS else make_series()
    serve(data)
    outcome, rng = run_seed(setup, 0), np.random.default_rng(0)
    poison = rng.random(data.X_test.shape, dtype=np.float32)
    serve(replace(data, X_test=poison, y_test=rng.permutation(data.y_test)))
    other = run_seed(setup, 0)
    for fact in ("chosen", "epochs", "validation_accuracy"):
        assert other.facts[fact] == outcome.facts[fact]
    assert other.facts["accuracy"] != outcome.facts["accuracy"]
    serve(replace(data, y_val=np.roll(data.y_val, 1), X_val=data.X_val[::-1].copy()))
    assert run_seed(setup, 0).facts["chosen"] != outcome.facts["chosen"]


def test_an_accuracy_over_no_samples_is_undefined(serve, monkeypatch):
    data = make_series(noise=0.02)
    still = replace(SERIES, noise=Noise(0.0, 0.0), attack=Attack(1e-6, 1e-6, 1))
    serve(replace(data, X_test=1000 + data.X_test))  # like nothing in the training part
    found = table_of(run_seed(still, 0))
    assert found["two", "ball", "nominal", "F_IK"] == 0
    assert found["two", "ball", "nominal", "A_IK"] is None
    assert found["two", "ball", "nominal", "A_notIK"] is not None

    def know_all_or_none(chosen, assessment):
        return {method: np.full(len(assessment), method == "knn") for method in METHODS}

    def know_none(self, X):
        return {each: np.zeros(len(X), bool) for each in self.levels}

    monkeypatch.setattr(protocol, "find_known", know_all_or_none)
    monkeypatch.setattr(Default, "find_known", know_none)
    found = table_of(run_seed(still, 0))
    for layers, method, condition, _ in found:
        share, inside, outside = (found[layers, method, condition, each] for each in METRICS)
        assert share == (method == "knn")
        assert [each is None for each in (inside, outside)] == [method != "knn", method == "knn"]


def recorded(setup, data, seed=0):
    return dict(protocol._perturb(replace(setup, attack=None), data, object(), seed))


def test_noise_is_in_units_of_the_training_part():
    data = make_series()
    wide = replace(
        data,
        X_train=np.random.default_rng(0).uniform(-3, 7, data.X_train.shape).astype(np.float32),
        X_test=np.full((2000, 1, 12), 0.5, dtype=np.float32),
    )
    deviation, spread = float(wide.X_train.std()), float(np.ptp(wide.X_train))
    noise = Noise(gaussian=0.2, uniform=0.3, relative=True, large=0.5)
    found = recorded(replace(SERIES, noise=noise), wide)
    assert list(found) == ["nominal", "gaussian", "uniform", "large"]
    np.testing.assert_array_equal(found["nominal"], wide.X_test)
    assert (found["gaussian"] - 0.5).std() == pytest.approx(0.2 * deviation, rel=0.03)
    assert np.abs(found["uniform"] - 0.5).max() == pytest.approx(0.3 * deviation, rel=0.01)
    assert np.abs(found["large"] - 0.5).max() == pytest.approx(0.5 * spread, rel=0.01)
    absolute = recorded(replace(SERIES, noise=Noise(0.2, 0.3, limits=(0.0, 0.6))), wide)
    assert list(absolute) == ["nominal", "gaussian", "uniform"]
    assert np.abs(absolute["uniform"] - 0.5).max() == pytest.approx(0.3, rel=0.01)
    assert max(each.max() for each in absolute.values()) <= np.float32(0.6)
    again, other = recorded(SERIES, wide), recorded(SERIES, wide, seed=1)
    np.testing.assert_array_equal(again["uniform"], recorded(SERIES, wide)["uniform"])
    assert not np.isclose(again["uniform"], other["uniform"]).all()


def test_the_attack_is_on_the_clean_test_inputs(serve, monkeypatch):
    from reproduction import art

    seen = []

    def record(network, X, *rest):
        seen.append((X.copy(), *rest))
        return X

    monkeypatch.setattr(art, "attack_inputs", record)
    found = table_of(run_seed(SERIES, 0))
    ((X, n_classes, attack, limits),) = seen
    np.testing.assert_array_equal(X, make_series().X_test)
    assert (n_classes, attack, limits) == (3, SERIES.attack, (0.0, 1.0))
    for layers, method, _, metric in found:
        clean, attacked = (
            found[layers, method, condition, metric] for condition in ("nominal", "adversarial")
        )
        assert clean == attacked


@pytest.mark.parametrize(
    ("module", "message"),
    [("torch", "reproducing the paper needs"), ("art", "the adversarial conditions needs")],
)
def test_a_package_that_is_not_installed_is_named(serve, monkeypatch, module, message):
    monkeypatch.setitem(sys.modules, f"reproduction.{module}", None)
    with pytest.raises(MissingExtraError, match=rf"{message}.*iknow\[reproduction\]"):
        run_seed(SERIES, 0)


def test_a_limit_takes_a_part_of_each_and_keeps_samples_with_their_labels():
    n = 100
    parts = {
        f"X_{part}": np.arange(n, dtype=np.float32)[:, None] for part in ("train", "val", "test")
    }
    parts |= {f"y_{part}": np.arange(n) // 10 for part in ("train", "val", "test")}
    data = Dataset(name="numbers", classes=tuple("0123456789"), **parts)
    assert protocol._limit(data, None) is data
    limited, again = (protocol._limit(data, 20) for _ in range(2))
    for part, size in [("train", 80), ("val", 20), ("test", 20)]:
        X, y = getattr(limited, f"X_{part}"), getattr(limited, f"y_{part}")
        assert len(X) == len(np.unique(X)) == size
        np.testing.assert_array_equal(X[:, 0] // 10, y)
        assert len(np.unique(y)) > 5  # the parts are sorted by class, the limited ones not
    np.testing.assert_array_equal(again.X_test, limited.X_test)
    assert len(protocol._limit(data, 1000).y_test) == n
