"""The copy that is trained, and the part of the data it does not see."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from iknow.classifier.fitting import seeded_clone, split_rows
from iknow.errors import InputError


def random_labels(seed):
    rng = np.random.default_rng(seed)
    n_classes = int(rng.integers(2, 6))
    return rng.integers(n_classes, size=int(rng.integers(6, 60)))


@pytest.mark.parametrize("fraction", [0.01, 0.25, 0.5, 0.99])
def test_rows_are_split_without_loss_and_every_class_keeps_one(fraction):
    for seed in range(50):
        labels = random_labels(seed)
        if np.unique(labels, return_counts=True)[1].max() < 2:
            continue
        training, held_out = split_rows(labels, fraction, seed)
        together = sorted([*training.tolist(), *held_out.tolist()])
        assert together == list(range(len(labels)))
        assert training.tolist() == sorted(training.tolist())
        assert held_out.tolist() == sorted(held_out.tolist())
        assert set(labels[training]) == set(labels)
        assert len(held_out) >= 1


def test_each_class_gives_its_fraction_rounded_down():
    labels = np.array(["a"] * 8 + ["b"] * 11 + ["c"] * 3)
    _, held_out = split_rows(labels, 0.25, 0)
    assert {name: int((labels[held_out] == name).sum()) for name in "abc"} == {
        "a": 2,
        "b": 2,
        "c": 0,
    }


def test_if_rounding_leaves_nothing_the_largest_class_gives_one():
    labels = np.array([0, 1, 1, 1, 2, 2])
    training, held_out = split_rows(labels, 0.25, 0)
    assert labels[held_out].tolist() == [1]
    assert len(training) == 5


def test_the_split_depends_on_the_seed_alone():
    labels = np.arange(200) % 4
    first, second = split_rows(labels, 0.25, 3), split_rows(labels, 0.25, 3)
    np.testing.assert_array_equal(first[1], second[1])
    assert split_rows(labels, 0.25, 4)[1].tolist() != first[1].tolist()
    assert first[1].tolist() != list(range(50))  # drawn at random, not the first ones


def test_too_few_samples_to_hold_any_out_are_refused():
    with pytest.raises(InputError, match="3 samples of 3 classes are too few"):
        split_rows(np.array([0, 1, 2]), 0.25, 0)


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 1.5, float("nan")])
def test_a_fraction_outside_0_to_1_is_refused(fraction):
    with pytest.raises(InputError, match="validation_fraction must lie between 0 and 1"):
        split_rows(np.array([0, 0, 1, 1]), fraction, 0)


def test_a_clone_is_another_untrained_estimator_with_the_same_parameters():
    estimator = LogisticRegression(C=3.5).fit([[0.0], [1.0]], [0, 1])
    copy = seeded_clone(estimator, 0)
    assert copy is not estimator
    assert copy.C == 3.5
    assert not hasattr(copy, "coef_")
    assert hasattr(estimator, "coef_")


def test_only_open_seeds_are_drawn_also_inside_a_pipeline():
    given = seeded_clone(MLPClassifier(random_state=7), 0)
    assert given.random_state == 7
    open_seed = seeded_clone(MLPClassifier(), 0)
    assert isinstance(open_seed.random_state, int)
    pipeline = seeded_clone(make_pipeline(StandardScaler(), RandomForestClassifier()), 0)
    assert isinstance(pipeline[-1].random_state, int)


def test_the_same_state_draws_the_same_seeds():
    seeds = [seeded_clone(MLPClassifier(), state).random_state for state in (1, 1, 2)]
    assert seeds[0] == seeds[1] != seeds[2]


def test_an_estimator_without_randomness_is_only_copied():
    pipeline = make_pipeline(StandardScaler())
    assert seeded_clone(pipeline, 0).get_params()["standardscaler__with_mean"] is True


@pytest.mark.parametrize("random_state", ["a", (), 0.5, -1, np.ones((2, 2)), 2**40], ids=repr)
def test_what_is_no_source_of_random_numbers_is_refused(random_state):
    with pytest.raises(InputError, match="random_state must be a whole number"):
        split_rows(np.array([0, 0, 1, 1]), 0.25, random_state)
