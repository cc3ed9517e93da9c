"""Layers searched by other metrics than the Euclidean, from fit to bundle."""

import pickle
import sys
import types
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from iknow import Ball, EpistemicClassifier
from iknow.classifier.plan import as_metrics
from iknow.errors import BundleError, InputError, MissingExtraError
from iknow.metrics import (
    Cosine,
    Euclidean,
    Minkowski,
    Scaled,
    Weighted,
    Whitened,
    register_metric,
    weighted_metric,
)
from iknow.metrics.metric import METRICS as REGISTERED
from iknow.models import PrecomputedModel
from iknow.search.cells import CpuIndex
from iknow.search.index import Index
from iknow.search.layer import LayerIndex
from iknow.testing import assert_same_evidence


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
    "cosine": Cosine(),
    "scaled": Scaled(),
    "whitened": Whitened(),
}


@pytest.mark.parametrize("name", METRICS)
def test_class_distances_are_those_of_the_metric(name, data):
    points, labels, queries = data
    metric = METRICS[name].fit(points, labels)
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
        PrecomputedModel(), metric={"a": METRICS[name]}, rule=Ball(1.5)
    ).fit(outputs, labels)
    before = classifier.assess(asked)
    classifier.save(tmp_path / "m.iknow")
    after = EpistemicClassifier.load(tmp_path / "m.iknow").assess(asked)
    for layer in ("a", "b"):
        np.testing.assert_array_equal(
            after.evidence[layer].class_distances, before.evidence[layer].class_distances
        )
    expected = METRICS[name].fit(points, labels).distances(queries, points).min(axis=1)
    found = before.evidence["a"].nearest_distance()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(
        before.evidence["b"].nearest_distance(),
        Euclidean.distances(queries, points).min(axis=1),
        rtol=1e-5,
    )


@dataclass(frozen=True)
class Shrunk(Minkowski):
    """A metric of one's own, which is not registered at first."""

    def transform(self, activations):
        return np.asarray(activations) / 8


def test_a_metric_of_ones_own_survives_its_bundle_once_it_is_registered(data, tmp_path):
    points, labels, queries = data
    outputs, asked = (np.eye(3)[labels], {"a": points}), (np.zeros((30, 3)), {"a": queries})
    classifier = EpistemicClassifier(PrecomputedModel(), metric=Shrunk(2), rule=Ball(1.5)).fit(
        outputs, labels
    )
    path = tmp_path / "m.iknow"
    with pytest.raises(InputError, match=r"register_metric\(Shrunk\) before you save"):
        classifier.save(path)
    assert not path.exists()
    try:
        register_metric(Shrunk)
        classifier.save(path)
        loaded = EpistemicClassifier.load(path)
    finally:
        del REGISTERED["Shrunk"]
    assert loaded.metric == Shrunk(2)
    assert_same_evidence(loaded.assess(asked).evidence["a"], classifier.assess(asked).evidence["a"])
    with pytest.raises(BundleError, match="no metric is registered as 'Shrunk'"):
        EpistemicClassifier.load(path)


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
    assert as_metrics(None, ["a"]) == {"a": None}
    assert as_metrics("cosine", ["a", "b"]) == {"a": Cosine(), "b": Cosine()}
    given = as_metrics({"a": "scaled", "b": "euclidean", "c": Minkowski(1)}, ["a", "b", "c"])
    assert (type(given["a"]), given["b"], given["c"]) == (Scaled, Euclidean, Minkowski(1))
    assert type(as_metrics("whitened", ["a"])["a"]) is Whitened
    assert as_metrics(Minkowski(1), ["a", "b"]) == {"a": Minkowski(1), "b": Minkowski(1)}
    assert as_metrics({"a": Minkowski(1)}, ["a", "b"]) == {"a": Minkowski(1), "b": None}
    for wrong in ("l1", Cosine, {"a": None}, 2, ["cosine"]):
        with pytest.raises(InputError, match=r"one of 'cosine', .* such as Minkowski\(1\)"):
            as_metrics(wrong, ["a"])
    with pytest.raises(InputError, match="metric names 'c', which is not among the layers a, b"):
        as_metrics({"c": Minkowski(1)}, ["a", "b"])


def test_queries_of_another_width_name_the_metric(data):
    points, labels, queries = data
    index = LayerIndex.build(points, labels, 3, np.arange(80), METRICS["weighted"])
    with pytest.raises(InputError, match="do not fit the layer's metric"):
        index.gather(queries[:, :3])


class Unreadable(np.ndarray):
    """An array that may be measured but not read."""

    def __array__(self, *arguments, **keywords):
        raise AssertionError("it was read")

    def __getitem__(self, *arguments):
        raise AssertionError("it was read")


def test_nothing_is_read_before_the_first_query(data):
    points, labels, queries = data
    refuse = []

    def check():
        refuse.append(1)
        raise InputError("no good")

    arrays = [a.view(Unreadable) for a in (points, labels, np.arange(80))]
    index = LayerIndex(arrays[0], arrays[1], 3, arrays[2], Euclidean, check=check)
    assert (index.n_rows, index.n_features, index.n_classes) == (80, 4, 3)
    assert refuse == []
    for use in (
        lambda: index.gather(queries),
        lambda: index.decide(queries, Ball(1), np.zeros(len(queries), dtype=np.int64)),
        lambda: pickle.dumps(index),
        lambda: index.points,
    ):
        with pytest.raises(InputError, match="no good"):
            use()
    assert len(refuse) == 4


