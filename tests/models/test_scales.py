"""Warned of features whose scales differ so much that distances ignore half of them."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from iknow import Ball, EpistemicClassifier
from iknow.metrics import Minkowski
from iknow.models.precomputed import PrecomputedModel
from iknow.models.scales import are_coarse, share_of_quieter_half

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
        classifier = EpistemicClassifier(model, neighborhoods=Ball(1.0), **parameters).fit(X, y)
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
        EpistemicClassifier(FOREST, neighborhoods=Ball(1.0)).fit(X, y)
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
        EpistemicClassifier(PrecomputedModel(), neighborhoods=Ball(1.0)).fit(
            (scores, {"time": seconds}), np.arange(40) % 2
        )
    assert caught[0].filename == __file__
