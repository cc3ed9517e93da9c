"""Assessments decided without evidence: the same answers, and the evidence on request."""

import pickle

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier

from iknow import EpistemicClassifier
from iknow.cli.assess import assertion_columns
from iknow.search.cells import CpuIndex, StepCost
from iknow.tables.columns import as_list
from iknow.testing import assert_same_evidence

pytest.importorskip("numba", reason="compiled search is the extra `fast`")


@pytest.fixture(autouse=True)
def _decides_however_few_rows(monkeypatch):
    monkeypatch.setattr(CpuIndex, "FEWEST_ROWS", 1)
    monkeypatch.setattr(StepCost, "allows_a_try", lambda cost: True)  # whatever walking costs


def make_data(n, seed, n_features=20):
    places = np.random.default_rng(0).normal(size=(3, n_features)) * 0.8
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    return places[y] + rng.normal(size=(n, n_features)), y


@pytest.fixture(scope="module")
def classifier():
    X, y = make_data(300, seed=0)
    network = FrozenEstimator(MLPClassifier((16, 12), max_iter=900, random_state=0).fit(X, y))
    return EpistemicClassifier(network, progress=False).fit(X, y).tune(*make_data(300, seed=1))


@pytest.fixture(scope="module")
def samples():
    X, _ = make_data(80, seed=2)
    X[::9] *= 4
    return X


def assert_same_answers(one, other):
    for name in ("assertion", "reason", "level", "weakest", "justification", "margin"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    for name in ("supports", "own_exemplars"):
        for layer, found in getattr(other, name).items():
            np.testing.assert_array_equal(getattr(one, name)[layer], found, name)
    assert one.to_dict() == other.to_dict()


def test_the_answers_are_those_of_the_evidence(classifier, samples):
    decided = classifier.assess(samples)
    assert decided.decisions is not None  # else nothing was tested
    gathered = classifier.assess(samples, evidence=True)
    assert gathered.decisions is None
    assert_same_answers(decided, gathered)
    for layer, evidence in gathered.evidence.items():
        assert_same_evidence(decided.evidence[layer], evidence)


def test_answers_gather_no_evidence(classifier, samples):
    decided = classifier.assess(samples)
    decided.to_dict(), decided.own_exemplars, decided.weakest
    assert repr(decided.evidence).endswith("found: 0")


def test_parts_layers_and_copies_of_it_agree(classifier, samples):
    decided, gathered = classifier.assess(samples), classifier.assess(samples, evidence=True)
    some = np.array([5, 0, 9, 9])
    assert_same_answers(decided[some], gathered[some])
    layer = list(decided.evidence)[-1:]
    assert_same_answers(decided.only(layer), gathered.only(layer))
    assert_same_answers(pickle.loads(pickle.dumps(decided)), gathered)
    under = decided.under(decided.neighborhoods)
    np.testing.assert_array_equal(under.assertion, gathered.under(decided.neighborhoods).assertion)


def test_a_sample_that_is_not_finite_is_invalid_and_affects_no_other(classifier, samples):
    broken = samples.copy()
    broken[3, 2] = np.nan
    decided, gathered = classifier.assess(broken), classifier.assess(broken, evidence=True)
    assert_same_answers(decided, gathered)
    assert decided.invalid[3]
    assert decided.level[3] == 0
    assert {rows[3] for rows in decided.own_exemplars.values()} == {-1}


def test_a_file_gets_the_distances_all_the_same(classifier, samples):
    columns = assertion_columns(classifier.assess(samples))
    expected = assertion_columns(classifier.assess(samples, evidence=True))
    assert list(columns) == list(expected)
    for name, column in expected.items():
        assert as_list(columns[name]) == as_list(column), name
