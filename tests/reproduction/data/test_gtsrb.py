"""Traffic signs from original images: resized by the rule, in the order of the 32x32 form."""

import io
import os
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL", reason="Pillow is not installed")

from reproduction.data.gtsrb import convert_test, convert_training
from reproduction.data.gtsrb_split import (
    ORDERS,
    SIGNS,
    VALIDATION,
    training_order,
    validation_order,
)
from reproduction.data.pillow import read_resized

GIVEN = os.environ.get("IKNOW_DATA")


def ppm(pixels):
    """An image file of pixels of shape (height, width, 3)."""
    height, width, _ = pixels.shape
    return b"P6\n%d %d\n255\n" % (width, height) + pixels.astype(np.uint8).tobytes()


def uniform(*color, shape=(30, 40)):
    return ppm(np.broadcast_to(color, (*shape, 3)))


def resize_rows(pixels, size):
    """The rule, slowly: weights fall linearly over one target pixel, or one of the image's."""
    scale = pixels.shape[0] / size
    support = max(scale, 1.0)
    rows = []
    for i in range(size):
        center = (i + 0.5) * scale
        weights = 1 - np.abs(np.arange(pixels.shape[0]) + 0.5 - center) / support
        weights = np.maximum(weights, 0)
        rows.append(np.tensordot(weights / weights.sum(), pixels, 1))
    return np.floor(np.array(rows) + 0.5)


@pytest.mark.parametrize("shape", [(25, 25), (32, 32), (47, 99), (225, 243), (15, 64)])
def test_an_image_is_resized_by_the_rule(shape):
    pixels = np.random.default_rng(0).integers(0, 256, size=(*shape, 3))
    across = resize_rows(pixels.transpose(1, 0, 2), 32).transpose(1, 0, 2)
    expected = resize_rows(across, 32)
    found = read_resized(ppm(pixels), 32)
    assert found.dtype == np.uint8
    # Pillow computes with fixed-point numbers, so a value halfway may be rounded the other way.
    assert np.abs(found - expected).max() <= 1
    assert np.mean(found != expected) < 0.01


@pytest.mark.parametrize("content", [b"", b"no image", uniform(1, 2, 3)[:-100]])
def test_a_damaged_image_is_refused(content):
    with pytest.raises(ValueError, match="cannot be read"):
        read_resized(content, 32)


def test_training_images_are_split_by_track_in_the_order_of_the_32x32_form(tmp_path):
    tracks = [(sign, track) for sign, n in [(0, 7), (41, 8)] for track in range(n)]
    folder = "GTSRB/Final_Training/Images"
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("GTSRB/Readme-Images.txt", "about")
        archive.writestr(f"{folder}/00000/GT-00000.csv", "Filename;Width")
        for sign, track in tracks:
            for frame in (1, 0, 10):
                name = f"{folder}/{sign:05}/{track:05}_{frame:05}.ppm"
                archive.writestr(name, uniform(sign, track, frame))
    targets = [tmp_path / "train.npz", tmp_path / "valid.npz"]
    convert_training([tmp_path / "a.zip"], targets)
    orders = [{41: [4, 6, 2, 1, 0, 7, 3], 0: [4, 2, 1, 5, 0, 3]}, {41: [5], 0: [6]}]
    for target, order in zip(targets, orders, strict=True):
        expected = [
            (sign, track, frame)
            for sign, numbers in order.items()
            for track in numbers
            for frame in (0, 1, 10)
        ]
        with np.load(target) as arrays:
            x, y = arrays["x"], arrays["y"]
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
    table = io.StringIO()
    table.write("Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId\r\n")
    for name, sign in signs.items():
        table.write(f"{name};40;30;5;6;48;49;{sign}\r\n")
    with zipfile.ZipFile(tmp_path / "labels.zip", "w") as archive:
        archive.writestr("GT-final_test.csv", table.getvalue())
    convert_test([tmp_path / "images.zip", tmp_path / "labels.zip"], [tmp_path / "test.npz"])
    with np.load(tmp_path / "test.npz") as arrays:
        np.testing.assert_array_equal(arrays["y"], [7, 0, 42])
        np.testing.assert_array_equal(arrays["x"][:, 0, 0], [[7, 1, 2], [0, 1, 2], [42, 1, 2]])


def test_the_orders_name_everything_once():
    for order in [*ORDERS.values(), *VALIDATION.values()]:
        assert len(set(order)) == len(order)
    assert sorted(SIGNS) == sorted(VALIDATION) == list(range(43))
    assert sum(map(len, VALIDATION.values())) == 147


@pytest.mark.skipif(not GIVEN, reason="IKNOW_DATA names no folder")
def test_the_order_is_that_of_the_real_data():
    def tracks_of(part):
        with np.load(Path(GIVEN) / "gtsrb" / f"gtsrb32_{part}.npz") as arrays:
            if "track" not in arrays:
                pytest.skip("this copy of the data does not name the tracks")
            frames = list(zip(arrays["y"].tolist(), arrays["track"].tolist(), strict=True))
            numbers = arrays["frame"].tolist()
        counts = Counter(frames)
        tracks = list(counts)
        whole = [(track, n) for track in tracks for n in range(counts[track])]
        assert whole == list(zip(frames, numbers, strict=True))
        return tracks

    train, valid = tracks_of("train"), tracks_of("valid")
    everything = sorted(train + valid)
    assert training_order(everything) == train
    assert validation_order(everything) == valid
