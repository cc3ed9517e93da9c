"""Inputs: cut into batches, what is taken as them, and their lengths against long doubles."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix, dok_array, lil_matrix, sparray

from iknow.errors import InputError
from iknow.models import PrecomputedModel
from iknow.models import inputs as inputs_module
from iknow.models.inputs import (
    BATCH_OF_UNKNOWN_SIZE,
    BYTES_PER_BATCH,
    LARGEST_BATCH,
    PROBES,
    affordable_batch_size,
    as_dense,
    count_samples,
    cut_batches,
    measure,
    own_copy,
    take_rows,
)
from iknow.models.model import Observation

N = 10
VALUES = np.arange(N * 3, dtype=float).reshape(N, 3)
KINDS = {
    "array": lambda: VALUES,
    "image array": lambda: VALUES.reshape(N, 3, 1, 1),
    "tensor": lambda: torch.as_tensor(VALUES),
    # Labels of the rows that are not their positions: only positions may count.
    "frame": lambda: pd.DataFrame(VALUES, columns=["a", "b", "c"], index=np.arange(N)[::-1] / 2),
    "list": lambda: VALUES.tolist(),
    "observation": lambda: PrecomputedModel().prepare((VALUES, {"hidden": VALUES})),
}


def values_of(batch):
    return np.asarray(batch.scores if isinstance(batch, Observation) else batch).reshape(-1, 3)


# Batches


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("size", "sizes"),
    [(5, [5, 5]), (3, [3, 3, 3, 1]), (1, [1] * N), (N, [N]), (1000, [N])],
)
def test_batches_are_successive_and_of_the_size_asked_for(kind, size, sizes):
    inputs = KINDS[kind]()
    batches = cut_batches(inputs, size)
    assert [len(batch) for batch in batches] == sizes
    assert {type(batch) for batch in batches} == {type(inputs)}
    np.testing.assert_array_equal(np.concatenate([values_of(b) for b in batches]), VALUES)


def test_batches_of_a_frame_keep_its_columns():
    assert all(list(batch) == ["a", "b", "c"] for batch in cut_batches(KINDS["frame"](), 4))


def test_batches_of_an_observation_hold_all_its_parts():
    invalid = np.arange(N) % 4 == 0
    whole = Observation(VALUES, np.arange(N), {"a": VALUES, "b": VALUES[:, :1]}, invalid)
    _, part, _ = cut_batches(whole, 4)
    np.testing.assert_array_equal(part.scores, VALUES[4:8])
    np.testing.assert_array_equal(part.belief, [4, 5, 6, 7])
    np.testing.assert_array_equal(part.activations["a"], VALUES[4:8])
    np.testing.assert_array_equal(part.activations["b"], VALUES[4:8, :1])
    np.testing.assert_array_equal(part.invalid, invalid[4:8])


@pytest.mark.parametrize("kind", KINDS)
def test_no_samples_are_refused(kind):
    inputs = KINDS[kind]()
    empty = inputs.iloc[:0] if kind == "frame" else inputs[:0]
    assert count_samples(empty) == 0
    with pytest.raises(InputError, match="X holds no samples"):
        cut_batches(empty, 4)


@pytest.mark.parametrize("size", [0, -1, True, 2.0, np.float64(3), "4", [5]])
def test_a_batch_size_that_is_no_whole_number_from_one_on_is_refused(size):
    with pytest.raises(InputError, match="batch_size must be a whole number >= 1; got"):
        cut_batches(VALUES, size)


@pytest.mark.parametrize("size", [np.int64(4), np.uint8(4), 10**30])
def test_a_batch_size_may_be_any_kind_of_whole_number(size):
    found, expected = cut_batches(VALUES, size), cut_batches(VALUES, 4 if size == 4 else N)
    for batch, alike in zip(found, expected, strict=True):
        np.testing.assert_array_equal(batch, alike)


def virtual(n, *shape, dtype=np.float32):
    """An array of n samples that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), (n, *shape))


def observation_of(scores, **activations):
    n = len(scores)
    return Observation(scores, np.zeros(n, dtype=int), activations, np.zeros(n, dtype=bool))


