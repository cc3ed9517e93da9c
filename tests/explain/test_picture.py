"""Pictures: what a sample looks like, by renderer or by shape, and as numbers where it must be."""

import io

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from PIL import Image as Pillow

from iknow.errors import InputError
from iknow.explain.picture import (
    LONGEST_TEXT,
    MOST_FEATURES,
    Features,
    Image,
    Series,
    as_features,
    as_image,
    as_series,
    picture_of,
    png_bytes,
    take_sample,
)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (28, 28), (4, 7, 3), (1, 300, 3)])
def test_a_png_holds_the_pixels(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    with Pillow.open(io.BytesIO(png_bytes(pixels))) as image:
        image.load()  # compares all checksums
        np.testing.assert_array_equal(np.asarray(image), pixels)


@pytest.mark.parametrize(
    "pixels",
    [
        np.zeros((2, 2)),
        np.zeros(4, np.uint8),
        np.zeros((2, 2, 4), np.uint8),
        np.zeros((0, 2), np.uint8),
    ],
    ids=["floats", "flat", "four channels", "empty"],
)
def test_only_bytes_of_an_image_become_a_png(pixels):
    with pytest.raises(InputError, match="pixels must be uint8 of shape"):
        png_bytes(pixels)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((5,), Features),
        ((1, 5), Series),
        ((5, 1), Series),
        ((1, 1), Image),
        ((8, 8), Image),
        ((1, 8, 6), Image),
        ((8, 6, 1), Image),
        ((3, 8, 6), Image),
        ((8, 6, 3), Image),
        ((2, 8, 6), Features),
        ((2, 2, 2, 2), Features),
        ((), Features),
    ],
)
def test_the_shape_says_what_a_sample_is(shape, kind):
    assert type(picture_of(np.ones(shape))) is kind


@pytest.mark.parametrize("shape", [(8, 6), (1, 8, 6), (8, 6, 1)])
def test_an_image_of_one_channel_is_grey(shape):
    values = np.linspace(0, 1, 48)
    expected = np.rint(255 * values.reshape(8, 6))
    np.testing.assert_array_equal(picture_of(values.reshape(shape)).pixels, expected)
    np.testing.assert_array_equal(as_image(*shape)(values).pixels, expected)  # flat samples


@pytest.mark.parametrize("first", [True, False])
def test_channels_may_come_first_or_last(first):
    values = np.random.default_rng(0).random((8, 6, 3))
    sample = np.moveaxis(values, 2, 0) if first else values
    np.testing.assert_array_equal(picture_of(sample).pixels, np.rint(255 * values))


@pytest.mark.parametrize(
    ("values", "limits", "pixels"),
    [
        ([0.0, 0.5, 0.2, 1.0], None, [0, 128, 51, 255]),
        (np.array([0, 1, 200, 255], np.uint8), None, [0, 1, 200, 255]),
        ([-1.0, 0.0, 0.5, 1.0], None, [0, 128, 191, 255]),  # its own extremes
        ([0.0, 8.0, 16.0, 20.0], (0, 16), [0, 128, 255, 255]),  # cut off at the limits
        ([2.0, 2.0, 2.0, 2.0], None, [0, 0, 0, 0]),
    ],
    ids=["fractions", "bytes", "own", "limits", "constant"],
)
def test_black_and_white_are_the_limits(values, limits, pixels):
    assert as_image(2, 2, limits=limits)(values).pixels.ravel().tolist() == pixels


def test_a_series_may_have_channels():
    values = np.arange(6.0)
    assert as_series(2)(values).values.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert as_series()(values).values.shape == (1, 6)


def test_features_have_names_if_given():
    assert as_features(["a", "b"])([1, 2.5]) == Features((1.0, 2.5), ("a", "b"))
    assert as_features()(np.array(["red", "7"])) == Features(("red", "7"))
    row = pd.DataFrame({"tau": [1.0, 2.0], "kind": ["x", "y"]}).iloc[1]
    assert picture_of(row) == Features((2.0, "y"), ("tau", "kind"))


def test_of_many_features_the_first_are_shown_and_the_rest_counted():
    names = [f"f{i}" for i in range(1000)]
    picture = as_features(names)(np.arange(1000))
    assert len(picture.values) == len(picture.names) == MOST_FEATURES
    assert picture.n_more == 1000 - MOST_FEATURES


@pytest.mark.parametrize(
    ("sample", "renderer"),
    [
        (np.array([np.nan, 1.0]), as_series()),
        (np.array([[np.inf, 1.0], [0.0, 0.0]]), None),
        (np.arange(5.0), as_image(2, 2)),
        (np.arange(5.0), as_features(["one name"])),
        (np.array(["a", "b"]), as_series()),
        (np.arange(3.0), lambda sample: 1 / 0),
        ({"a": 1}, None),
    ],
)
def test_what_cannot_be_rendered_is_shown_by_its_numbers(sample, renderer):
    picture = picture_of(sample, renderer)
    assert type(picture) is Features
    assert len(picture.values) == np.size(sample)


def test_numbers_that_are_not_finite_are_shown_as_text():
    assert picture_of(np.array([np.nan, np.inf, 1])).values == ("nan", "inf", 1.0)


@pytest.mark.parametrize("shape", [(8,), (2, 8, 8), (1, 2, 3, 4)])
def test_an_image_needs_the_shape_of_one(shape):
    with pytest.raises(InputError, match="an image has a shape of height and width"):
        as_image(*shape)


def test_an_image_without_extent_or_a_series_without_channels_is_refused():
    for shape in [(0, 0), (-1, 8), (3, 8, 0)]:
        with pytest.raises(InputError, match="the sides of an image must be at least 1"):
            as_image(*shape)
    with pytest.raises(InputError, match="at least one channel"):
        as_series(0)


@pytest.mark.parametrize(
    "samples",
    [
        np.eye(3),
        np.eye(3).tolist(),
        pd.DataFrame(np.eye(3)),
        scipy.sparse.csr_array(np.eye(3)),
        {1: np.array([0.0, 1.0, 0.0])},
    ],
    ids=["array", "list", "pandas", "sparse", "mapping"],
)
def test_one_sample_is_taken_from_whatever_holds_them(samples):
    assert np.ravel(take_sample(samples, 1)).tolist() == [0, 1, 0]
    assert take_sample(samples, 3) is None
    assert take_sample(samples, -1) is None


def test_a_text_is_shown_as_it_is_and_shortened():
    texts = ["see the pump", "x" * 5000, ""]
    for held in (texts, np.array(texts), pd.Series(texts)):
        picture = picture_of(take_sample(held, 0))
        assert picture == Features(("see the pump",), ("text",))
    long = picture_of(texts[1]).values[0]
    assert len(long) <= LONGEST_TEXT
    assert "(5,000 characters)" in long
    assert picture_of("\x1b[2J").values == ("\\x1b[2J",)
