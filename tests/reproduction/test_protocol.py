"""One experiment with one seed: complete, repeatable, and chosen without a look at test data."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest

from iknow.classifier.estimator import EpistemicClassifier
from iknow.errors import MissingExtraError
from reproduction import protocol
from reproduction.data.datasets import Dataset, load_dataset
from reproduction.default import Default
from reproduction.methods import METHODS
from reproduction.protocol import run_seed
from reproduction.setups import SETUPS, Architecture, Attack, Convolution, Noise, Setup, Training
from reproduction.tables import METRICS

TRAINING = Training(batch=16, epochs=30, least=0.0, until=0.9, rate=0.01)
IRIS = Setup(
    name="iris",
    published="iris",
    dataset="iris",
    architecture=Architecture(hidden=(8, 5)),
    training=TRAINING,
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


def make_series(seed=0, n=60, noise=0.15):
    """Short series in [0, 1] of three classes that overlap."""
    rng = np.random.default_rng(seed)
    parts = {}
    for part in ("train", "val", "test"):
        y = rng.permutation(np.arange(n) % 3)
        X = 0.25 + 0.25 * y[:, None, None] + noise * rng.normal(size=(n, 1, 12))
        parts |= {f"X_{part}": np.clip(X, 0, 1).astype(np.float32), f"y_{part}": y}
    return Dataset(name="series", classes=("a", "b", "c"), **parts)


@pytest.fixture
def series(monkeypatch):
    """Serve made-up series as a dataset; the function says which."""

    def serve(dataset):
        monkeypatch.setattr(protocol, "load_dataset", lambda name, seed: dataset)

    serve(make_series())
    return serve


def conditions_of(setup):
    return ("nominal", "gaussian", "uniform", "large" if setup.attack is None else "adversarial")


def table_of(outcome):
    return {(c.layers, c.method, c.perturbation, c.metric): c.value for c in outcome.cells}


@pytest.mark.parametrize("setup", [IRIS, SERIES], ids=["iris", "series"])
def test_every_cell_is_there_once(setup, series):
    if setup is IRIS:
        series(load_dataset("iris", 1))
    outcome = run_seed(setup, 1)
    assert (outcome.name, outcome.seed) == (setup.name, 1)
    wanted = {
        (layers, method, condition, metric)
        for layers in ("two", "logit")
        for method in METHODS
        for condition in conditions_of(setup)
        for metric in METRICS
    }
    found = table_of(outcome)
    assert set(found) == wanted
    assert len(outcome.cells) == len(wanted)
    for (*_, metric), value in found.items():
        assert type(value) is float or (value is None and metric != "F_IK")
        assert value is None or 0 <= value <= 1
    json.dumps(outcome.facts, allow_nan=False)


@pytest.mark.parametrize("setup", [IRIS, SERIES], ids=["iris", "series"])
def test_the_parts_add_up_to_the_accuracy(setup, series):
    if setup is IRIS:
        series(load_dataset("iris", 2))
    outcome = run_seed(setup, 2)
    found = table_of(outcome)
    assert list(outcome.facts["accuracy"]) == list(conditions_of(setup))
    for condition, accuracy in outcome.facts["accuracy"].items():
        for layers in ("two", "logit"):
            for method in METHODS:
                covered, inside, outside = (
                    found[layers, method, condition, metric] for metric in METRICS
                )
                total = covered * (inside or 0) + (1 - covered) * (outside or 0)
                assert total == pytest.approx(accuracy, abs=1e-12)
                assert (inside is None) == (covered == 0)
                assert (outside is None) == (covered == 1)


def test_on_validation_data_all_methods_match_the_coverage_of_the_ball(series):
    data = make_series()
    series(replace(data, X_test=data.X_val, y_test=data.y_val))
    outcome = run_seed(SERIES, 0)
    found = table_of(outcome)
    for layers, chosen in outcome.facts["chosen"].items():
        assert found[layers, "ball", "nominal", "F_IK"] == pytest.approx(chosen["coverage"])
        for method in ("softmax", "knn", "default"):
            gap = abs(found[layers, method, "nominal", "F_IK"] - chosen["coverage"])
            assert gap <= 0.1, method
        assert list(chosen["radii"]) == list(SERIES.layer_sets[layers])
    assert outcome.facts["validation_accuracy"] == outcome.facts["accuracy"]["nominal"]


def test_a_seed_gives_the_same_again_and_another_does_not(series):
    one, same, other = (run_seed(SERIES, seed) for seed in (5, 5, 6))
    assert one == same
    assert table_of(one) != table_of(other)


def test_training_and_both_searches_are_on_the_device(series, monkeypatch):
    from reproduction import torch as networks

    seen = []

    def train(*arguments):
        *others, device = arguments
        seen.append(device)
        return train_network(*others)

    def wrap(*arguments, search, **options):
        seen.append(search)
        return EpistemicClassifier(*arguments, **options)

    train_network = networks.train_network
    monkeypatch.setattr(networks, "train_network", train)
    monkeypatch.setattr(protocol, "EpistemicClassifier", wrap)
    here = run_seed(SERIES, 0)
    assert seen == ["cpu", None, None]  # iknow's own search, not torch's
    assert run_seed(SERIES, 0, "cuda") == here  # and the outcome does not say where
    assert seen[3:] == ["cuda"] * 3


SCRIPT = """
import json
from dataclasses import asdict
from reproduction.protocol import run_seed
from reproduction.setups import SETUPS, Training
from dataclasses import replace
setup = replace(SETUPS["iris"], training=Training(16, 30, 0.0, 0.9, rate=0.01))
print(json.dumps(asdict(run_seed(setup, 3))))
"""


@pytest.mark.slow
def test_another_process_with_other_threads_gives_the_same():
    here = run_seed(replace(SETUPS["iris"], training=TRAINING), 3)
    threads = {f"{name}_NUM_THREADS": "3" for name in ("OMP", "MKL", "OPENBLAS")}
    there = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | threads,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(there.stdout) == json.loads(json.dumps(asdict(here)))


@pytest.mark.parametrize("setup", [IRIS, SERIES], ids=["iris", "series"])
def test_nothing_is_chosen_on_test_data(setup, series):
    data = load_dataset("iris", 0) if setup is IRIS else make_series()
    series(data)
    outcome = run_seed(setup, 0)
    rng = np.random.default_rng(0)
    poisoned = replace(
        data,
        X_test=rng.random(data.X_test.shape, dtype=np.float32),
        y_test=rng.permutation(data.y_test),
    )
    series(poisoned)
    other = run_seed(setup, 0)
    for fact in ("chosen", "epochs", "validation_accuracy"):
        assert other.facts[fact] == outcome.facts[fact]
    assert other.facts["accuracy"] != outcome.facts["accuracy"]
    series(replace(data, y_val=np.roll(data.y_val, 1), X_val=data.X_val[::-1].copy()))
    assert run_seed(setup, 0).facts["chosen"] != outcome.facts["chosen"]


def test_an_accuracy_over_no_samples_is_undefined(series, monkeypatch):
    data = make_series(noise=0.02)
    still = replace(SERIES, noise=Noise(0.0, 0.0), attack=Attack(1e-6, 1e-6, 1))
    series(replace(data, X_test=1000 + data.X_test))  # like nothing in the training part
    found = table_of(run_seed(still, 0))
    assert found["two", "ball", "nominal", "F_IK"] == 0
    assert found["two", "ball", "nominal", "A_IK"] is None
    assert found["two", "ball", "nominal", "A_notIK"] is not None

    def know_all_or_none(chosen, assessment):
        return {method: np.full(len(assessment), method == "knn") for method in METHODS}

    monkeypatch.setattr(protocol, "find_known", know_all_or_none)
    monkeypatch.setattr(
        Default,
        "find_known",
        lambda self, X: {each: np.zeros(len(X), bool) for each in self.levels},
    )
    found = table_of(run_seed(still, 0))
    for layers, method, condition, _ in found:
        share, inside, outside = (found[layers, method, condition, each] for each in METRICS)
        if method == "knn":
            assert (share, outside) == (1.0, None)
            assert inside is not None
        else:
            assert (share, inside) == (0.0, None)
            assert outside is not None


def recorded(setup, data, seed=0):
    network = object()
    return dict(protocol._perturb(replace(setup, attack=None), data, network, seed))


def test_noise_is_in_units_of_the_training_part():
    rng = np.random.default_rng(0)
    data = make_series()
    wide = replace(
        data,
        X_train=rng.uniform(-3, 7, data.X_train.shape).astype(np.float32),
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


def test_the_attack_is_on_the_clean_test_inputs(series, monkeypatch):
    from reproduction import art

    seen = []

    def record(network, X, n_classes, attack, limits):
        seen.append((X.copy(), n_classes, attack, limits))
        return X

    monkeypatch.setattr(art, "attack_inputs", record)
    outcome = run_seed(SERIES, 0)
    ((X, n_classes, attack, limits),) = seen
    np.testing.assert_array_equal(X, make_series().X_test)
    assert (n_classes, attack, limits) == (3, SERIES.attack, (0.0, 1.0))
    found = table_of(outcome)
    for layers, method, _, metric in found:
        clean, attacked = (
            found[layers, method, condition, metric] for condition in ("nominal", "adversarial")
        )
        assert clean == attacked


@pytest.mark.parametrize(
    ("module", "message"),
    [("torch", "reproducing the paper needs"), ("art", "the adversarial conditions needs")],
)
def test_a_package_that_is_not_installed_is_named(series, monkeypatch, module, message):
    monkeypatch.setitem(sys.modules, f"reproduction.{module}", None)
    with pytest.raises(MissingExtraError, match=rf"{message}.*iknow\[reproduction\]"):
        run_seed(SERIES, 0)


def test_a_limit_takes_a_part_of_each_and_keeps_samples_with_their_labels():
    n = 100
    numbers = np.arange(n, dtype=np.float32)[:, None]
    parts = {f"X_{part}": numbers for part in ("train", "val", "test")}
    parts |= {f"y_{part}": np.arange(n) // 10 for part in ("train", "val", "test")}
    data = Dataset(name="numbers", classes=tuple("0123456789"), **parts)
    assert protocol._limit(data, None) is data
    limited = protocol._limit(data, 20)
    for part, size in [("train", 80), ("val", 20), ("test", 20)]:
        X, y = getattr(limited, f"X_{part}"), getattr(limited, f"y_{part}")
        assert len(X) == len(np.unique(X)) == size
        np.testing.assert_array_equal(X[:, 0] // 10, y)
        assert len(np.unique(y)) > 5  # the parts are sorted by class, the limited ones not
    again = protocol._limit(data, 20)
    np.testing.assert_array_equal(again.X_test, limited.X_test)
    assert len(protocol._limit(data, 1000).y_test) == n
