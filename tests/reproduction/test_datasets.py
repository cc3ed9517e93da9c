"""The paper's datasets: traffic signs by the rule of their 32x32 form, and splits as promised."""

import gzip
import os
import struct
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from iknow.errors import DataError, InputError
from reproduction.data import datasets, gtsrb, sources
from reproduction.data.datasets import DATASETS, SIGN_GROUPS, Part, Published, load_dataset, split
from reproduction.data.files import DataFile, Source, content_digest

pytestmark = pytest.mark.slow
DATA = os.environ.get("IKNOW_DATA")
real = pytest.mark.skipif(not DATA, reason="IKNOW_DATA names no folder")


# Traffic signs


def ppm(pixels):
    """An image file of pixels of shape (height, width, 3)."""
    height, width, _ = pixels.shape
    return b"P6\n%d %d\n255\n" % (width, height) + pixels.astype(np.uint8).tobytes()


def uniform(*color, shape=(30, 40)):
    return ppm(np.broadcast_to(color, (*shape, 3)))


def resize_rows(pixels, size):
    """The rule, slowly: weights fall linearly over one target pixel, or one of the image's."""
    scale, rows = pixels.shape[0] / size, []
    for i in range(size):
        distances = np.abs(np.arange(pixels.shape[0]) + 0.5 - (i + 0.5) * scale)
        weights = np.maximum(1 - distances / max(scale, 1.0), 0)
        rows.append(np.tensordot(weights / weights.sum(), pixels, 1))
    return np.floor(np.array(rows) + 0.5)


@pytest.mark.parametrize("shape", [(25, 25), (32, 32), (47, 99), (225, 243), (15, 64)])
def test_an_image_is_resized_by_the_rule_and_a_damaged_one_refused(shape):
    pixels = np.random.default_rng(0).integers(0, 256, size=(*shape, 3))
    across = resize_rows(pixels.transpose(1, 0, 2), 32).transpose(1, 0, 2)
    found = gtsrb.read_resized(ppm(pixels), 32)
    assert found.dtype == np.uint8
    # Pillow computes with fixed-point numbers, so a value halfway may be rounded the other way.
    difference = np.abs(found - resize_rows(across, 32))
    assert difference.max() <= 1
    assert np.mean(difference > 0) < 0.01
    for content in (b"", b"no image", ppm(pixels)[:-100]):
        with pytest.raises(ValueError, match="cannot be read"):
            gtsrb.read_resized(content, 32)


def test_training_images_are_split_by_track_in_the_order_of_the_32x32_form(tmp_path):
    folder, frames = "GTSRB/Final_Training/Images", (1, 0, 10)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("GTSRB/Readme-Images.txt", "about")
        archive.writestr(f"{folder}/00000/GT-00000.csv", "Filename;Width")
        for sign, n in ((0, 7), (41, 8)):
            for track, frame in np.ndindex(n, 3):
                name = f"{folder}/{sign:05}/{track:05}_{frames[frame]:05}.ppm"
                archive.writestr(name, uniform(sign, track, frames[frame]))
    targets = [tmp_path / "train.npz", tmp_path / "valid.npz"]
    gtsrb.convert_training([tmp_path / "a.zip"], targets)
    orders = [{41: [4, 6, 2, 1, 0, 7, 3], 0: [4, 2, 1, 5, 0, 3]}, {41: [5], 0: [6]}]
    for target, order in zip(targets, orders, strict=True):
        expected = [
            (sign, track, frame)
            for sign, numbers in order.items()
            for track in numbers
            for frame in sorted(frames)
        ]
        with np.load(target) as found:
            x, y = found["x"], found["y"]
        assert (x.shape, x.dtype, y.dtype) == ((len(expected), 32, 32, 3), np.uint8, np.uint8)
        np.testing.assert_array_equal(x[:, 31, 0], expected)
        np.testing.assert_array_equal(x, np.broadcast_to(x[:, :1, :1], x.shape))
        np.testing.assert_array_equal(y, [sign for sign, _, _ in expected])


