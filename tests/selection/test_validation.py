"""Copies in honest splits against the promise that hardly any is refused; leaks are."""

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from iknow.errors import InputError
from iknow.selection.validation import LEVEL, SUSPICIOUS, chance_of_copies, check_copies


def split_counts(values, n_validation, rng):
    """What a random split of samples, alike where their values are, shows."""
    order = rng.permutation(len(values))
    validation, training = values[order[:n_validation]], values[order[n_validation:]]
    counts = np.bincount(training, minlength=values.max() + 1)
    copied, repeated = int((counts[validation] > 0).sum()), int((counts[training] > 1).sum())
    return copied, n_validation, repeated, len(training)


DATA = {
    "pairs": lambda rng: np.repeat(np.arange(300), np.where(np.arange(300) < 60, 2, 1)),
    "triples": lambda rng: np.repeat(np.arange(300), np.where(np.arange(300) < 40, 3, 1)),
    "a few values": lambda rng: rng.integers(6, size=300),
    "many values": lambda rng: rng.integers(400, size=300),
    "rare and common": lambda rng: np.minimum(rng.zipf(1.5, size=300), 5000),
    "zeros among many": lambda rng: np.where(rng.random(300) < 0.3, 0, 1 + np.arange(300)),
}


@pytest.mark.parametrize("n_validation", [40, 150, 240])
@pytest.mark.parametrize("make", DATA.values(), ids=DATA.keys())
def test_honest_splits_are_no_more_often_unlikely_than_they_may_be(make, n_validation):
    rng = np.random.default_rng(0)
    chances = np.array(
        [chance_of_copies(*split_counts(make(rng), n_validation, rng)) for _ in range(400)]
    )
    for level in (0.2, 0.05, 0.01):
        found = binomtest(int((chances <= level).sum()), 400, level, alternative="greater")
        assert found.pvalue > 1e-3


@pytest.mark.parametrize(("n_values", "n_training", "n"), [(55, 200, 2000), (30, 50, 500)])
def test_many_samples_of_few_values_are_not_refused(n_values, n_training, n):
    """All samples of a value have a copy or none has, so they tell less than they are many."""
    rng = np.random.default_rng(0)
    chances = np.array(
        [
            chance_of_copies(*split_counts(rng.integers(n_values, size=n_training + n), n, rng))
            for _ in range(400)
        ]
    )
    assert (chances > LEVEL).all()


def test_with_pairs_the_chance_is_that_of_dividing_them():
    """Given that no pair is within the validation set, each is divided independently; nearly so."""
    for n, n_training, divided in ((200, 400, 5), (500, 300, 40), (1000, 4000, 12)):
        share = n / (n + n_training / 2)
        for whole in (0, 3, 10):
            expected = binom.sf(divided - 1, divided + whole, share)
            assert chance_of_copies(divided, n, 2 * whole, n_training) == pytest.approx(
                expected, rel=0.4
            )


def test_without_copies_nothing_is_refused_whatever_the_sizes():
    for n, repeated, n_training in ((1, 0, 2), (1, 0, 3), (1000, 0, 2), (5, 10, 10), (7, 2, 100)):
        assert chance_of_copies(0, n, repeated, n_training) == 1
        check_copies(0, n, repeated, n_training)


@pytest.mark.parametrize("n", [25, 100, 10_000])
def test_the_training_set_itself_is_refused_where_nothing_in_it_repeats(n):
    with pytest.raises(InputError, match=f"{n} of the {n} validation samples are copies of train"):
        check_copies(n, n, 0, n)


def test_a_tenth_taken_from_the_training_set_is_refused():
    for n, n_training in ((250, 250), (500, 5000), (2000, 1000)):
        with pytest.raises(InputError, match=r"give others, or leave the copies out"):
            check_copies(n // 10, n, 0, n_training)


@pytest.mark.parametrize(("n_copied", "n", "n_training"), [(100, 1000, 100), (5, 50, 200)])
def test_copies_too_few_for_proof_are_warned_of(n_copied, n, n_training):
    assert LEVEL < chance_of_copies(n_copied, n, 0, n_training) <= SUSPICIOUS
    with pytest.warns(UserWarning, match=f"{n_copied} of the {n} validation samples are copies"):
        check_copies(n_copied, n, 0, n_training)


def test_what_repeats_itself_as_often_everywhere_is_not_refused():
    check_copies(900, 1000, 4500, 5000)
    check_copies(1000, 1000, 5000, 5000)
    assert LEVEL == 1e-4