@pytest.mark.parametrize(
    ("inputs", "per_sample"),
    [
        (virtual(1000, 3, 224, 224), 3 * 224 * 224 * 4),
        (torch.zeros(1).expand(1000, 3, 224, 224), 3 * 224 * 224 * 4),
        (pd.DataFrame(np.zeros((600, 20_000), dtype=np.float32)), 20_000 * 4),
        (observation_of(virtual(1000, 20_000, dtype=float)), 20_000 * 8),
        (observation_of(virtual(1000, 8), a=virtual(1000, 9_992), b=virtual(1000, 10_000)), 80_000),
    ],
    ids=["array", "tensor", "frame", "scores", "activations"],
)
def test_unless_a_size_is_given_a_batch_takes_the_memory_set_aside(inputs, per_sample):
    size = BYTES_PER_BATCH // per_sample
    assert 1 < affordable_batch_size(inputs) == size < LARGEST_BATCH
    assert len(cut_batches(inputs)[0]) == min(len(inputs), size)


def test_a_batch_holds_at_least_one_sample_and_at_most_some_thousands():
    huge = virtual(3, BYTES_PER_BATCH)
    assert [len(batch) for batch in cut_batches(huge)] == [1, 1, 1]
    small = virtual(2 * LARGEST_BATCH + 1, 1)
    assert [len(batch) for batch in cut_batches(small)] == [LARGEST_BATCH, LARGEST_BATCH, 1]
    assert affordable_batch_size(virtual(10, 0)) == LARGEST_BATCH


def test_inputs_that_do_not_tell_their_size_are_cut_as_ever():
    assert affordable_batch_size([[0.0]] * 5000) == BATCH_OF_UNKNOWN_SIZE


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_counted_along_the_first_axis(kind):
    assert count_samples(KINDS[kind]()) == N


@pytest.mark.parametrize("inputs", [7, None, np.array(3.0), torch.tensor(3.0)])
def test_what_has_no_samples_cannot_be_counted(inputs):
    with pytest.raises(InputError, match="samples along their first axis"):
        count_samples(inputs)


# Dense inputs


def test_a_frame_is_dense_as_it_is():
    frame = KINDS["frame"]()
    assert as_dense(frame) is frame


@pytest.mark.parametrize("kind", ["array", "image array", "list", "tensor"])
def test_all_else_becomes_an_array(kind):
    dense = as_dense(KINDS[kind]())
    assert type(dense) is np.ndarray
    np.testing.assert_array_equal(dense.reshape(N, 3), VALUES)


@pytest.mark.parametrize(
    "make", [csr_array, csc_array, coo_array, dok_array, csr_matrix, lil_matrix]
)
def test_a_sparse_matrix_stays_sparse_and_gives_its_rows(make):
    found = as_dense(make(VALUES))
    assert count_samples(found) == N
    assert isinstance(found, csr_array if issubclass(make, sparray) else csr_matrix)
    parts = [batch.toarray() for batch in cut_batches(found, 4)]
    np.testing.assert_array_equal(np.concatenate(parts), VALUES)
    np.testing.assert_array_equal(take_rows(found, np.array([7, 2])).toarray(), VALUES[[7, 2]])


def test_a_batch_of_a_sparse_matrix_is_as_large_as_if_it_were_dense():
    assert affordable_batch_size(csr_array((5, 1 << 20))) == BYTES_PER_BATCH // (4 << 20)


def test_inputs_without_features_are_refused_with_what_to_do():
    with pytest.raises(InputError, match=r"X\.reshape\(-1, 1\).*X\.reshape\(1, -1\)"):
        as_dense(VALUES[0])


@pytest.mark.parametrize("inputs", [3.0, None, "text", {1.0}, (x for x in VALUES), object()])
def test_what_is_no_array_is_refused(inputs):
    with pytest.raises(InputError, match="X must be an array with samples along its first axis"):
        as_dense(inputs)


def test_text_is_taken_as_it_is_since_a_pipeline_may_encode_it():
    assert as_dense([["a", "b"], ["c", "d"]]).dtype.kind == "U"


# Objects: text and the like


