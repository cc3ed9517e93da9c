"""Which validation samples are cases of their own, and which training labels contradict."""

import warnings

import numpy as np
import pytest

from iknow.errors import InputError
from iknow.selection.repeats import count_times, find_cases, group_equal, sketch, warn_of_conflicts

WARNING = "repeat others in a way that new cases do not"


def cases(ours, training):
    return find_cases(sketch(ours), sketch(training))


def numbers(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 5)).astype(np.float32)


def test_equal_rows_are_found_as_comparing_all_pairs_finds_them():
    rng = np.random.default_rng(0)
    for _ in range(20):
        points = rng.integers(0, 3, (60, 4)).astype(np.float32)
        groups = group_equal(sketch(points))
        equal = (points[:, None] == points[None]).all(axis=2)
        np.testing.assert_array_equal(groups[:, None] == groups[None], equal)


def test_the_last_bits_are_no_difference_and_a_thousandth_is_one():
    points = numbers(50)
    other = points * np.float32(1 + 1e-7), points + np.float32(1e-3)
    for again, same in zip(other, (True, False), strict=True):
        groups = group_equal(sketch(np.concatenate([points, again])))
        assert ((groups[:50] == groups[50:]).all(), (groups[:50] == groups[50:]).any()) == (
            same,
            same,
        )


REPEATED = {
    "every row 20 times": lambda rng: np.repeat(np.arange(50), 20),
    "a few rows very often": lambda rng: np.repeat(np.arange(8), 50),
    "drawn with replacement": lambda rng: rng.integers(0, 50, 1000),
    "a rare class oversampled": lambda rng: np.r_[:500, np.repeat(np.arange(20), 30)],
    "every row twice, shuffled": lambda rng: rng.permutation(np.repeat(np.arange(300), 2)),
}


@pytest.mark.parametrize("rows", REPEATED.values(), ids=REPEATED)
def test_repeated_rows_count_once(rows):
    rows = rows(np.random.default_rng(0))
    with pytest.warns(UserWarning, match=WARNING):
        kept = cases(numbers(500)[rows], numbers(1000, seed=1))
    firsts = np.unique(rows, return_index=True)[1]
    np.testing.assert_array_equal(kept, np.sort(firsts))


def categories(kind, n, rng):
    """Honest draws of a table in which many rows are equal."""
    if kind == "one column with a long tail":
        return (rng.zipf(1.3, n) % 5000)[:, None]
    if kind == "eight flags":
        return rng.random((n, 8)) < 0.2
    if kind == "twelve forms":
        return rng.integers(0, 12, (n, 1))
    if kind == "one form":
        return np.zeros((n, 1))
    ages = rng.integers(1, 80, n)
    return np.column_stack([rng.choice(3, n, p=[0.25, 0.2, 0.55]), rng.random(n) < 0.35, ages])


KINDS = ["one column with a long tail", "eight flags", "twelve forms", "one form", "passengers"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "n_training"), [(100, 100), (1000, 300), (300, 3000)])
def test_honest_tables_of_categories_count_in_full(kind, n, n_training):
    rng = np.random.default_rng(0)
    for _ in range(60):
        table = categories(kind, n + n_training, rng).astype(np.float32)
        assert cases(table[:n], table[n:]) is None


@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_table_of_categories_repeated_counts_as_it_was(kind):
    """All of its rows may equal training samples, so only the numbers tell."""
    rng = np.random.default_rng(1)
    table = categories(kind, 3300, rng).astype(np.float32)
    ours = table[:300]
    with pytest.warns(UserWarning, match=WARNING):
        kept = cases(np.repeat(ours, 20, axis=0), table[300:])
    found = np.unique(np.repeat(ours, 20, axis=0)[kept], axis=0, return_counts=True)
    wanted = np.unique(ours, axis=0, return_counts=True)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_honest_numbers_of_equal_rows_share_a_divisor_by_chance_alone():
    rng, told, n = np.random.default_rng(0), 0, 0
    for n_forms in (1, 2, 3, 5, 8, 15):
        for mean in (1, 2, 5, 20, 300):
            for sizes in rng.poisson(mean, (2000, n_forms)):
                n += 1
                told += bool(sizes.any()) and count_times(sizes[sizes > 0]) > 1
    assert told <= 1e-4 * n


def test_data_repeated_before_the_split_is_refused():
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(200), 10))
    both = numbers(200)[rows]
    with pytest.raises(InputError, match="every sample is there 10 times"):
        cases(both[:800], both[800:])


def label(points, seed=0):
    """Labels that one feature decides in part."""
    chance = 0.2 + 0.6 * (points[:, 0] > points[:, 0].mean())
    return (np.random.default_rng(seed).random(len(points)) < chance).astype(int)


def test_conflicting_copies_are_counted():
    points = numbers(100)
    y = np.arange(100) % 2
    with pytest.warns(UserWarning, match=r"200 of the 200 .* 100% disagree, of any two 50%"):
        warn_of_conflicts(np.repeat(points, 2, axis=0), np.stack([y, 1 - y], axis=1).ravel())


def test_a_few_wrong_labels_among_copies_of_every_row_are_counted():
    points, y = np.repeat(numbers(100), 2, axis=0), np.repeat(np.arange(100) % 2, 2)
    y[:20:2] = 1 - y[:20:2]
    with pytest.warns(UserWarning, match=r"20 of the 200 .* 10% disagree"):
        warn_of_conflicts(points, y)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_rows_of_an_honest_table_may_have_different_labels(kind):
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(60):
            table = categories(kind, 500, rng).astype(np.float32)
            warn_of_conflicts(table, label(table, seed))
            warn_of_conflicts(table, rng.integers(0, 3, 500))  # features that tell nothing
            warn_of_conflicts(numbers(500, seed), rng.integers(0, 3, 500))
