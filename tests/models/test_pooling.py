"""Pooling against loops over samples and tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iknow.errors import InputError, LayerError
from iknow.models.network import Pooling

ROWS = np.random.default_rng(0).normal(size=(5, 7, 3)).astype(np.float32)


@given(st.lists(st.integers(1, 7), min_size=5, max_size=5), st.booleans(), st.integers(0, 4))
def test_padding_on_either_side_and_of_any_length_changes_nothing(lengths, on_the_left, more):
    real = [ROWS[i, :length] for i, length in enumerate(lengths)]
    width = max(lengths) + more
    values = np.full((5, width, 3), np.nan, dtype=np.float32)  # nobody may look at padding
    mask = np.zeros((5, width), dtype=np.int64)
    for i, row in enumerate(real):
        place = slice(width - len(row), width) if on_the_left else slice(0, len(row))
        values[i, place], mask[i, place] = row, 1
    expected = {
        "mean": [sum(row) / len(row) for row in real],
        "cls": [row[0] for row in real],
        "last": [row[-1] for row in real],
    }
    for way, rows in expected.items():
        np.testing.assert_allclose(Pooling(way)("h", values, mask=mask), rows, rtol=1e-5, atol=1e-6)


def test_the_pooled_vector_of_a_sample_is_the_same_to_the_bit_however_far_it_is_padded():
    mask = np.ones((5, 7), dtype=bool)
    padded = np.concatenate([ROWS, np.full((5, 4, 3), 9, dtype=np.float32)], axis=1)
    wider = np.concatenate([mask, np.zeros((5, 4), dtype=bool)], axis=1)
    for way in ("mean", "cls", "last"):
        np.testing.assert_array_equal(
            Pooling(way)("h", padded, mask=wider), Pooling(way)("h", ROWS, mask=mask)
        )


def test_convolutions_are_averaged_over_space():
    images = np.random.default_rng(1).normal(size=(2, 3, 4, 5))
    pooled = Pooling("mean")("conv", images, features_last=False)
    expected = [[np.mean(channel) for channel in image] for image in images]
    np.testing.assert_allclose(pooled, expected)
    last = Pooling("mean")("conv", np.moveaxis(images, 1, -1))
    np.testing.assert_allclose(last, expected)


def test_a_sample_without_any_token_has_no_vector():
    mask = np.array([[1, 1], [0, 0]])
    for way in ("mean", "cls", "last"):
        pooled = Pooling(way)("h", np.ones((2, 2, 3)), mask=mask)
        assert np.isnan(pooled).all(axis=1).tolist() == [False, True]


def test_vectors_and_the_input_stay_as_they_are_and_a_mapping_names_its_layers():
    vectors = np.ones((4, 6))
    assert Pooling("mean")("h", vectors) is vectors
    assert Pooling(lambda values: values.max(axis=1))("h", vectors) is vectors
    assert Pooling("mean")("input", ROWS).shape == ROWS.shape
    by_layer = Pooling({"input": "mean", "h": lambda values: values.max(axis=1)})
    assert by_layer("input", ROWS).shape == (5, 3)
    np.testing.assert_array_equal(by_layer("h", ROWS), ROWS.max(axis=1))
    assert by_layer("other", ROWS) is ROWS
    by_layer.check_names(["input", "h"], "Net")
    with pytest.raises(
        LayerError, match="pool= names layers, and Net has no layer 'h': it has 'input'"
    ):
        by_layer.check_names(["input"], "Net")


@pytest.mark.parametrize("pool", ["max", 3, {"h": "max"}, {"h": 1}, np.ones(2)])
def test_an_unknown_way_is_refused(pool):
    with pytest.raises(InputError, match="pool must be 'mean', 'cls', 'last', a function"):
        Pooling(pool)


def test_what_makes_no_sense_is_refused_with_what_does():
    mask = np.array([[1] * 6 + [0]] * 5)
    with pytest.raises(LayerError, match="padding would count as text: say pool='mean'"):
        Pooling()("h", ROWS, mask=mask)
    with pytest.raises(LayerError, match="does not hold the 7 tokens"):
        Pooling("mean")("h", ROWS[:, :4], mask=mask)
    with pytest.raises(LayerError, match="has channels and no tokens"):
        Pooling("cls")("h", ROWS, features_last=False)
    with pytest.raises(LayerError, match=r"must have shape \(n, tokens, features\)"):
        Pooling("last")("h", ROWS[:, :, None])
    with pytest.raises(LayerError, match=r"one vector per sample, 5 rows.*got shape \(3,\)"):
        Pooling(lambda values: values[0, 0])("h", ROWS)