WORDS = ["one", "two words", "", "drei\0"]
TEXTS = {
    "list": WORDS,
    "tuple": tuple(WORDS),
    "array": np.array(WORDS, dtype=object),
    "numpy's text": np.array(WORDS, dtype=np.dtypes.StringDType()),
    "Series": pd.Series(WORDS, index=[3, 1, 4, 1]),
    "Series of objects": pd.Series(WORDS, dtype=object),
    "polars": pl.Series(WORDS),
    "Arrow": pa.array(WORDS),
    "Arrow in chunks": pa.chunked_array([WORDS[:1], WORDS[1:]]),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_texts_have_one_axis_and_stay_as_they_are(kind):
    found = as_dense(TEXTS[kind])
    assert np.shape(found) == (4,)
    assert list(found) == WORDS
    assert list(take_rows(found, np.array([2, 0]))) == ["", "one"]
    assert [len(batch) for batch in cut_batches(found, 3)] == [3, 1]
    assert affordable_batch_size(found) == BATCH_OF_UNKNOWN_SIZE
    assert own_copy(found) is not found


def test_dicts_and_lists_of_words_have_one_axis_too():
    for listed in ([{"a": 1}, {"b": "x"}], [["a", "b"], ["c"], []], [b"bytes", None]):
        found = as_dense(listed)
        assert (found.shape, found.dtype) == ((len(listed),), np.dtype(object))
        assert found.tolist() == listed


@pytest.mark.parametrize(
    "numbers",
    [[1, 2.5], pd.Series([1, 2]), pd.Series([1, None], dtype="Int64"), np.array([1, None]),
     pd.Series([1, 2], dtype=object), pl.Series([1, 2]), [], ["2020-01-01", 7]],
)  # fmt: skip
def test_numbers_with_one_axis_are_refused(numbers):
    with pytest.raises(
        InputError, match=r"Reshape your data|row 1 is 7 of type int|X holds no samples"
    ):
        as_dense(numbers)


def test_a_query_that_has_not_run_is_refused():
    with pytest.raises(InputError, match=r"X\.collect\(\)"):
        as_dense(pl.DataFrame({"a": [1]}).lazy())


# Lengths


LONG = np.random.default_rng(0).normal(size=(50, 3, 4)) * 1e3
MEASURED = {
    "array": LONG,
    "float32": LONG.astype(np.float32),
    "float16": LONG.astype(np.float16),
    "whole numbers": LONG.astype(np.int32),
    "reversed": LONG[::-1, ::-1],
    "frame": pd.DataFrame(LONG.reshape(50, 12)),
    "tensor": torch.from_numpy(LONG).requires_grad_(),
    "bfloat16": torch.from_numpy(LONG).bfloat16(),
}


@pytest.mark.parametrize("kind", MEASURED)
def test_no_input_is_longer_than_its_length(kind, monkeypatch):
    monkeypatch.setattr(inputs_module, "NUMBERS_AT_ONCE", 100)  # so in several parts
    inputs = MEASURED[kind]
    wide = inputs.detach().double().numpy() if hasattr(inputs, "detach") else np.asarray(inputs)
    exact = np.sqrt((wide.reshape(50, -1).astype(np.longdouble) ** 2).sum(axis=1))
    sizes = measure(inputs)
    assert (sizes.lengths >= exact).all()
    np.testing.assert_allclose(sizes.lengths, exact.astype(float), rtol=2e-9)
    assert len(sizes.probe) == PROBES


def test_what_has_no_length_has_none():
    for inputs in (
        pd.DataFrame({"a": ["1", "2"]}),
        np.array([["a"], ["b"]]),
        np.array([[1j], [2j]]),
        torch.tensor([[1j], [2j]]),
        [[1.0], [2.0]],
    ):
        assert measure(inputs).lengths is None
    assert measure(np.zeros((0, 3))).lengths.shape == (0,)
    assert measure(torch.zeros(0, 3)).lengths.shape == (0,)
    assert measure(np.zeros((2, 0))).lengths.tolist() == [0, 0]
    assert not np.isfinite(measure(np.array([[np.nan], [np.inf], [1e200]])).lengths).any()


def test_the_probe_is_a_copy():
    for inputs in (np.ones((9, 2)), pd.DataFrame(np.ones((9, 2))), torch.ones(9, 2)):
        probe = measure(inputs).probe
        inputs *= 0
        assert (np.asarray(probe) == 1).all()