def test_test_images_have_their_labels(tmp_path):
    signs = {"00002.ppm": 42, "00000.ppm": 7, "00001.ppm": 0}
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        archive.writestr("GTSRB/Final_Test/Images/GT-final_test.test.csv", "Filename")
        for name, sign in signs.items():
            archive.writestr(f"GTSRB/Final_Test/Images/{name}", uniform(sign, 1, 2))
    head = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId\r\n"
    rows = (f"{name};40;30;5;6;48;49;{sign}\r\n" for name, sign in signs.items())
    with zipfile.ZipFile(tmp_path / "labels.zip", "w") as archive:
        archive.writestr("GT-final_test.csv", head + "".join(rows))
    given = [tmp_path / "images.zip", tmp_path / "labels.zip"]
    gtsrb.convert_test(given, [tmp_path / "test.npz"])
    with np.load(tmp_path / "test.npz") as found:
        np.testing.assert_array_equal(found["y"], [7, 0, 42])
        np.testing.assert_array_equal(found["x"][:, 0, 0], [[7, 1, 2], [0, 1, 2], [42, 1, 2]])


def test_the_orders_name_everything_once():
    for order in [*gtsrb.ORDERS.values(), *gtsrb.VALIDATION.values()]:
        assert len(set(order)) == len(order)
    assert sorted(gtsrb.SIGNS) == sorted(gtsrb.VALIDATION) == list(range(43))
    assert sum(map(len, gtsrb.VALIDATION.values())) == 147
    assert sorted(sign for signs in SIGN_GROUPS.values() for sign in signs) == list(range(43))
    assert len(SIGN_GROUPS) == 8


@real
def test_the_order_is_that_of_the_real_data():
    def tracks_of(part):
        with np.load(Path(DATA) / "gtsrb" / f"gtsrb32_{part}.npz") as found:
            if "track" not in found:
                pytest.skip("this copy of the data does not name the tracks")
            frames = list(zip(found["y"].tolist(), found["track"].tolist(), strict=True))
            numbers = found["frame"].tolist()
        counts = Counter(frames)
        whole = [(track, n) for track in counts for n in range(counts[track])]
        assert whole == list(zip(frames, numbers, strict=True))
        return list(counts)

    train, valid = tracks_of("train"), tracks_of("valid")
    assert gtsrb.training_order(sorted(train + valid)) == train
    assert gtsrb.validation_order(sorted(train + valid)) == valid


# Datasets

PARTS = ("train", "val", "test")
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


def part_of(dataset, part):
    return getattr(dataset, f"X_{part}"), getattr(dataset, f"y_{part}")


@real
@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset_has_its_shapes_and_classes(name):
    dataset = load_dataset(name, seed=0)
    *sizes, shape = EXPECTED[name]
    assert dataset.name == name
    for part, size in zip(PARTS, sizes, strict=True):
        X, y = part_of(dataset, part)
        assert (X.shape, X.dtype, y.shape, y.dtype) == ((size, *shape), np.float32, (size,), int)
        assert np.isfinite(X).all()
        assert set(y) == set(range(len(dataset.classes)))
        assert name not in ("mnist", "gtsrb") or (X.min(), X.max()) == (0, 1)
    everything = np.concatenate([dataset.y_train, dataset.y_val, dataset.y_test])
    assert name not in COUNTS or np.bincount(everything).tolist() == COUNTS[name]
    assert name not in TEST_COUNTS or np.bincount(dataset.y_test).tolist() == TEST_COUNTS[name]


