"""Bundles: what goes in comes out, whatever happens to the files in between."""

import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

import iknow.bundle
from iknow import Ball, BallElseNearest, EpistemicClassifier, Nearest, RelativeBall
from iknow.bundle import Bundle, _manifest_hash, read_bundle, write_bundle
from iknow.core.neighborhood import Neighborhood
from iknow.errors import BundleError, InputError
from iknow.geometry import Minkowski, Weighted
from iknow.models.arrays import PrecomputedModel
from iknow.sealed import SealedArray
from iknow.testing import assert_same_evidence

FILES = [
    "manifest.json",
    "labels.npy",
    "rows.npy",
    "layers/a/activations.npy",
    "layers/b/activations.npy",
]


def make_outputs(n=30, seed=0, n_classes=3):
    """Precomputed outputs and labels of samples around a place for each class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    y[:n_classes] = range(n_classes)
    a = 3.0 * y[:, None] + rng.normal(size=(n, 2))
    b = 3.0 * y[:, None] - rng.normal(size=(n, 4))
    return (np.eye(n_classes)[y], {"a": a, "b": b}), y


def make_classifier(seed=0, tuned=True):
    X, y = make_outputs(seed=seed)
    classifier = EpistemicClassifier(PrecomputedModel(), rule=BallElseNearest, k=2).fit(X, y)
    return classifier.tune(*make_outputs(seed=seed + 1)) if tuned else classifier


@pytest.fixture
def saved(tmp_path):
    """The path of a bundle of two layers, "a" and "b", about precomputed outputs."""
    make_classifier().save(tmp_path / "it.iknow")
    return tmp_path / "it.iknow"


def rewrite_manifest(path, change):
    """Change a manifest and make its checksum right again."""
    file = path / "manifest.json"
    manifest = json.loads(file.read_text(encoding="utf-8"))
    change(manifest)
    manifest["sha256"] = _manifest_hash(manifest)
    file.write_text(json.dumps(manifest, indent=2, ensure_ascii=False), encoding="utf-8")


def assert_same_assessment(one, other):
    for name in ("classes", "belief", "scores", "assertion", "reason", "justification"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.neighborhoods == other.neighborhoods
    assert list(one.evidence) == list(other.evidence)
    for layer in one.evidence:
        assert_same_evidence(one.evidence[layer], other.evidence[layer])


def is_memory_mapped(array):
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


# What goes in comes out


LABELS = {
    "text": np.array(["cat", "dog", "öwl"]),
    "whole numbers": np.array([7, -3, 12]),
    "small whole numbers": np.array([0, 1, 2], dtype=np.uint8),
    "objects": np.array(["cat", "dog", "a long name"], dtype=object),
    "floats": np.array([1.0, 2.0, 3.0]),
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_a_scikit_learn_network_assesses_alike_after_the_round_trip(tmp_path, labels):
    X, codes = make_blobs(80, 3, centers=3, random_state=0)
    y = labels[codes]
    network = MLPClassifier((6,), solver="lbfgs", max_iter=200, random_state=0)
    classifier = EpistemicClassifier(network, rule=BallElseNearest, k=3).fit(X, y)
    classifier.save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow", classifier.model_.estimator)
    queries = X + 0.1
    assert_same_assessment(loaded.assess(queries), classifier.assess(queries))
    assert loaded.classes_.tolist() == classifier.classes_.tolist()
    assert loaded.classes_.dtype.kind == classifier.classes_.dtype.kind.replace("u", "i")
    assert loaded.predict(queries).tolist() == classifier.predict(queries).tolist()
    assert repr(loaded.selection_) == repr(classifier.selection_)  # NaN equals nothing
    assert (loaded.rule, loaded.k, loaded.layers_) == (BallElseNearest, 3, ("hidden1", "logits"))


def test_bool_labels_survive_the_round_trip(tmp_path):
    X, codes = make_blobs(60, 2, centers=2, random_state=0)
    model = LogisticRegression().fit(X, codes == 1)
    classifier = EpistemicClassifier(FrozenEstimator(model), neighborhoods=Ball(1))
    classifier.fit(X, codes == 1).save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow", model)
    assert loaded.classes_.dtype == bool
    assert_same_assessment(loaded.assess(X), classifier.assess(X))


def test_a_torch_module_assesses_alike_after_the_round_trip(tmp_path):
    X, y = make_blobs(80, 3, centers=3, random_state=0)
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    classifier = EpistemicClassifier(module, neighborhoods={"1": Ball(1), "2": Nearest(2)})
    classifier.fit(X, y).save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow", module)
    assert_same_assessment(loaded.assess(X + 0.1), classifier.assess(X + 0.1))


def test_precomputed_outputs_are_assessed_alike_after_the_round_trip(saved):
    loaded = EpistemicClassifier.load(saved)
    X, _ = make_outputs(seed=5)
    assert_same_assessment(loaded.assess(X), make_classifier().assess(X))


def test_without_its_model_a_bundle_takes_the_models_outputs(tmp_path):
    X, y = make_blobs(60, 2, centers=3, random_state=0)
    classifier = EpistemicClassifier(LogisticRegression()).fit(X, y)
    classifier.save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
    model = classifier.model_.estimator
    outputs = (model.predict_proba(X), {"input": X, "output": model.decision_function(X)})
    assert_same_assessment(loaded.assess(outputs), classifier.assess(X))


def test_an_untuned_classifier_can_be_saved_and_tuned_later(tmp_path):
    make_classifier(tuned=False).save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
    assert not hasattr(loaded, "neighborhoods_")
    loaded.tune(*make_outputs(seed=1))
    assert loaded.neighborhoods_ == make_classifier().neighborhoods_


def test_a_loaded_classifier_can_be_saved_again_also_over_itself(saved, tmp_path):
    loaded = EpistemicClassifier.load(saved)
    loaded.save(tmp_path / "again.iknow")
    loaded.save(saved)
    X, _ = make_outputs(seed=5)
    expected = make_classifier().assess(X)
    for path in (saved, tmp_path / "again.iknow"):
        assert_same_assessment(EpistemicClassifier.load(path).assess(X), expected)
    assert_same_assessment(loaded.assess(X), expected)
    for name in FILES:
        assert (saved / name).read_bytes() == (tmp_path / "again.iknow" / name).read_bytes()


def test_numpys_integers_as_parameters_can_be_saved(tmp_path):
    X, y = make_outputs()
    classifier = EpistemicClassifier(
        PrecomputedModel(), rule=Nearest, k=np.int64(3), batch_size=np.int32(8)
    )
    classifier.fit(X, y).save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
    assert (loaded.k, loaded.batch_size) == (3, 8)


def test_an_infinite_radius_survives_the_round_trip(tmp_path):
    X, y = make_outputs()
    classifier = EpistemicClassifier(PrecomputedModel(), neighborhoods=Ball(np.inf)).fit(X, y)
    classifier.save(tmp_path / "x.iknow")
    assert EpistemicClassifier.load(tmp_path / "x.iknow").neighborhoods_["a"] == Ball(np.inf)


@pytest.mark.parametrize(
    "neighborhood",
    [RelativeBall(2.5, 1.1), Ball([0.1 + 0.2, 3.0, np.inf]), Ball(np.float32([1, 2, 3]))],
    ids=repr,
)
def test_relative_balls_and_radii_for_each_class_survive_the_round_trip(tmp_path, neighborhood):
    X, y = make_outputs()
    classifier = EpistemicClassifier(PrecomputedModel(), neighborhoods=neighborhood).fit(X, y)
    classifier.save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
    assert loaded.neighborhoods_ == {"a": neighborhood, "b": neighborhood}
    queries, _ = make_outputs(seed=5)
    assert_same_assessment(loaded.assess(queries), classifier.assess(queries))


@pytest.mark.parametrize(
    ("rule", "goal"),
    [
        (Ball, {}),
        (Ball, {"method": "per-class"}),
        (Ball, {"method": "grid"}),
        (Nearest, {"coverage": 0.5}),
        (RelativeBall, {"coverage": 0.5}),
        (BallElseNearest, {"k": [1, 2]}),
    ],
)
def test_a_selection_without_a_certificate_survives_the_round_trip(tmp_path, rule, goal):
    classifier = EpistemicClassifier(PrecomputedModel(), rule=rule, k=2).fit(*make_outputs())
    classifier.tune(*make_outputs(seed=1), **goal).save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
    assert loaded.selection_.certificate is None
    assert repr(loaded.selection_) == repr(classifier.selection_)
    assert loaded.neighborhoods_ == classifier.neighborhoods_ == loaded.selection_.neighborhoods
    assert loaded.rule is rule
    queries, _ = make_outputs(seed=5)
    assert_same_assessment(loaded.assess(queries), classifier.assess(queries))


def test_a_certificate_survives_the_round_trip(tmp_path):
    classifier = EpistemicClassifier(PrecomputedModel(), rule=RelativeBall).fit(*make_outputs())
    X, y = make_outputs(n=300, seed=1)
    classifier.tune(X, y, accuracy=0.8, each_class=True).save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
    assert loaded.selection_.certificate == classifier.selection_.certificate
    assert set(loaded.selection_.certificate.by_class) == {"0", "1", "2"}


def test_the_row_numbers_of_exemplars_survive_the_round_trip(tmp_path):
    X, y = make_outputs()
    rows = 100 + np.random.default_rng(0).permutation(len(y))
    classifier = EpistemicClassifier(PrecomputedModel(), neighborhoods=Ball(1)).fit(X, y, rows=rows)
    classifier.save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow").assess(X)
    own = loaded.evidence["a"].exemplars[np.arange(len(y)), y]
    np.testing.assert_array_equal(own, rows)


def test_arrays_are_memory_mapped_on_load(saved):
    for index in EpistemicClassifier.load(saved).indexes_.values():
        assert is_memory_mapped(index.points)
        assert is_memory_mapped(index.labels)
        assert is_memory_mapped(index.rows)


def test_nothing_in_a_bundle_is_pickled(saved):
    found = sorted(str(p.relative_to(saved)) for p in saved.rglob("*") if p.is_file())
    assert found == sorted(FILES)
    json.loads((saved / "manifest.json").read_text(encoding="utf-8"))
    for name in FILES[1:]:
        array = np.load(saved / name, allow_pickle=False)
        assert array.dtype in (np.float32, np.int64)


def test_an_array_that_would_need_pickle_is_refused(saved):
    np.save(saved / "rows.npy", np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(BundleError, match=r"rows\.npy cannot be read"):
        read_bundle(saved, verify=False)


@pytest.mark.parametrize(
    "classes", [np.array([b"a", b"b"]), np.array([(1, 2), None], dtype=object)]
)
def test_labels_that_are_neither_text_nor_numbers_cannot_be_saved(tmp_path, classes):
    bundle = Bundle(classes, np.array([0, 1]), np.arange(2), {}, {}, {}, None, {})
    with pytest.raises(InputError, match="only labels that are text or numbers can be saved"):
        write_bundle(tmp_path / "x.iknow", bundle, "1")
    assert list(tmp_path.iterdir()) == []


def test_a_rule_of_the_users_own_cannot_be_saved(tmp_path):
    class Everything(Neighborhood):
        def reach(self, evidence):
            return np.full(len(evidence), np.inf)

    X, y = make_outputs()
    classifier = EpistemicClassifier(PrecomputedModel(), neighborhoods=Everything()).fit(X, y)
    with pytest.raises(InputError, match="can be written as JSON; got Everything"):
        classifier.save(tmp_path / "x.iknow")
    assert list(tmp_path.iterdir()) == []


# Damage


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("position", ["first", "header", "middle", "last"])
def test_one_changed_byte_is_noticed_and_its_file_named(saved, name, position):
    file = saved / name
    content = bytearray(file.read_bytes())
    place = {"first": 0, "header": 20, "middle": len(content) // 2, "last": -1}[position]
    content[place] ^= 0x04
    file.write_bytes(content)
    with pytest.raises(BundleError, match=name):
        EpistemicClassifier.load(saved, verify="now")
    with pytest.raises(BundleError, match=name):
        EpistemicClassifier.load(saved).assess(make_outputs(seed=5)[0])


USES = {
    "assess": lambda loaded, path: loaded.assess(make_outputs(seed=5)[0]),
    "assess with evidence": lambda loaded, path: loaded.assess(
        make_outputs(seed=5)[0], evidence=True
    ),
    "tune": lambda loaded, path: loaded.tune(*make_outputs(seed=5)),
    "save": lambda loaded, path: loaded.save(path / "again.iknow"),
    "pickle": lambda loaded, path: pickle.dumps(loaded),
    "points": lambda loaded, path: loaded.indexes_["a"].points,
    "labels": lambda loaded, path: loaded.indexes_["a"].labels,
    "rows": lambda loaded, path: loaded.indexes_["a"].rows,
}


@pytest.mark.parametrize("name", FILES[1:])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_damaged_file_is_refused_by_every_use_every_time(saved, tmp_path, name, use):
    content = bytearray((saved / name).read_bytes())
    content[-3] ^= 0x01
    (saved / name).write_bytes(content)
    loaded = EpistemicClassifier.load(saved)
    for _ in range(2):
        with pytest.raises(BundleError, match=f"damaged: {name} does not match its checksum"):
            use(loaded, tmp_path)
    assert list(tmp_path.iterdir()) == [saved]


def test_a_damaged_metric_is_refused_on_load(tmp_path):
    X, y = make_outputs()
    metric = {"b": Weighted(np.eye(4))}
    classifier = EpistemicClassifier(PrecomputedModel(), neighborhoods=Ball(1), metric=metric)
    classifier.fit(X, y).save(tmp_path / "x.iknow")
    file = tmp_path / "x.iknow/layers/b/metric-map.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 0x40
    file.write_bytes(content)
    with pytest.raises(BundleError, match=r"metric-map\.npy does not match its checksum"):
        EpistemicClassifier.load(tmp_path / "x.iknow")


def test_files_are_compared_with_their_checksums_once(saved, monkeypatch):
    verified = []
    verify = SealedArray.verify
    monkeypatch.setattr(
        SealedArray, "verify", lambda sealed: (verified.append(sealed._name), verify(sealed))
    )
    loaded = EpistemicClassifier.load(saved)
    assert [(i.n_rows, i.n_classes) for i in loaded.indexes_.values()] == [(30, 3), (30, 3)]
    assert [index.n_features for index in loaded.indexes_.values()] == [2, 4]
    assert "BallElseNearest" in repr(loaded)
    assert verified == []
    for _ in range(3):
        loaded.assess(make_outputs(seed=5)[0], evidence=True)
    assert sorted(verified) == sorted(FILES[1:])
    EpistemicClassifier.load(saved, verify=False).assess(make_outputs(seed=5)[0])
    assert len(verified) == 4


def test_many_threads_may_ask_first(saved):
    loaded = EpistemicClassifier.load(saved)
    X, _ = make_outputs(seed=5)
    with ThreadPoolExecutor(8) as pool:
        assessments = list(pool.map(lambda _: loaded.assess(X), range(16)))
    for assessment in assessments:
        assert_same_assessment(assessment, make_classifier().assess(X))


@pytest.mark.parametrize("verify", ["later", None, 2])
def test_verify_takes_three_values(saved, verify):
    with pytest.raises(InputError, match="verify must be True, False or 'now'"):
        EpistemicClassifier.load(saved, verify=verify)


def test_content_of_a_bundle_that_no_index_can_take_is_refused_though_its_checksums_are_right(
    tmp_path,
):
    """Such as one that was written by other means than `save`."""
    settings = {"rule": "Ball", "fixed": True, "k": 5, "batch_size": 1024, "selection": None}
    settings |= {"n_features_in": None, "feature_names_in": None}
    points = np.array([[1.0], [2.0], [np.nan]], dtype=np.float32)
    bundle = Bundle(
        classes=np.array([0, 1]),
        labels=np.array([0, 1, 1]),
        rows=np.arange(3),
        activations={"a": points},
        metrics={"a": Minkowski(2)},
        neighborhoods={"a": Ball(0.1)},
        fingerprint=None,
        settings=settings,
    )
    write_bundle(tmp_path / "nan.iknow", bundle, "1")
    query = ([[1.0, 0.0]], {"a": [[1.0]]})
    with pytest.raises(InputError, match=r"layer 'a': activations .* row 2 is not"):
        EpistemicClassifier.load(tmp_path / "nan.iknow").assess(query)
    order = replace(bundle, labels=np.array([1, 0, 1]), activations={"a": np.nan_to_num(points)})
    write_bundle(tmp_path / "order.iknow", order, "1")
    assessment = EpistemicClassifier.load(tmp_path / "order.iknow").assess(query)
    assert assessment.evidence["a"].class_distances.tolist() == [[1.0, 0.0]]
    assert assessment.evidence["a"].exemplars.tolist() == [[1, 0]]


def test_a_bundle_written_before_batches_were_sized_by_memory_still_loads(saved):
    rewrite_manifest(saved, lambda manifest: manifest["settings"].update(batch_size=1024))
    assert EpistemicClassifier.load(saved).batch_size == 1024


@pytest.mark.parametrize("shift", [0, 5])
def test_a_flipped_bit_anywhere_in_the_manifest_is_noticed(saved, shift):
    file = saved / "manifest.json"
    content = file.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << (place + shift) % 8
        file.write_bytes(changed)
        # A changed format number is reported as such: another version may have written it.
        with pytest.raises(BundleError, match=r"manifest\.json|has format"):
            read_bundle(saved, verify=False)


def test_whitespace_added_to_the_manifest_is_noticed(saved):
    file = saved / "manifest.json"
    file.write_bytes(file.read_bytes() + b"\n")
    with pytest.raises(BundleError, match=r"manifest\.json is damaged"):
        read_bundle(saved)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(saved, name):
    (saved / name).unlink()
    with pytest.raises(BundleError, match=f"{name} is missing"):
        EpistemicClassifier.load(saved)


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_is_named(saved, name):
    content = (saved / name).read_bytes()
    (saved / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(BundleError, match=name):
        EpistemicClassifier.load(saved)


@pytest.mark.parametrize("name", FILES[1:])
@pytest.mark.parametrize("length", [0, 5, 60])
def test_a_file_cut_short_is_named_also_without_checksums(saved, name, length):
    content = (saved / name).read_bytes()
    (saved / name).write_bytes(content[:length])
    with pytest.raises(BundleError, match=f"{name} cannot be read"):
        EpistemicClassifier.load(saved, verify=False)


@pytest.mark.parametrize("name", FILES[1:])
@pytest.mark.parametrize("verify", [True, False])
def test_a_file_that_is_too_long_is_named_on_load(saved, name, verify):
    with (saved / name).open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(BundleError, match=rf"{name} cannot be read \(expected \d+ bytes"):
        EpistemicClassifier.load(saved, verify=verify)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("labels.npy", np.zeros(30), "labels.npy must hold 30 whole numbers"),
        ("labels.npy", np.int64(3), "labels.npy must hold 0 whole numbers"),
        ("rows.npy", np.arange(29), "rows.npy must hold 30 whole numbers"),
        ("layers/a/activations.npy", np.zeros(30, "f4"), "layer 'a' must hold a table of floats"),
        ("layers/a/activations.npy", np.zeros((30, 2), int), "a table of floats; .* dtype int64"),
    ],
)
def test_arrays_of_another_kind_are_noticed_without_verification(saved, name, array, message):
    np.save(saved / name, array)
    with pytest.raises(BundleError, match=message):
        EpistemicClassifier.load(saved, verify=False)


@pytest.mark.parametrize("name", FILES[1:])
def test_a_damaged_header_gives_an_error_of_ours_also_without_checksums(saved, name):
    content = (saved / name).read_bytes()
    n_refused = 0
    for place in range(128):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        (saved / name).write_bytes(changed)
        try:
            EpistemicClassifier.load(saved, verify=False).assess(make_outputs(seed=5)[0])
        except (BundleError, InputError):
            n_refused += 1
    assert n_refused > 100


def test_without_verification_checksums_are_not_compared(saved):
    file = saved / "layers/a/activations.npy"
    points = np.load(file)
    points[0, 0] += 1
    np.save(file, points)
    with pytest.raises(BundleError, match="does not match its checksum"):
        EpistemicClassifier.load(saved, verify="now")
    loaded = EpistemicClassifier.load(saved, verify=False)
    np.testing.assert_array_equal(loaded.indexes_["a"].points, points)


def test_layers_of_different_lengths_are_noticed_without_verification(saved):
    file = saved / "layers/b/activations.npy"
    np.save(file, np.load(file)[:-1])
    with pytest.raises(BundleError, match="layer 'b' has 29 rows, not 30"):
        EpistemicClassifier.load(saved, verify=False)


def test_a_newer_format_is_refused_with_both_numbers(saved):
    rewrite_manifest(saved, lambda manifest: manifest.update(format=2))
    with pytest.raises(BundleError, match="has format 2; this version of iknow reads format 1"):
        EpistemicClassifier.load(saved)


def test_what_is_not_a_bundle_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("hello")
    for name in ("folder", "file", "nothing"):
        with pytest.raises(BundleError, match=r"is not a bundle: manifest\.json is missing"):
            EpistemicClassifier.load(tmp_path / name)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "7", '{"format": null}', "{", "\ufeff{}"])
def test_a_manifest_that_is_none_is_refused(saved, text):
    (saved / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(BundleError, match=r"manifest\.json is damaged|has format None"):
        EpistemicClassifier.load(saved)


# The model


def test_a_foreign_scikit_learn_model_is_refused(tmp_path):
    X, y = make_blobs(60, 2, centers=3, random_state=0)
    classifier = EpistemicClassifier(LogisticRegression()).fit(X, y)
    classifier.save(tmp_path / "x.iknow")
    foreign = LogisticRegression().fit(X[::2], y[::2])
    with pytest.raises(BundleError, match="made with another model: it expects sklearn:"):
        EpistemicClassifier.load(tmp_path / "x.iknow", foreign)


def test_a_foreign_torch_module_is_refused(tmp_path):
    X, y = make_blobs(60, 2, centers=3, random_state=0)
    module = torch.nn.Linear(2, 3)
    EpistemicClassifier(module, neighborhoods=Ball(1)).fit(X, y).save(tmp_path / "x.iknow")
    with torch.no_grad():
        module.bias[0] += 1e-3
    with pytest.raises(BundleError, match="made with another model: it expects torch:"):
        EpistemicClassifier.load(tmp_path / "x.iknow", module)


def test_the_model_may_itself_have_been_pickled_in_between(tmp_path):
    X, y = make_blobs(60, 2, centers=3, random_state=0)
    classifier = EpistemicClassifier(LogisticRegression()).fit(X, y)
    classifier.save(tmp_path / "x.iknow")
    model = pickle.loads(pickle.dumps(classifier.model_.estimator))
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow", model)
    assert_same_assessment(loaded.assess(X), classifier.assess(X))


# Writing, and what was there before


@pytest.mark.parametrize("kind", ["file", "folder", "full folder"])
def test_what_exists_and_is_no_bundle_is_left_alone(tmp_path, kind):
    target = tmp_path / "thesis"
    if kind == "file":
        target.write_text("precious")
    else:
        target.mkdir()
    if kind == "full folder":
        (target / "chapter1").write_text("precious")
    with pytest.raises(BundleError, match="exists and is not a bundle"):
        make_classifier().save(target)
    assert list(tmp_path.iterdir()) == [target]
    if kind == "file":
        assert target.read_text() == "precious"
    if kind == "full folder":
        assert (target / "chapter1").read_text() == "precious"


def test_missing_parent_folders_are_made(tmp_path):
    make_classifier().save(tmp_path / "a" / "b" / "x.iknow")
    assert EpistemicClassifier.load(tmp_path / "a" / "b" / "x.iknow").layers_ == ("a", "b")


def test_saving_over_a_bundle_replaces_all_of_it(saved, tmp_path):
    X, y = make_outputs(seed=9)
    X = (X[0], {"other": X[1]["a"]})
    new = EpistemicClassifier(PrecomputedModel(), neighborhoods=Ball(1)).fit(X, y)
    new.save(saved)
    assert_same_assessment(EpistemicClassifier.load(saved).assess(X), new.assess(X))
    assert not (saved / "layers/a").exists()
    assert list(tmp_path.iterdir()) == [saved]


def test_saving_through_a_link_replaces_the_bundle_it_points_to(saved, tmp_path):
    link = tmp_path / "current"
    link.symlink_to(saved.name)
    new = make_classifier(seed=20)
    new.save(link)
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == sorted([link, saved])
    X, _ = make_outputs(seed=5)
    assert_same_assessment(EpistemicClassifier.load(saved).assess(X), new.assess(X))


def test_saving_through_a_link_to_nothing_makes_the_bundle_it_points_to(tmp_path):
    (tmp_path / "current").symlink_to("new.iknow")
    make_classifier().save(tmp_path / "current")
    assert EpistemicClassifier.load(tmp_path / "new.iknow").layers_ == ("a", "b")


def test_a_bundle_can_be_read_by_others(saved):
    assert saved.stat().st_mode & 0o777 == 0o755


def test_a_reader_of_the_old_bundle_still_answers_rightly_after_it_was_replaced(saved):
    reader = EpistemicClassifier.load(saved)  # nothing of it was read yet
    make_classifier(seed=20).save(saved)
    assert all(is_memory_mapped(index.points) for index in reader.indexes_.values())
    X, _ = make_outputs(seed=5)
    assert_same_assessment(reader.assess(X), make_classifier().assess(X))


def test_another_process_that_reads_the_old_bundle_answers_rightly_after_it_was_replaced(saved):
    script = """
