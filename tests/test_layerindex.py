"""Layers searched by other metrics than the Euclidean, from fit to bundle."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from iknow import Ball, EpistemicClassifier
from iknow.errors import InputError
from iknow.geometry import Euclidean, Minkowski, Weighted, weighted_metric
from iknow.layerindex import LayerIndex
from iknow.models.arrays import PrecomputedModel
from iknow.parameters import as_metrics
from iknow.search.index import Index


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 3
    points = rng.standard_normal((80, 4)).astype(np.float32) + labels[:, None]
    return points, labels, rng.standard_normal((30, 4)).astype(np.float32)


METRICS = {
    "l1": Minkowski(1),
    "l3": Minkowski(3),
    "max": Minkowski(np.inf),
    "weighted": Weighted(np.random.default_rng(1).standard_normal((4, 2))),
}


@pytest.mark.parametrize("name", METRICS)
def test_class_distances_are_those_of_the_metric(name, data):
    points, labels, queries = data
    metric = METRICS[name]
    index = LayerIndex.build(points, labels, 3, np.arange(80), metric)
    assert isinstance(index, Index)
    evidence = index.gather(queries, k=5)
    distances = metric.distances(queries, points)
    for code in range(3):
        np.testing.assert_allclose(
            evidence.class_distances[:, code], distances[:, labels == code].min(1), rtol=1e-5
        )
    np.testing.assert_allclose(evidence.neighbor_distances, np.sort(distances)[:, :5], rtol=1e-5)


@pytest.mark.parametrize("name", METRICS)
def test_a_classifier_with_a_metric_survives_its_bundle(name, data, tmp_path):
    points, labels, queries = data
    outputs = (np.eye(3)[labels], {"a": points, "b": points[:, :4]})
    asked = (np.eye(3)[np.arange(30) % 3], {"a": queries, "b": queries})
    classifier = EpistemicClassifier(
        PrecomputedModel(), metric={"a": METRICS[name]}, neighborhoods=Ball(1.5)
    ).fit(outputs, labels)
    before = classifier.assess(asked)
    classifier.save(tmp_path / "m.iknow")
    after = EpistemicClassifier.load(tmp_path / "m.iknow").assess(asked)
    for layer in ("a", "b"):
        np.testing.assert_array_equal(
            after.evidence[layer].class_distances, before.evidence[layer].class_distances
        )
    expected = METRICS[name].distances(queries, points).min(axis=1)
    found = before.evidence["a"].nearest_distance()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(
        before.evidence["b"].nearest_distance(),
        Euclidean.distances(queries, points).min(axis=1),
        rtol=1e-5,
    )


def test_the_papers_metric_brings_a_linear_models_output_back_to_its_input(data):
    points, labels, queries = data
    model = LogisticRegression().fit(points, labels)
    metric = weighted_metric([model.coef_.T])
    outputs = model.decision_function(points), model.decision_function(queries)
    weighted = metric.distances(outputs[1], outputs[0])
    plain = Euclidean.distances(queries, points)
    assert (weighted <= plain * (1 + 1e-6)).all()
    assert not np.allclose(weighted, plain)


def test_metrics_are_checked_with_the_layers():
    assert as_metrics(None, ["a"]) == {"a": Euclidean}
    assert as_metrics(Minkowski(1), ["a", "b"]) == {"a": Minkowski(1), "b": Minkowski(1)}
    assert as_metrics({"a": Minkowski(1)}, ["a", "b"]) == {"a": Minkowski(1), "b": Euclidean}
    with pytest.raises(InputError, match=r"such as Minkowski\(1\)"):
        as_metrics("l1", ["a"])
    with pytest.raises(InputError, match="given for c, which is not among the layers a, b"):
        as_metrics({"c": Minkowski(1)}, ["a", "b"])


def test_queries_of_another_width_name_the_metric(data):
    points, labels, queries = data
    index = LayerIndex.build(points, labels, 3, np.arange(80), METRICS["weighted"])
    with pytest.raises(InputError, match="do not fit the layer's metric"):
        index.gather(queries[:, :3])
