"""Another unit is told where many values show it, and nothing else is."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from iknow import EpistemicClassifier
from iknow.classifier.units import FEWEST_VALUES, find_ranges, warn_of_units


def told(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in caught]


def tuned(model, X, y):
    ec = EpistemicClassifier(model, progress=False)
    return ec.fit(X[:200], y[:200]).tune(X[200:280], coverage=0.7)


RNG = np.random.default_rng(0)
Y = RNG.integers(2, size=400)
FRAME = pd.DataFrame(
    {
        "income": np.exp(RNG.normal(10, 0.4, 400) + 0.5 * Y),
        "gap": np.where(RNG.random(400) < 0.4, np.nan, RNG.normal(3, 1, 400)),
        "gain": np.where(RNG.random(400) < 0.8, 0.0, RNG.exponential(500, 400)),
        "year": RNG.integers(2015, 2020, 400),
        "city": pd.Categorical(RNG.choice(["Bern", "Rome"], 400)),
    }
)
ARRAY = FRAME[["income", "gain", "year"]].to_numpy(np.float32)


@pytest.fixture(scope="module")
def boosting():
    return tuned(
        FrozenEstimator(HistGradientBoostingClassifier(max_iter=3).fit(FRAME, Y)), FRAME, Y
    )


@pytest.mark.parametrize(
    ("factor", "how"), [(1000, "larger"), (0.001, "smaller"), (2.5, None), (100, "larger")]
)
def test_a_column_in_another_unit_is_named(boosting, factor, how):
    queries = FRAME[280:].assign(income=FRAME["income"] * factor)
    found = told(lambda: boosting.assess(queries))
    if how is None:  # that may be a raise
        assert found == []
        return
    (message,) = found
    assert f"the values of column 'income' are much {how} than in training, where 2" in message
    assert message.endswith("is typical: check its unit")


@pytest.mark.parametrize("column", ["gap", "gain"])
def test_gaps_and_zeros_are_no_values(boosting, column):
    queries = FRAME.assign(**{column: FRAME[column] * 1000})
    (message,) = told(lambda: boosting.assess(queries))
    assert f"column {column!r}" in message
    few = queries[queries[column].fillna(0) != 0][: FEWEST_VALUES - 1]
    assert told(lambda: boosting.assess(few)) == []


def test_every_column_outside_its_range_is_told_even_by_a_small_factor(boosting):
    celsius = FRAME[280:].assign(gap=FRAME["gap"] * 1.8 + 32)
    assert "'gap'" in told(lambda: boosting.assess(celsius))[0]


def test_networks_functions_and_pipelines_tell_it_too():
    torch.manual_seed(1)
    scaled = (ARRAY - ARRAY.mean(0)) / ARRAY.std(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    by_names = FRAME[["income", "gain", "year"]]
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(by_names, Y)
    answers = network(torch.tensor(scaled, dtype=torch.float32)).argmax(1).numpy()  # untrained
    for model, X, y in (
        (network.eval(), scaled, answers),
        (lambda rows: np.stack([rows[:, 0], -rows[:, 0]], axis=1), scaled, scaled[:, 0] < 0),
        (FrozenEstimator(pipeline), by_names, Y),
    ):
        ec = tuned(model, X, np.asarray(y, dtype=int))
        assert told(lambda ec=ec, X=X: ec.assess(X[280:])) == []
        assert "check its unit" in told(lambda ec=ec, X=X: ec.assess(X[280:] * 1000))[0]


def test_ordinary_shifts_single_samples_and_categories_are_silent(boosting):
    later = FRAME.assign(year=FRAME["year"] + 10)  # outside, but by little
    for queries in (
        FRAME[280:], later, FRAME[:1].assign(income=1e9), FRAME.sort_values("income")[-30:],
        FRAME.sort_values("gain")[-25:], FRAME[Y == 1], FRAME.assign(city="Rome"),
        FRAME.assign(city="Martian"), FRAME.assign(income=FRAME["income"] * 2),
        FRAME.assign(gap=np.nan), FRAME.assign(gain=0.0),
    ):  # fmt: skip
        assert told(lambda queries=queries: boosting.assess(queries)) == []


def test_pixels_are_told_together():
    X, y = load_digits(return_X_y=True)
    X = X / 16
    ec = tuned(lambda rows: np.eye(10)[y[: len(rows)]] + rows[:, :1], X, y)
    foreign = RNG.random((50, 64))  # pixels that are hardly ever on are, now
    assert told(lambda: ec.assess(foreign)) == []
    (message,) = told(lambda: ec.assess(X[280:] * 255))
    assert "columns affected: " in message


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_no_part_of_real_tables_is_told(load):
    X, y = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    half = len(X) // 2
    model = LogisticRegression(max_iter=10_000).fit(StandardScaler().fit_transform(X), y)
    ec = EpistemicClassifier(FrozenEstimator(model), progress=False).fit(X[:half], y[:half])
    layer, ranges = ec.plan_.ranges
    assert layer == "input"
    for j in range(X.shape[1]):  # the extremes of every column, and every class
        rows = np.argsort(X[:, j], kind="stable")
        for part in (rows[:25], rows[-25:], np.flatnonzero(y == j % 2)):
            assert told(lambda part=part: warn_of_units(ranges, X[part], range(99))) == []


def test_the_rule_is_that_of_medians_and_ranges_written_out():
    rng, said = np.random.default_rng(1), 0
    ec = tuned(lambda rows: np.stack([rows[:, 0], -rows[:, 0]], axis=1), ARRAY[:, :1], Y)
    ranges = find_ranges(ec.indexes_["input"])
    train = ARRAY[:200, 0].astype(float)
    for _ in range(300):
        values = rng.choice(ARRAY[200:, 0], 21) * rng.choice([1, 1.4, 2, 4, 99, 101, 0.3, 0.005])
        values = values.astype(np.float64)
        ratio = np.median(values) / np.median(train)
        outside = np.mean((values < train.min()) | (values > train.max())) >= 0.95
        expected = max(ratio, 1 / ratio) >= (1.5 if outside else 100)
        assert bool(told(lambda v=values: warn_of_units(ranges, v[:, None], [0]))) == expected
        said += expected
    assert 50 < said < 250