@real
@pytest.mark.parametrize("name", [name for name in DATASETS if name not in ("mnist", "gtsrb")])
def test_the_seed_decides_and_nothing_else(name):
    one, same, other = (load_dataset(name, seed) for seed in (1, 1, 2))
    for part in PARTS:
        for values, again in zip(part_of(one, part), part_of(same, part), strict=True):
            np.testing.assert_array_equal(values, again)
        # Stratified: whatever the seed, each class has its share.
        counts = [np.bincount(part_of(dataset, part)[1]) for dataset in (one, other)]
        np.testing.assert_array_equal(*counts)
    assert not np.array_equal(one.X_val, other.X_val)


@real
def test_both_datasets_of_the_grid_are_split_alike():
    whole, without = (load_dataset(f"grid_stability{end}", seed=3) for end in ("", "_12"))
    mean, deviation = whole.X_train.mean(0)[:12], whole.X_train.std(0)[:12]
    for part in PARTS:
        (X13, y13), (X12, y12) = part_of(whole, part), part_of(without, part)
        np.testing.assert_array_equal(y13, y12)
        np.testing.assert_allclose(X12, (X13[:, :12] - mean) / deviation, atol=1e-4)
        np.testing.assert_array_equal(X13[:, 12] > 0, y13 == whole.classes.index("unstable"))


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
def test_signs_are_grouped_and_channels_come_first():
    dataset = load_dataset("gtsrb", seed=0)
    with np.load(f"{DATA}/gtsrb/gtsrb32_test.npz") as found:
        x, y = found["x"], found["y"]
    for i in range(0, len(y), 997):
        assert int(y[i]) in SIGN_GROUPS[dataset.classes[dataset.y_test[i]]]
        np.testing.assert_allclose(dataset.X_test[i, 2, 5, 9], x[i, 5, 9, 2] / 255, rtol=1e-6)


def test_names_of_datasets():
    assert load_dataset("iris", seed=0).classes == ("setosa", "versicolor", "virginica")
    with pytest.raises(InputError, match=r"'cifar'.*grid_stability, .*mnist, gtsrb"):
        load_dataset("cifar", seed=0)


def pool_of(counts):
    """Samples that bear their own number, class by class."""
    y = np.repeat(np.arange(len(counts)), counts)
    return Part(np.arange(len(y))[:, None], y)


@for_all(
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


def test_published_parts_stay_and_scaling_learns_from_the_training_part_alone():
    train, val, test = pool_of([30, 30]), pool_of([4, 4]), pool_of([5, 5])
    assert split(Published(("a", "b"), train, val, test), 7, 7, 0) == (train, val, test)
    drawn = split(Published(("a", "b"), train, test=test), 10, 7, 0)
    assert ([len(part.y) for part in drawn], drawn[2] is test) == ([50, 10, 10], True)
    parts = [np.array([[0.0, 10], [2, 30]]), np.array([[3.0, 40]])]
    results = datasets.scale(parts, DATASETS["grid_stability_12"].scaling)
    np.testing.assert_allclose(results[0], [[-1, -1], [1, 1]])
    np.testing.assert_allclose(results[1], [[2, 2]])
    assert all(result.dtype == np.float32 for result in results)


def test_images_and_labels_in_their_original_form(tmp_path, monkeypatch):
    monkeypatch.setenv("IKNOW_DATA", str(tmp_path))
    images = np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28)
    found = {"IMAGES": images, "LABELS": np.array([3, 9], dtype=np.uint8)}
    for part in ("TRAIN", "TEST"):
        for kind, array in found.items():
            head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            path = tmp_path / f"{part}-{kind}.gz"
            path.write_bytes(gzip.compress(head + array.tobytes()))
            source = Source((DataFile(path.name, content_digest(path)),), ())
            monkeypatch.setattr(sources, f"MNIST_{part}_{kind}", source)
    mnist = datasets.read_mnist()
    for part in (mnist.train, mnist.test):
        np.testing.assert_allclose(part.X, images.reshape(2, 784) / 255, rtol=1e-6)
        np.testing.assert_array_equal(part.y, [3, 9])
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DataError, match=r"TEST-LABELS\.gz is damaged"):
        datasets.read_mnist()
