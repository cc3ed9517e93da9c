"""Whether beliefs and labels belong together: what is told, and how rarely without cause."""

from itertools import permutations

import numpy as np
import pytest

from iknow.selection.agreement import find_order, find_slip

CLASSES = np.array(list("abcdefghij"))


def draw(seed, n, n_classes, knowledge, *, shares=None):
    """Beliefs that are right with a probability of `knowledge` and guessed otherwise."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(n_classes, n, p=shares)
    return np.where(rng.random(n) < knowledge, truth, rng.choice(n_classes, n)), truth


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_columns_in_another_order_are_told_with_the_order_that_they_have(n_classes):
    for seed in range(20):
        belief, truth = draw(seed, 400, n_classes, 0.8)
        order = np.random.default_rng(seed).permutation(n_classes)
        column = np.argsort(order)[belief]  # column j stands for class order[j]
        np.testing.assert_array_equal(find_order(column, truth, n_classes), order)


def test_the_order_is_the_one_with_the_largest_excess_of_all():
    belief, truth = draw(3, 600, 4, 0.5)
    column = np.array([2, 0, 3, 1])[belief]

    def excess(order):
        right = np.asarray(order)[column] == truth
        chance = sum((column == j).mean() * (truth == c).mean() for j, c in enumerate(order))
        return right.mean() - chance

    best = max(permutations(range(4)), key=excess)
    np.testing.assert_array_equal(find_order(column, truth, 4), best)


def test_two_columns_of_ten_that_changed_places_are_told():
    belief, truth = draw(0, 2000, 10, 0.95)
    column = np.array([1, 0, *range(2, 10)])[belief]
    said = find_slip(column, truth, CLASSES, "training", named=False)
    assert "stand for 'b', 'a', 'c'" in said
    assert "classes=[...]" in said


def test_labels_in_another_order_are_told_but_for_one_in_a_hundred():
    """As often as the test says, so its mean and variance are those of shuffled labels."""
    belief, truth = draw(0, 400, 3, 0.9, shares=[0.6, 0.3, 0.1])
    rng = np.random.default_rng(0)
    said = [
        find_slip(belief, rng.permutation(truth), CLASSES[:3], "training", named=True)
        for _ in range(2000)
    ]
    told = [each for each in said if each is not None]
    assert all("check that y is in the order of X" in each for each in told)
    assert 0.980 <= len(told) / len(said) <= 0.997


HONEST = {  # n, classes, knowledge, shares of the classes
    "weak": (5000, 2, 0.1, None),
    "of three tenths": (300, 2, 0.3, None),
    "of many classes": (500, 10, 0.1, None),
    "of rare classes": (3000, 3, 0.15, [0.98, 0.01, 0.01]),
    "tiny": (20, 3, 0.2, None),
    "two samples": (2, 2, 0.0, None),
}


@pytest.mark.parametrize("case", HONEST.values(), ids=HONEST)
def test_honest_models_are_left_alone(case):
    n, n_classes, knowledge, shares = case
    for seed in range(500):
        belief, truth = draw(seed, n, n_classes, knowledge, shares=shares)
        assert find_slip(belief, truth, CLASSES[:n_classes], "training", named=False) is None


def test_a_cautious_model_that_is_mostly_wrong_is_left_alone():
    """A screening test: it finds nearly every sick person, and sends most healthy ones along."""
    rng = np.random.default_rng(0)
    truth = (rng.random(5000) < 0.05).astype(int)
    belief = np.where(truth == 1, rng.random(5000) < 0.95, rng.random(5000) < 0.7).astype(int)
    assert (belief == truth).mean() < 0.4
    assert find_slip(belief, truth, CLASSES[:2], "training", named=False) is None


@pytest.mark.parametrize("n_positive", [0, 1, 5])
def test_a_model_that_nearly_always_says_the_same_is_left_alone(n_positive):
    for seed in range(200):
        rng = np.random.default_rng(seed)
        truth, belief = (rng.random(10_000) < 0.002).astype(int), np.zeros(10_000, int)
        belief[rng.choice(10_000, n_positive, replace=False)] = 1
        assert find_slip(belief, truth, CLASSES[:2], "training", named=False) is None


def test_a_third_of_the_labels_wrong_is_left_alone():
    belief, truth = draw(0, 1000, 2, 1.0)
    flipped = np.random.default_rng(1).random(1000) < 0.33
    for labels in (np.where(flipped, 1 - truth, truth), np.where(truth == 0, flipped, 1)):
        assert find_slip(belief, labels, CLASSES[:2], "training", named=False) is None


def test_a_model_that_always_says_the_same_is_left_alone_whatever_rounding_does():
    for seed in range(300):
        rng = np.random.default_rng(seed)
        n_classes = int(rng.integers(2, 6))
        truth = rng.choice(n_classes, int(rng.integers(2, 300)))
        belief = np.full(len(truth), rng.integers(n_classes))
        assert find_slip(belief, truth, CLASSES[:n_classes], "training", named=False) is None