import sys
import numpy as np
from iknow import EpistemicClassifier

reader = EpistemicClassifier.load(sys.argv[1])
print("loaded", flush=True)
sys.stdin.readline()  # meanwhile the bundle is replaced
queries = (np.eye(3), {"a": np.eye(3)[:, :2], "b": np.eye(4)[:3]})
print(reader.assess(queries).evidence["a"].class_distances.tolist())
"""
    queries = (np.eye(3), {"a": np.eye(3)[:, :2], "b": np.eye(4)[:3]})
    expected = make_classifier().assess(queries).evidence["a"].class_distances.tolist()
    process = subprocess.Popen(
        [sys.executable, "-c", script, saved],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "loaded\n"
    new = make_classifier(seed=20)
    assert new.assess(queries).evidence["a"].class_distances.tolist() != expected
    new.save(saved)
    answer, _ = process.communicate("go on\n")
    assert process.returncode == 0
    assert json.loads(answer) == expected


FILL_THE_DISK = """
import resource, signal, sys
import numpy as np
from iknow import Ball, EpistemicClassifier
from iknow.models.arrays import PrecomputedModel

n = 20000
outputs = (np.eye(2)[np.arange(n) % 2], {"a": np.ones((n, 4))})
classifier = EpistemicClassifier(PrecomputedModel(), neighborhoods=Ball(1))
classifier.fit(outputs, np.arange(n) % 2)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # the kernel refuses larger files
try:
    classifier.save(sys.argv[1])
