"""Pictures: what is shrunk, what is kept, and when the album is full."""

import json

import numpy as np

from iknow.explain.picture import as_features, as_series
from iknow.report.album import (
    FEATURES,
    LONGEST_SIDE,
    MOST_STEPS,
    PART_BYTES,
    SERIES,
    Album,
    shrink_image,
    shrink_series,
)


def test_large_images_are_shrunk_by_means():
    pixels = np.zeros((300, 200, 3), dtype=np.uint8)
    pixels[:150] = [90, 0, 210]
    small = shrink_image(pixels)
    assert small.shape == (100, 66, 3)
    np.testing.assert_array_equal(small[0, 0], [90, 0, 210])
    np.testing.assert_array_equal(small[-1, -1], [0, 0, 0])
    checkered = np.indices((2 * LONGEST_SIDE, 2 * LONGEST_SIDE)).sum(axis=0) % 2 * 200
    assert np.unique(shrink_image(checkered.astype(np.uint8))).tolist() == [100]
    assert shrink_image(np.zeros((1, 1000), dtype=np.uint8)).shape == (1, 125)


def test_small_images_stay_as_they_are():
    pixels = np.random.default_rng(0).integers(0, 255, (LONGEST_SIDE, 7)).astype(np.uint8)
    assert shrink_image(pixels) is pixels


def test_no_peak_of_a_long_series_is_lost():
    values = np.zeros((2, 10_000))
    values[0, 4321] = 7.0
    values[1, 9999] = -3.0
    short = shrink_series(values)
    assert short.shape == (2, MOST_STEPS)
    assert short[0].max() == 7
    assert short[1].min() == -3


def test_kinds_of_pictures():
    album = Album(10**6)
    album.add(("sample", 0), np.zeros((2, 3)), 0, as_features(["a", "b", "c"]))
    album.add(("sample", 1), np.zeros((2, 3)), 1, as_series())
    album.add(("training", 5), [[1.23456789, np.nan], ["x", 2]], 0, as_features(["a", "b"]))
    album.close_part()
    assert list(album.names) == [("a", "b", "c"), ("a", "b")]
    columns = album.columns(3)
    assert columns["pictures"][:, 0].tolist() == [FEATURES, SERIES, FEATURES]
    assert columns["pictures"][:, 1].tolist() == [0, 1, 1]
    assert columns["trainingRows"].tolist() == [5]
    assert columns["trainingPictures"].tolist() == [2]
    assert columns["samplePictures"].tolist() == [0, 1, -1]


def test_features_are_rounded_and_what_is_not_finite_is_text():
    album = Album(10**6)
    _kind, _names, _more, data = album._encode(as_features()([1.23456789, np.inf, 0.0]))
    assert json.loads(data) == [1.23457, "inf", 0.0]


def test_a_full_album_drops_the_last_part_and_takes_no_more():
    noise = np.random.default_rng(0).integers(0, 255, (40, 100, 100)).astype(np.uint8)
    album = Album(5 * PART_BYTES // 2)
    for row in range(40):
        album.add(("sample", row), noise, row, None)
    album.close_part()
    assert album.full
    assert len(album.parts) == 1
    assert len(album.pictures) == PART_BYTES // 10_000
    assert album.columns(21)["samplePictures"][-2:].tolist() == [19, -1]
    album.add(("sample", 20), noise, 20, None)
    album.close_part()
    assert album.columns(21)["samplePictures"][-1] == -1


def test_what_is_not_there_has_no_picture():
    album = Album(10**6)
    album.add(("training", -1), np.zeros((2, 2)), -1, None)
    album.add(("training", 9), np.zeros((2, 2)), 9, None)
    album.add(("training", 1), None, 1, None)
    album.close_part()
    assert album.parts == []
    assert album.columns(1)["pictures"].shape == (0, 6)
