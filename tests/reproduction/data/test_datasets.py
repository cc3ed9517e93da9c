"""The paper's datasets: what was published, split as promised."""

import gzip
import os
import struct
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iknow.errors import DataError, InputError
from reproduction.data import published
from reproduction.data.checksum import DataFile, content_digest
from reproduction.data.datasets import DATASETS, load_dataset, scale, split
from reproduction.data.making import Source
from reproduction.data.published import SIGN_GROUPS, Part, Published

real = pytest.mark.skipif(not os.environ.get("IKNOW_DATA"), reason="IKNOW_DATA names no folder")
PARTS = ("train", "val", "test")
LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in ("mnist", "gtsrb")]
SMALL = [name for name in DATASETS if name not in ("mnist", "gtsrb")]

# Sizes of the training, validation and test parts, and the shape of one sample.
EXPECTED = {
    "grid_stability": (5600, 1400, 3000, (13,)),
    "grid_stability_12": (5600, 1400, 3000, (12,)),
    "iris": (75, 30, 45, (4,)),
    "italy_power_demand": (51, 16, 1029, (1, 24)),
    "synthetic_control": (240, 60, 300, (1, 60)),
    "mnist": (50_000, 10_000, 10_000, (784,)),
    "gtsrb": (34_799, 4_410, 12_630, (3, 32, 32)),
}
# Samples of each class in all parts together, and in the test part where it is published.
COUNTS = {
    "grid_stability": [3620, 6380],
    "grid_stability_12": [3620, 6380],
    "iris": [50, 50, 50],
    "italy_power_demand": [34 + 513, 33 + 516],
    "synthetic_control": [100] * 6,
    "mnist": [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958],
}
TEST_COUNTS = {
    "italy_power_demand": [513, 516],
    "synthetic_control": [50] * 6,
    "mnist": [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
}


def arrays_of(dataset):
    return {f.name: getattr(dataset, f.name) for f in fields(dataset) if f.name[1] == "_"}


def part_of(dataset, part):
    return getattr(dataset, f"X_{part}"), getattr(dataset, f"y_{part}")


@real
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_a_dataset_has_its_shapes_and_classes(name):
    dataset = load_dataset(name, seed=0)
    *sizes, shape = EXPECTED[name]
    assert dataset.name == name
    for part, size in zip(PARTS, sizes, strict=True):
        X, y = part_of(dataset, part)
        assert (X.shape, X.dtype) == ((size, *shape), np.float32)
        assert (y.shape, y.dtype) == ((size,), np.int64)
        assert np.isfinite(X).all()
        assert set(y) == set(range(len(dataset.classes)))
    if name in COUNTS:
        everything = np.concatenate([dataset.y_train, dataset.y_val, dataset.y_test])
        assert np.bincount(everything).tolist() == COUNTS[name]
    if name in TEST_COUNTS:
        assert np.bincount(dataset.y_test).tolist() == TEST_COUNTS[name]


@real
@pytest.mark.parametrize("name", SMALL)
def test_the_seed_decides_and_nothing_else(name):
    one, same, other = (load_dataset(name, seed) for seed in (1, 1, 2))
    for array, values in arrays_of(one).items():
        np.testing.assert_array_equal(values, getattr(same, array))
    assert not np.array_equal(one.X_val, other.X_val)
    # Stratified: whatever the seed, each class has its share.
    for part in PARTS:
        counts = [np.bincount(part_of(dataset, part)[1]) for dataset in (one, other)]
        np.testing.assert_array_equal(*counts)


@real
def test_both_datasets_of_the_grid_are_split_alike():
    with_answer, without = (
        load_dataset(name, seed=3) for name in ("grid_stability", "grid_stability_12")
    )
    mean, deviation = with_answer.X_train.mean(0)[:12], with_answer.X_train.std(0)[:12]
    for part in PARTS:
        (X13, y13), (X12, y12) = part_of(with_answer, part), part_of(without, part)
        np.testing.assert_array_equal(y13, y12)
        np.testing.assert_allclose(X12, (X13[:, :12] - mean) / deviation, atol=1e-4)
        np.testing.assert_array_equal(X13[:, 12] > 0, y13 == with_answer.classes.index("unstable"))


@real
@pytest.mark.parametrize("name", ["italy_power_demand", "synthetic_control"])
def test_series_have_one_mean_and_one_deviation(name):
    dataset = load_dataset(name, seed=0)
    assert abs(dataset.X_train.mean(dtype=float)) < 1e-6
    assert abs(dataset.X_train.std(dtype=float) - 1) < 1e-6
    # The test part is moved and stretched by the same two numbers.
    raw, scaled = DATASETS[name].read().test.X.ravel(), dataset.X_test.ravel()
    line = np.polyfit(raw, scaled, 1)
    np.testing.assert_allclose(np.polyval(line, raw), scaled, atol=1e-5)


@real
@pytest.mark.slow
def test_pixels_are_in_the_unit_interval():
    for name in ("mnist", "gtsrb"):
        dataset = load_dataset(name, seed=0)
        for part in PARTS:
            X, _ = part_of(dataset, part)
            assert X.min() == 0
            assert X.max() == 1


@real
@pytest.mark.slow
def test_signs_are_grouped_and_channels_come_first():
    dataset = load_dataset("gtsrb", seed=0)
    with np.load(f"{os.environ['IKNOW_DATA']}/gtsrb/gtsrb32_test.npz") as arrays:
        x, y = arrays["x"], arrays["y"]
    for i in range(0, len(y), 997):
        assert int(y[i]) in SIGN_GROUPS[dataset.classes[dataset.y_test[i]]]
        np.testing.assert_allclose(dataset.X_test[i, 2, 5, 9], x[i, 5, 9, 2] / 255, rtol=1e-6)


def test_every_sign_is_in_one_group():
    assert sorted(sign for signs in SIGN_GROUPS.values() for sign in signs) == list(range(43))
    assert len(SIGN_GROUPS) == 8


def test_iris_needs_no_files():
    dataset = load_dataset("iris", seed=0)
    assert dataset.classes == ("setosa", "versicolor", "virginica")
    assert len(dataset.y_test) == 45


def test_a_name_that_is_none():
    with pytest.raises(InputError, match=r"'cifar'.*grid_stability, .*mnist, gtsrb"):
        load_dataset("cifar", seed=0)


def pool_of(counts):
    """Samples that bear their own number, class by class."""
    y = np.repeat(np.arange(len(counts)), counts)
    return Part(np.arange(len(y))[:, None], y)


@given(
    counts=st.lists(st.integers(20, 50), min_size=2, max_size=4),
    n_val=st.integers(5, 15),
    n_test=st.integers(5, 15),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_split_loses_and_doubles_nothing(counts, n_val, n_test, seed):
    raw = Published(("a",) * len(counts), pool_of(counts))
    parts = split(raw, n_val, n_test, seed)
    assert [len(part.y) for part in parts] == [sum(counts) - n_val - n_test, n_val, n_test]
    rows = np.concatenate([part.X[:, 0] for part in parts])
    assert sorted(rows) == list(range(sum(counts)))
    for part in parts:
        np.testing.assert_array_equal(part.y, raw.train.y[part.X[:, 0]])
        expected = np.array(counts) * len(part.y) / sum(counts)
        # Two draws, each of which rounds a class's share to a whole number.
        assert np.abs(np.bincount(part.y, minlength=len(counts)) - expected).max() < 2


def test_a_published_part_is_left_as_it_is():
    train, val, test = pool_of([30, 30]), pool_of([4, 4]), pool_of([5, 5])
    assert split(Published(("a", "b"), train, val, test), 7, 7, 0) == (train, val, test)
    drawn = split(Published(("a", "b"), train, test=test), 10, 7, 0)
    assert [len(part.y) for part in drawn] == [50, 10, 10]
    assert drawn[2] is test


def test_scaling_learns_from_the_first_part_alone():
    train, other = np.array([[0.0, 10], [2, 30]]), np.array([[3.0, 40]])
    results = scale([train, other], DATASETS["grid_stability_12"].scaling)
    np.testing.assert_allclose(results[0], [[-1, -1], [1, 1]])
    np.testing.assert_allclose(results[1], [[2, 2]])
    assert all(result.dtype == np.float32 for result in results)


def idx(array):
    """An array in MNIST's form."""
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return gzip.compress(head + array.tobytes())


def test_images_and_labels_in_their_original_form(tmp_path, monkeypatch):
    monkeypatch.setenv("IKNOW_DATA", str(tmp_path))
    images = np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28)
    labels = np.array([3, 9], dtype=np.uint8)
    for part in ("TRAIN", "TEST"):
        for kind, array in [("IMAGES", images), ("LABELS", labels)]:
            path = tmp_path / f"{part}-{kind}.gz"
            path.write_bytes(idx(array))
            source = Source((DataFile(path.name, content_digest(path)),), ())
            monkeypatch.setattr(published.sources, f"MNIST_{part}_{kind}", source)
    mnist = published.read_mnist()
    for part in (mnist.train, mnist.test):
        np.testing.assert_allclose(part.X, images.reshape(2, 784) / 255, rtol=1e-6)
        np.testing.assert_array_equal(part.y, labels)
    path = tmp_path / "TEST-IMAGES.gz"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DataError, match=r"TEST-IMAGES\.gz is damaged"):
        published.read_mnist()
