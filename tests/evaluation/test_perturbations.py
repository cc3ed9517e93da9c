import numpy as np
import pandas as pd
import pytest

from iknow.errors import InputError
from iknow.evaluation.perturbations import (
    PERTURBATIONS,
    Marginals,
    Mixup,
    Noise,
    Perturbation,
    Scaling,
    Swap,
    perturb_table,
)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = np.abs(rng.normal(size=(400, 3, 4))) * np.arange(1, 5) + 0.1
    X[:, 0, 0] = 0.5  # a feature that never varies
    return X, rng.choice(["a", "b", "c"], size=400)


def apply(perturbation, X, y, seed=0):
    return perturbation(X, y, X, np.random.default_rng(seed))


@pytest.mark.parametrize("perturbation", PERTURBATIONS, ids=lambda each: each.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_what_all_of_them_do(perturbation, dtype, data):
    X, y = (10 * data[0]).astype(dtype), data[1]
    before = X.copy()
    changed, truth = apply(perturbation, X, y)
    assert isinstance(perturbation, Perturbation)
    np.testing.assert_array_equal(X, before)  # the inputs stay
    assert (changed.shape, changed.dtype) == (X.shape, X.dtype)
    assert not np.array_equal(changed, X)
    assert X.min() <= changed.min() <= changed.max() <= X.max()
    assert truth is None or len(truth) == len(X)
    again, _ = apply(perturbation, X, y)
    np.testing.assert_array_equal(changed, again)


def test_noise_is_in_units_of_each_feature(data):
    X, y = data
    wide = np.concatenate([X, [X.min() - 99 + 0 * X[0], X.max() + 99 + 0 * X[0]]])
    wide[-2:, 0, 0] = 0.5
    changed, truth = Noise(0.1)(X, y, wide, np.random.default_rng(0))
    np.testing.assert_array_equal(changed[:, 0, 0], 0.5)
    spread = (changed - X).std(axis=0)[1:]
    np.testing.assert_allclose(spread, 0.1 * wide.std(axis=0)[1:], rtol=0.15)
    assert truth is y


def test_swapped_features_keep_their_values(data):
    X, y = data
    X = X + np.arange(12).reshape(3, 4) * 1e-3  # all different
    changed, truth = apply(Swap(0.25), X, y)
    flat, new = X.reshape(400, -1), changed.reshape(400, -1)
    np.testing.assert_array_equal(np.sort(new), np.sort(flat))
    np.testing.assert_array_equal((new != flat).sum(axis=1), 3)  # a quarter of 12
    assert truth is y


def test_scaling_multiplies_whole_samples(data):
    X, y = data
    wide = np.array([-99.0, 99.0])
    changed, _ = Scaling(3.0)(X, y, wide, np.random.default_rng(0))
    factors = (changed / X).reshape(400, -1)
    np.testing.assert_allclose(factors, factors[:, :1].repeat(12, axis=1))
    assert factors.min() >= 1 / 3
    assert factors.max() <= 3
    assert (factors[:, 0] < 1).mean() == pytest.approx(0.5, abs=0.1)


def test_a_mixture_lies_between_its_parents_of_two_classes(data):
    X, y = data
    changed, truth = apply(Mixup(0.5), X, y)
    assert truth.shape == (400, 2)
    np.testing.assert_array_equal(truth[:, 0], y)
    assert (truth[:, 0] != truth[:, 1]).all()
    for i in range(400):  # some sample of the other label is the partner
        partner = 2 * changed[i] - X[i]
        gaps = np.abs(X[y == truth[i, 1]] - partner).max(axis=(1, 2))
        assert gaps.min() < 1e-9


def test_a_mixture_of_one_class_is_of_that_class(data):
    _, truth = apply(Mixup(), data[0], np.full(400, "a"))
    assert (truth == "a").all()


def test_marginals_keep_each_feature_and_break_samples(data):
    X, y = data
    changed, truth = apply(Marginals(), X, y)
    np.testing.assert_array_equal(np.sort(changed, axis=0), np.sort(X, axis=0))
    joint = np.corrcoef(changed[:, 0, 1], np.abs(X[:, 0, 1]))[0, 1]
    assert abs(joint) < 0.2
    assert truth is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: Noise(0),
        lambda: Swap(0),
        lambda: Swap(1.5),
        lambda: Scaling(1),
        lambda: Mixup(0.6),
        lambda: Noise(np.nan),
    ],
)
def test_strengths_must_make_sense(make):
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize("perturbation", PERTURBATIONS, ids=lambda each: each.name)
def test_a_table_keeps_gaps_types_and_what_is_no_number(perturbation):
    rng, n = np.random.default_rng(0), 60
    frame = pd.DataFrame(
        {
            "size": np.where(np.arange(n) % 5 == 0, np.nan, rng.normal(size=n)),
            "count": rng.integers(9, size=n),
            "flag": rng.random(n) < 0.5,
            "city": pd.Categorical(rng.choice(["Bern", "Rome"], n)),
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(n), "D"),
        },
        index=np.arange(n) + 7,
    )
    before, y = frame.copy(), np.arange(n) % 3
    found, truth = perturb_table(perturbation, frame, y, frame, np.random.default_rng(1))
    pd.testing.assert_frame_equal(frame, before)
    assert found.dtypes.equals(frame.dtypes)
    assert found.index.equals(frame.index)
    assert not found["size"].equals(frame["size"])
    is_marginals = isinstance(perturbation, Marginals)
    assert (truth is None) == is_marginals
    for name in ("city", "when"):
        assert found[name].equals(frame[name]) != is_marginals
        assert sorted(found[name]) == sorted(frame[name])
    assert found["size"].isna().equals(frame["size"].isna())
