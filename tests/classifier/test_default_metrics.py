"""Which metric a layer gets by default."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from iknow.classifier.default_metrics import default_metric
from iknow.metrics import Cosine, Euclidean, Scaled
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
