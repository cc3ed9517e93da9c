"""A model that was trained again in place is noticed, and one that was not is left alone."""

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from iknow import Ball, EpistemicClassifier
from iknow.errors import InputError
from iknow.models import Probe, unchanged
from iknow.models.adapt import as_model
from iknow.models.unchanged import alike, find_parts

X, Y = load_iris(return_X_y=True)
X = X.astype(np.float32)
OTHER = np.where(np.arange(len(Y)) % 3, Y, (Y + 1) % 3)  # labels for another training

ESTIMATORS = {
    "lines": LogisticRegression(max_iter=1000),
    "bayes": GaussianNB(),
    "neighbors": KNeighborsClassifier(),
    "forest": RandomForestClassifier(5, random_state=0),
    "boosting": HistGradientBoostingClassifier(max_iter=5),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
}
WRAPPED = {
    "itself": lambda estimator: estimator,
    "frozen": FrozenEstimator,
    "a method": lambda estimator: estimator.predict_proba,
    "a function": lambda estimator: lambda rows: estimator.predict_proba(rows),
    "a partial": lambda estimator: partial(ask, estimator),
    "an object": lambda estimator: Asking({"inside": [estimator]}),
}


class Asking:
    def __init__(self, held):
        self.held = held

    def __call__(self, rows):
        return self.held["inside"][0].predict_proba(rows)


def ask(estimator, rows):
    return estimator.predict_proba(rows)


def fit(model, **options):
    return EpistemicClassifier(model, rule=Ball(1.0), progress=False, **options).fit(X, Y)


CASES = [(name, "itself") for name in ESTIMATORS] + [("pipeline", how) for how in WRAPPED]


@pytest.mark.parametrize(("name", "how"), CASES)
def test_an_estimator_that_was_trained_again_is_noticed_at_once(name, how):
    estimator = ESTIMATORS[name].fit(X, Y)
    classifier = fit(WRAPPED[how](estimator))
    for rows in (1, 7, len(X)):  # other batches change the last bits
        classifier.assess(X[:rows])
    estimator.fit(X, OTHER)
    for _ in range(2):  # it does not get used to it
        with pytest.raises(InputError, match=r"does not answer as it did.*call fit and tune again"):
            classifier.assess(X[:1])
    assert len(classifier.fit(X, Y).assess(X[:1])) == 1


def test_a_model_trained_again_before_the_first_answer_is_noticed():
    estimator = ESTIMATORS["lines"].fit(X, Y)
    classifier = EpistemicClassifier(estimator, progress=False).fit(X[::2], Y[::2])
    estimator.fit(X, OTHER)
    with pytest.raises(InputError, match="does not answer as it did"):
        classifier.tune(X[1::2], coverage=0.8)


def test_training_that_goes_on_is_noticed():
    estimator = SGDClassifier(loss="log_loss", random_state=0).fit(X, Y)
    classifier = fit(estimator)
    classifier.assess(X[:1])
    estimator.partial_fit(X, OTHER)
    with pytest.raises(InputError, match="does not answer as it did"):
        classifier.assess(X[:1])


def train(module, labels):
    optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(torch.tensor(X)), torch.tensor(labels)).backward()
        optimizer.step()


def step(module):
    train(module, OTHER)


def load_state(module):
    module.load_state_dict({name: 1.1 * value for name, value in module.state_dict().items()})


def replace_a_part(module):
    module[2] = nn.Linear(8, 3)


@pytest.mark.parametrize("change", [step, load_state, replace_a_part])
@pytest.mark.parametrize("wrap", [lambda module: module, lambda module: partial(score, module)])
def test_a_module_whose_weights_changed_is_noticed_at_once(change, wrap):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    train(module, Y)
    classifier = fit(wrap(module))
    module.train()
    for rows in (1, 7, len(X)):
        classifier.assess(X[:rows])
    change(module)
    with pytest.raises(InputError, match="does not answer as it did"):
        classifier.assess(X[:1])