except OSError as error:
    print("refused")
"""


@pytest.mark.parametrize("limit", [100_000, 200_000], ids=["labels", "activations"])
def test_a_full_disk_leaves_the_old_bundle_and_no_leftovers(saved, tmp_path, limit):
    """Labels and rows take 160,128 bytes each, the activations 320,128."""
    before = {name: (saved / name).read_bytes() for name in FILES}
    done = subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, saved, str(limit)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "refused\n"
    assert list(tmp_path.iterdir()) == [saved]
    assert {name: (saved / name).read_bytes() for name in FILES} == before
    X, _ = make_outputs(seed=5)
    assert_same_assessment(EpistemicClassifier.load(saved).assess(X), make_classifier().assess(X))


def test_the_same_disk_without_a_limit_takes_the_new_bundle(saved, tmp_path):
    """So that the test above fails for the limit's sake and for no other."""
    subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, saved, str(1 << 20)],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    assert EpistemicClassifier.load(saved).indexes_["a"].n_rows == 20000


class BrokenError(Exception):
    pass


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_failed_rename_leaves_the_old_bundle_and_no_leftovers(
    saved, tmp_path, monkeypatch, call, can_exchange
):
    """Without an exchange in one step there are two renames, and either may fail."""
    calls = []
    rename = os.rename

    def fail_at_call(*names):
        calls.append(names)
        if len(calls) == call:
            raise BrokenError
        return rename(*names)

    def fail(*names):
        raise BrokenError

    if can_exchange:
        monkeypatch.setattr(iknow.bundle, "_exchange", fail)
    else:
        monkeypatch.setattr(iknow.bundle, "_exchange", lambda *names: False)
        monkeypatch.setattr(os, "rename", fail_at_call)
    with pytest.raises(BrokenError):
        make_classifier(seed=20).save(saved)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == [saved]
    X, _ = make_outputs(seed=5)
    assert_same_assessment(EpistemicClassifier.load(saved).assess(X), make_classifier().assess(X))


