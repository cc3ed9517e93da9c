"""Which metric a layer gets by default, and the warnings where distances mean little."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from iknow import Ball, EpistemicClassifier
from iknow.metrics import Cosine, Euclidean, Minkowski, Scaled
from iknow.metrics.defaults import are_coarse, default_metric, share_of_quieter_half
from iknow.models import PrecomputedModel, SklearnModel


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_a_table_of_unlike_features_is_scaled(load):
    table = load().data.astype(np.float32)
    assert type(default_metric("input", table, table.shape[1:])) is Scaled
    assert type(default_metric("input", table)) is Scaled
    scaled = StandardScaler().fit_transform(table)
    assert default_metric("input", scaled, table.shape[1:]) is Euclidean  # nothing left to do


@pytest.mark.parametrize("load", [load_digits, load_iris, load_diabetes])
@pytest.mark.parametrize("n", [40, None])
def test_features_of_one_unit_are_left_as_they_are(load, n):
    data = load().data[:n].astype(np.float32)
    assert default_metric("input", data, data.shape[1:]) is Euclidean
    dead = np.hstack([data, np.zeros_like(data)])  # at the border, say
    dead[::97, -1] = data.max()
    assert default_metric("input", dead, dead.shape[1:]) is Euclidean


def test_images_and_series_are_no_tables():
    uneven = (np.random.default_rng(0).random((50, 12)) * np.logspace(0, 6, 12)).astype(np.float32)
    assert type(default_metric("input", uneven, (12,))) is Scaled
    assert default_metric("input", uneven, (3, 4)) is Euclidean


def test_counts_of_words_and_what_becomes_of_texts_are_measured_by_direction():
    rng = np.random.default_rng(0)
    counts = (rng.random((60, 300)) < 0.03) * rng.integers(1, 5, (60, 300))
    assert default_metric("input", counts.astype(np.float32), (300,)) == Cosine()
    reduced = rng.normal(size=(60, 20)).astype(np.float32)
    assert default_metric("input", reduced, ()) == Cosine()
    assert default_metric("input", reduced, (20,)) is Euclidean


def test_hidden_layers_are_measured_by_direction_and_scores_by_size():
    wide = np.random.default_rng(0).random((50, 32)).astype(np.float32)
    assert default_metric("hidden", wide) == Cosine()
    assert default_metric("hidden", wide[:, :2]) is Euclidean
    assert default_metric("output", wide) is Euclidean


def test_the_role_of_a_layer():
    X, y = load_iris(return_X_y=True)
    network = MLPClassifier((9, 8), max_iter=300, tol=0.1, random_state=0)
    model = SklearnModel(make_pipeline(StandardScaler(), network).fit(X, y))
    roles = {
        "input": "input", "standardscaler": "input", "hidden1": "hidden", "hidden2": "hidden",
        "logits": "output",
    }  # fmt: skip
    assert {layer: model.role(layer) for layer in roles} == roles
    assert SklearnModel(LogisticRegression(max_iter=1000).fit(X, y)).role("output") == "output"
    outside = PrecomputedModel()
    assert [outside.role(name) for name in ("input", "relu2", "output")] == [
        "input", "hidden", "output"
    ]  # fmt: skip


# Warnings

RNG = np.random.default_rng(0)
ONE_HOT = np.eye(8)[RNG.integers(8, size=400)]


@pytest.mark.parametrize(
    ("inputs", "warned"),
    [
        (load_breast_cancer().data, True),
        (load_wine().data, True),
        (np.column_stack([ONE_HOT, RNG.normal(40, 15, 400)]), True),
        (load_iris().data, False),
        (load_digits().data, False),
        (ONE_HOT, False),
        (np.column_stack([ONE_HOT, RNG.normal(0, 1, 400)]), False),
        (RNG.normal(size=(400, 4)) * [1, 9, 9, 1], False),
        (RNG.normal(size=(400, 4)) * [1, 11, 11, 1], True),
        (np.column_stack([RNG.normal(size=400), np.full(400, 1e9)]), False),  # constant
        (np.column_stack([RNG.normal(size=400), 1e9 * (np.arange(400) == 7)]), False),  # outlier
        (RNG.normal(size=(400, 1)), False),
    ],
)
def test_half_of_the_features_should_make_up_a_hundredth_of_the_distance(inputs, warned):
    assert (share_of_quieter_half(inputs.astype(np.float32)) < 0.01) == warned


def data():
    X, y = load_wine(return_X_y=True)
    return X, y


def fit(model, **parameters):
    X, y = data()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier = EpistemicClassifier(model, rule=Ball(1.0), **parameters).fit(X, y)
    return classifier, [str(w.message) for w in caught if "different scales" in str(w.message)]


FOREST = HistGradientBoostingClassifier(max_iter=3)


def test_raw_features_of_different_scales_are_warned_of_with_the_remedy():
    classifier, messages = fit(FOREST)
    assert classifier.layers_ == ("input", "output")
    assert len(messages) == 1
    assert "make_pipeline(StandardScaler(), classifier)" in messages[0]
    assert fit(nn.Linear(13, 3))[1]


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        (make_pipeline(StandardScaler(), FOREST), {}),
        (FOREST, {"layers": ["input", "output"]}),
        (FOREST, {"layers": ["output"]}),
        (FOREST, {"metric": Minkowski(1)}),
    ],
    ids=["scaled", "input meant", "output alone", "metric"],
)
def test_nothing_is_warned_of_where_the_remedy_was_taken(model, parameters):
    assert not fit(model, **parameters)[1]


def test_the_warning_points_at_the_line_that_called_fit():
    X, y = data()
    with pytest.warns(UserWarning, match="different scales") as caught:
        EpistemicClassifier(FOREST, rule=Ball(1.0)).fit(X, y)
    assert caught[0].filename == __file__


def test_a_pipeline_is_looked_at_behind_its_last_transformer():
    X, y = data()
    model = make_pipeline(StandardScaler(), LogisticRegression())
    classifier = EpistemicClassifier(model).fit(X, y)
    assert classifier.layers_ == ("standardscaler",)
    index = classifier.indexes_["standardscaler"]
    scaled = classifier.model_.estimator[0].transform(X)[index.rows]
    np.testing.assert_allclose(index.points, scaled, rtol=1e-5)
    paper = EpistemicClassifier.paper(model).fit(X, y)
    assert paper.layers_ == ("standardscaler", "output")


# Rounding


@pytest.mark.parametrize(
    ("values", "coarse"),
    [
        (1.7e9 + RNG.uniform(0, 3600, 400), True),  # an hour of timestamps: steps of 128 s
        (1.7e9 + RNG.uniform(0, 3e7, 400), False),  # a year of them
        (np.full(400, 2.0**25) + (np.arange(400) % 2), True),  # two numbers become one
        (1 - RNG.uniform(0, 1e-7, 400), False),  # saturated, as a sure probability is
        (1e8 + RNG.normal(0, 1e6, 400), False),
        (RNG.normal(0, 1e-30, 400), False),
        (np.zeros(400), False),
        (np.full(400, 7.0), False),
        (1e6 * (np.arange(400) == 3), False),  # rarely anything but 0
    ],
)
def test_a_feature_should_vary_by_more_than_rounding(values, coarse):
    assert are_coarse(values.astype(np.float32)[:, None]).tolist() == [coarse]


def test_a_layer_of_rounded_values_is_warned_of_by_name():
    seconds = 1.7e9 + np.arange(40.0)[:, None]
    scores = np.eye(2)[np.arange(40) % 2]
    with pytest.warns(
        UserWarning, match=r"feature 0 of layer 'time' .* steps of 1.3e\+02"
    ) as caught:
        EpistemicClassifier(PrecomputedModel(), rule=Ball(1.0)).fit(
            (scores, {"time": seconds}), np.arange(40) % 2
        )
    assert caught[0].filename == __file__