def to_tf32(values):
    """As graphics processors round the factors of a product."""
    return ((values.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def test_the_rounding_of_a_graphics_processor_is_no_change():
    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (nn.Linear(32, 32), nn.ReLU())]
    module = nn.Sequential(nn.Linear(4, 32), *layers, nn.Linear(32, 3))
    train(module, Y)
    classifier = fit(module)
    probe = classifier.plan_.probe
    for part in module.modules():
        if isinstance(part, nn.Linear):
            with torch.no_grad():
                part.weight.copy_(to_tf32(part.weight))
            part.register_forward_pre_hook(lambda _, given: (to_tf32(given[0]),))
    assert probe.find_difference(classifier.model_) is not None  # `load` is stricter
    classifier.assess(X)


def score(module, rows):
    with torch.no_grad():
        return module(torch.as_tensor(rows)).numpy()


@pytest.fixture
def asked(monkeypatch):
    """How often a model was asked about its probe."""
    counts = []
    find = Probe.find_difference
    monkeypatch.setattr(
        Probe, "find_difference", lambda *given: counts.append(1) or find(*given), raising=True
    )
    return counts


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(unchanged, "monotonic", lambda: now[0])
    return now


def test_an_array_that_was_written_to_is_noticed_within_a_second(asked, clock):
    estimator = ESTIMATORS["lines"].fit(X, Y)
    classifier = fit(estimator)
    classifier.assess(X[:1])
    estimator.coef_[:] *= -1
    classifier.assess(X[:1])
    clock[0] += unchanged.SECONDS
    with pytest.raises(InputError, match="does not answer as it did"):
        classifier.assess(X[:1])


def test_a_model_is_asked_once_a_second_at_most_and_in_a_hundredth_of_the_time(
    asked, clock, monkeypatch
):
    classifier = fit(ESTIMATORS["lines"].fit(X, Y))
    for _ in range(5):
        classifier.assess(X[:1])
    assert len(asked) == 1
    clock[0] += unchanged.SECONDS
    find = Probe.find_difference

    def slowly(*given):
        clock[0] += 3.0
        return find(*given)

    monkeypatch.setattr(Probe, "find_difference", slowly)
    classifier.assess(X[:1])
    clock[0] += 299.0
    classifier.assess(X[:1])
    assert len(asked) == 2
    clock[0] += 1.0
    classifier.assess(X[:1])
    assert len(asked) == 3


def test_a_model_that_replaces_its_own_parts_is_asked_by_the_clock_alone(asked, clock):
    class Counting(Asking):
        calls = 0.5

        def __call__(self, rows):
            self.calls += 1.0
            return super().__call__(rows)

    classifier = fit(Counting({"inside": [ESTIMATORS["lines"].fit(X, Y)]}))
    for _ in range(20):
        classifier.assess(X[:1])
    assert len(asked) == 1 + unchanged.PATIENCE
    clock[0] += unchanged.SECONDS
    classifier.assess(X[:1])
    assert len(asked) == 2 + unchanged.PATIENCE


def test_parts_are_told_apart_even_if_the_old_ones_are_gone():
    """Python likes to give the address of an array that is gone to the next one."""
    estimator = ESTIMATORS["lines"].fit(X, Y)
    before = find_parts(as_model(estimator))
    for _ in range(50):
        estimator.coef_ = estimator.coef_.copy()
        assert not alike(before, find_parts(as_model(estimator)))


def test_a_pickled_classifier_asks_anew(asked):
    classifier = fit(ESTIMATORS["lines"].fit(X, Y))
    classifier.assess(X[:1])
    again = pickle.loads(pickle.dumps(classifier))
    again.assess(X[:1])
    again.assess(X[:1])
    assert len(asked) == 2


def test_a_loaded_classifier_notices_too_unless_any_model_will_do(tmp_path):
    estimator = ESTIMATORS["lines"].fit(X, Y)
    fit(estimator).save(tmp_path / "iris.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "iris.iknow", estimator)
    estimator.fit(X, OTHER)
    with pytest.raises(InputError, match="does not answer as it did"):
        loaded.assess(X[:1])
    some = EpistemicClassifier.load(tmp_path / "iris.iknow", estimator, check_model=False)
    assert len(some.assess(X[:1])) == 1


def test_predictions_are_the_models_own_and_ask_nothing(asked):
    classifier = fit(ESTIMATORS["lines"].fit(X, Y))
    classifier.predict(X[:1])
    assert not asked