def test_what_is_built_of_activations_is_checked_at_once(data):
    points, labels, _ = data
    points[7, 1] = np.nan
    with pytest.raises(InputError, match="row 7 is not"):
        LayerIndex.build(points, labels, 3, np.arange(80), Euclidean)


@pytest.mark.parametrize("name", [*METRICS, "euclidean"])
def test_a_layer_survives_pickling(name, data):
    points, labels, queries = data
    metric = METRICS.get(name, Euclidean).fit(points, labels)
    index = LayerIndex.build(points, labels, 3, 100 + np.arange(80), metric)
    again = pickle.loads(pickle.dumps(index))
    assert_same_evidence(again.gather(queries, 3), index.gather(queries, 3))
    assert again.metric.to_dict() == metric.to_dict()


def test_float32_sorted_by_class_is_used_in_place(data, tmp_path):
    points, labels, _ = data
    order = np.argsort(labels, kind="stable")
    np.save(tmp_path / "points.npy", points[order].astype(np.float32))
    mapped = np.load(tmp_path / "points.npy", mmap_mode="r")
    index = LayerIndex(mapped, labels[order], 3, np.arange(80), Euclidean)
    assert np.shares_memory(index.points, mapped)


class FakeTorchIndex(CpuIndex):
    """Stands in for the search on a device; it remembers on which."""

    def __init__(self, activations, labels, n_classes, rows=None, device=None):
        super().__init__(activations, labels, n_classes, rows)
        self.device = device


@pytest.fixture
def fake_torch(monkeypatch):
    module = types.ModuleType("iknow.search.kernels.torch")
    module.TorchIndex = FakeTorchIndex
    monkeypatch.setitem(sys.modules, "iknow.search.kernels.torch", module)


def test_a_device_has_torch_search_in_every_layer(data, fake_torch, tmp_path):
    points, labels, _ = data
    outputs = (np.eye(3)[labels], {"a": points, "b": points})
    classifier = EpistemicClassifier(
        PrecomputedModel(),
        rule=Ball(1),
        metric={"b": METRICS["weighted"]},
        search="cuda:1",
    ).fit(outputs, labels)
    plain = EpistemicClassifier(
        PrecomputedModel(), rule=Ball(1), metric={"b": METRICS["weighted"]}
    ).fit(outputs, labels)
    classifier.save(tmp_path / "x.iknow")
    moved = EpistemicClassifier.load(tmp_path / "x.iknow", search="mps")
    here = EpistemicClassifier.load(tmp_path / "x.iknow")
    for made, device in ((classifier, "cuda:1"), (moved, "mps"), (here, None), (plain, None)):
        assert made.get_params()["search"] == device
        for index in made.indexes_.values():
            assert getattr(index._index, "device", None) == device
            assert isinstance(index._index, FakeTorchIndex) == (device is not None)
        assert made.assess(outputs).explain(3) == plain.assess(outputs).explain(3)
    assert b"cuda" not in (tmp_path / "x.iknow").read_bytes()
    assert clone(classifier).search == "cuda:1"


@pytest.mark.parametrize("p", [1, 3, np.inf])
def test_a_device_searches_in_the_euclidean_norm_alone(data, fake_torch, tmp_path, p):
    points, labels, _ = data
    outputs = (np.eye(3)[labels], {"a": points})
    parameters = {"rule": Ball(1), "metric": Minkowski(p)}
    with pytest.raises(
        InputError, match=r"'cuda' uses the Euclidean norm, p=2; got Minkowski\(p=.*: omit"
    ):
        EpistemicClassifier(PrecomputedModel(), search="cuda", **parameters).fit(outputs, labels)
    classifier = EpistemicClassifier(PrecomputedModel(), **parameters).fit(outputs, labels)
    classifier.save(tmp_path / "x.iknow")
    with pytest.raises(InputError, match="Euclidean norm, p=2"):
        EpistemicClassifier.load(tmp_path / "x.iknow", search="cuda")


def test_a_device_without_torch_says_what_to_install(data, monkeypatch, tmp_path):
    points, labels, _ = data
    outputs = (np.eye(3)[labels], {"a": points})
    classifier = EpistemicClassifier(PrecomputedModel(), rule=Ball(1)).fit(outputs, labels)
    classifier.save(tmp_path / "x.iknow")
    monkeypatch.setitem(sys.modules, "iknow.search.kernels.torch", None)
    with pytest.raises(MissingExtraError, match=r"device 'cuda' needs .* 'iknow\[torch\]'"):
        EpistemicClassifier.load(tmp_path / "x.iknow", search="cuda")
    with pytest.raises(MissingExtraError, match=r"device 'cpu' needs .* 'iknow\[torch\]'"):
        classifier.set_params(search="cpu").fit(outputs, labels)
