"""Samples that fit has seen are refused by tune; those that merely look alike are not."""

from itertools import product

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from iknow import Ball, EpistemicClassifier, Nearest, RelativeBall
from iknow.errors import InputError
from iknow.metrics import Minkowski, Weighted
from iknow.models import PrecomputedModel

COPIES = r"\d+ of the \d+ validation samples are copies of training samples"


def make_data(n, seed=0, decimals=None):
    """Three groups of points; with decimals rounded, so that many are alike."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = 3.0 * y[:, None] + rng.normal(size=(n, 2))
    return (X if decimals is None else np.round(X, decimals)), y


def fitted(X, y, **parameters):
    model = FrozenEstimator(LogisticRegression().fit(X, y))
    return EpistemicClassifier(model, progress=False, **parameters).fit(X, y)


GOALS = [
    {},
    {"accuracy": 0.8, "confidence": 0.8},
    {"accuracy": 0.8, "confidence": 0.8, "each_class": True},
    {"coverage": 0.5},
    {"false_alarm": 0.1},
]
PAPER_GOALS = [
    {},
    {"accuracy": 0.8, "confidence": 0.8},
    {"method": "grid"},
]


@pytest.mark.parametrize(
    ("rule", "goal"),
    [*product([RelativeBall], GOALS), *product([Ball], PAPER_GOALS)],
    ids=repr,
)
def test_the_training_data_is_refused_for_every_goal(rule, goal):
    X, y = make_data(200)
    classifier = fitted(X, y, rule=rule)
    with pytest.raises(InputError, match="200 of the 200 validation samples are copies"):
        classifier.tune(X, y, **goal)
    assert not hasattr(classifier, "selection_")
    classifier.tune(*make_data(200, seed=1), **goal)


@pytest.mark.parametrize("rule", [Nearest, RelativeBall])
def test_and_where_a_coverage_is_matched(rule):
    X, y = make_data(200)
    with pytest.raises(InputError, match=COPIES):
        fitted(X, y, rule=rule).tune(X, y, coverage=0.5)


@pytest.mark.parametrize(
    ("layers", "metric"),
    [
        (None, None),
        (None, Minkowski(1)),
        (["input", "output"], {"output": Weighted(np.eye(3)[:, :2] + 0.5)}),
    ],
    ids=repr,
)
def test_a_tenth_of_copies_is_refused_by_any_metric(layers, metric):
    X, y = make_data(600)
    new, y_true = make_data(450, seed=1)
    classifier = fitted(X, y, layers=layers, metric=metric)
    mixed = np.concatenate([new, X[:50]]), np.concatenate([y_true, y[:50]])
    with pytest.raises(InputError, match="50 of the 500 validation samples are copies"):
        classifier.tune(*mixed)


def test_a_copy_in_one_layer_alone_is_none():
    """All that the output of nearest neighbours can say it has said about training samples."""
    X, y = make_data(300)
    model = FrozenEstimator(KNeighborsClassifier(3).fit(X, y))
    classifier = EpistemicClassifier(model, ["input", "output"], progress=False).fit(X, y)
    classifier.tune(*make_data(300, seed=1))


@pytest.mark.parametrize("seed", range(5))
def test_data_that_repeats_itself_may_be_split_at_random(seed):
    X, y = make_data(900, seed, decimals=0)
    alike = [tuple(row) for row in X.tolist()]
    assert len(set(alike)) < 200
    fitted(X[:500], y[:500]).tune(X[500:], y[500:])


def test_precomputed_outputs_are_compared_too():
    X, y = make_data(300)
    outputs = np.eye(3)[y], {"a": X.astype(np.float32)}
    classifier = EpistemicClassifier(PrecomputedModel(), progress=False).fit(outputs, y)
    with pytest.raises(InputError, match="300 of the 300 validation samples are copies"):
        classifier.tune(outputs, y)


def test_fit_may_hold_out_samples_of_which_it_trains_on_copies():
    X, y = make_data(40)
    X, y = np.concatenate([X, X]), np.concatenate([y, y])
    classifier = EpistemicClassifier(LogisticRegression(), progress=False).fit(X, y)
    assert classifier.selection_.coverage > 0


@pytest.mark.parametrize("batch_size", [1, 3, 50])
def test_torch_gives_copies_away_in_batches_of_any_size(batch_size):
    """Its activations of one input differ in the last digits when it comes in another batch."""
    torch = pytest.importorskip("torch")
    X, y = make_data(200)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(2, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(64, 3)).eval()
    inputs = torch.tensor(X, dtype=torch.float32)
    classifier = EpistemicClassifier(network, progress=False).fit(inputs, y)
    classifier.set_params(batch_size=batch_size)
    with pytest.raises(InputError, match="200 of the 200 validation samples are copies"):
        classifier.tune(inputs, y)