def test_a_failed_first_save_leaves_nothing(tmp_path, monkeypatch):
    def fail(*names):
        raise BrokenError

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(BrokenError):
        make_classifier().save(tmp_path / "x.iknow")
    assert list(tmp_path.iterdir()) == []


def test_where_names_cannot_be_exchanged_two_renames_do(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(iknow.bundle, "_exchange", lambda *names: False)
    new = make_classifier(seed=20)
    new.save(saved)
    assert list(tmp_path.iterdir()) == [saved]
    X, _ = make_outputs(seed=5)
    assert_same_assessment(EpistemicClassifier.load(saved).assess(X), new.assess(X))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="renameat2 is Linux's")
def test_on_linux_two_names_are_exchanged_in_one_step(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "content").write_text(name)
    assert iknow.bundle._exchange(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one/content").read_text() == "other"
    assert (tmp_path / "other/content").read_text() == "one"
    assert not iknow.bundle._exchange(tmp_path / "one", tmp_path / "missing")


# Names of layers


ODD_NAMES = ["a/b", "..", ".", ".x", "ü", "", "%", "%2E", "a b", "../../x", "/etc", "nul\x00", "\\"]


def test_layers_of_any_name_survive_and_stay_inside_the_bundle(tmp_path):
    X, y = make_outputs()
    values = {name: X[1]["a"] + i for i, name in enumerate(ODD_NAMES)}
    folder = tmp_path / "deep" / "er"
    classifier = EpistemicClassifier(PrecomputedModel(), neighborhoods=Ball(1))
    classifier.fit((X[0], values), y).save(folder / "x.iknow")
    loaded = EpistemicClassifier.load(folder / "x.iknow")
    assert loaded.layers_ == tuple(ODD_NAMES)
    assert_same_assessment(loaded.assess((X[0], values)), classifier.assess((X[0], values)))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 3 + len(ODD_NAMES)
    for path in files:
        assert path.is_relative_to(folder / "x.iknow")
    layer_files = [path for path in files if path.name == "activations.npy"]
    assert len(layer_files) == len(ODD_NAMES)
    for path in layer_files:
        assert path.parent.parent == folder / "x.iknow" / "layers"
        assert not path.parent.name.startswith(".")


def test_a_bundle_written_by_hand_reads_back(tmp_path):
    """The functions beneath save and load, without a classifier."""
    bundle = Bundle(
        classes=np.array(["x", "y"]),
        labels=np.array([0, 1]),
        rows=np.array([4, 2]),
        activations={"a": np.array([[1.0], [2.0]], dtype=np.float32)},
        metrics={"a": Minkowski(1.5)},
        neighborhoods={"a": Ball(0.1)},
        fingerprint=None,
        settings={"anything": [1, None, "ü"]},
    )
    write_bundle(tmp_path / "x", bundle, "9.9")
    found = read_bundle(tmp_path / "x")
    assert found.classes.tolist() == ["x", "y"]
    assert found.labels.tolist() == [0, 1]
    assert found.rows.tolist() == [4, 2]
    assert found.activations["a"].tolist() == [[1.0], [2.0]]
    assert found.metrics == {"a": Minkowski(1.5)}
    assert found.neighborhoods == {"a": Ball(0.1)}
    assert found.fingerprint is None
    assert found.settings == {"anything": [1, None, "ü"]}
    assert json.loads((tmp_path / "x/manifest.json").read_text(encoding="utf-8"))["iknow"] == "9.9"
