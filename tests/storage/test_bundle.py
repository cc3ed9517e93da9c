"""Bundles: what goes in comes out, whatever happens to the files in between."""

import inspect
import io
import json
import mmap
import os
import pickle
import stat
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import joblib
import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

import iknow.storage.bundle
import iknow.storage.sealed
from iknow import Assertion, Ball, BallElseNearest, EpistemicClassifier, Nearest, RelativeBall
from iknow.core.rule import Rule
from iknow.errors import BundleError, InputError
from iknow.metrics import Minkowski, Weighted
from iknow.models import PrecomputedModel
from iknow.npy import encode_array
from iknow.storage.archive import START
from iknow.storage.bundle import Bundle, read_bundle, write_bundle
from iknow.testing import assert_same_evidence
from tests.storage.making import (
    change,
    make_settings,
    pack,
    place_of,
    rewrite_manifest,
    set_format,
    unpack,
)

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


def change_array(path, name, array):
    change(path, name, lambda _: b"".join(encode_array(array)))


def flip(content, place, bit=0x04):
    changed = bytearray(content)
    changed[place] ^= bit
    return bytes(changed)


@pytest.fixture
def mapped(monkeypatch):
    """Bundles of any size are mapped, as large ones are."""
    monkeypatch.setattr(iknow.storage.sealed, "COPIED_UP_TO", 0)


def assert_same_assessment(one, other):
    for name in ("classes", "belief", "scores", "assertion", "reason", "justification"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.neighborhoods == other.neighborhoods
    assert list(one.evidence) == list(other.evidence)
    for layer in one.evidence:
        assert_same_evidence(one.evidence[layer], other.evidence[layer])


def is_memory_mapped(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(getattr(array, "obj", array), mmap.mmap)


# What goes in comes out


LABELS = {
    "text": np.array(["cat", "dog", "öwl"]),
    "whole numbers": np.array([7, -3, 12]),
    "small whole numbers": np.array([0, 1, 2], dtype=np.uint8),
    "unsigned beyond int64": np.array([1 << 63, 5, (1 << 64) - 1], dtype=np.uint64),
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
    assert loaded.classes_.dtype == classifier.classes_.dtype
    assert loaded.predict(queries).tolist() == classifier.predict(queries).tolist()
    assert repr(loaded.selection_) == repr(classifier.selection_)  # NaN equals nothing
    assert (loaded.rule, loaded.k, loaded.layers_) == (BallElseNearest, 3, ("hidden1", "logits"))


def test_bool_labels_survive_the_round_trip(tmp_path):
    X, codes = make_blobs(60, 2, centers=2, random_state=0)
    model = LogisticRegression().fit(X, codes == 1)
    classifier = EpistemicClassifier(FrozenEstimator(model), rule=Ball(1))
    classifier.fit(X, codes == 1).save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow", model)
    assert loaded.classes_.dtype == bool
    assert_same_assessment(loaded.assess(X), classifier.assess(X))


def test_a_torch_module_assesses_alike_after_the_round_trip(tmp_path):
    X, y = make_blobs(80, 3, centers=3, random_state=0)
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    rules = {"1": Ball(1), "2": Nearest(2)}
    classifier = EpistemicClassifier(module, layers=["1", "2"], rule=rules)
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


def test_a_loaded_classifier_can_be_saved_again_also_over_itself(saved, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    loaded = EpistemicClassifier.load(saved)
    loaded.save(tmp_path / "again.iknow")
    loaded.save(saved)
    X, _ = make_outputs(seed=5)
    expected = make_classifier().assess(X)
    for path in (saved, tmp_path / "again.iknow"):
        assert_same_assessment(EpistemicClassifier.load(path).assess(X), expected)
    assert_same_assessment(loaded.assess(X), expected)
    assert saved.read_bytes() == (tmp_path / "again.iknow").read_bytes()


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
    classifier = EpistemicClassifier(PrecomputedModel(), rule=Ball(np.inf)).fit(X, y)
    classifier.save(tmp_path / "x.iknow")
    assert EpistemicClassifier.load(tmp_path / "x.iknow").neighborhoods_["a"] == Ball(np.inf)


@pytest.mark.parametrize(
    "rule",
    [RelativeBall(2.5, 1.1), RelativeBall(np.inf, 0.1 + 0.2), Ball(np.float32(0.1))],
    ids=repr,
)
def test_relative_balls_and_numbers_of_numpy_survive_the_round_trip(tmp_path, rule):
    X, y = make_outputs()
    classifier = EpistemicClassifier(PrecomputedModel(), rule=rule).fit(X, y)
    classifier.save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
    assert loaded.neighborhoods_ == {"a": rule, "b": rule}
    queries, _ = make_outputs(seed=5)
    assert_same_assessment(loaded.assess(queries), classifier.assess(queries))


@pytest.mark.parametrize(
    ("rule", "goal"),
    [
        (Ball, {}),
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
    classifier = EpistemicClassifier(PrecomputedModel(), rule=Ball(1)).fit(X, y, rows=rows)
    classifier.save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow").assess(X)
    own = loaded.evidence["a"].exemplars[np.arange(len(y)), y]
    np.testing.assert_array_equal(own, rows)


@pytest.mark.parametrize("limit", [0, 1 << 28])
def test_large_bundles_are_mapped_and_small_ones_copied(saved, monkeypatch, limit):
    monkeypatch.setattr(iknow.storage.sealed, "COPIED_UP_TO", limit)
    for index in EpistemicClassifier.load(saved).indexes_.values():
        for array in (index.points, index.labels, index.rows):
            assert is_memory_mapped(array) == (limit == 0)
            assert array.ctypes.data % 64 == 0
            assert not array.flags.writeable


def test_nothing_in_a_bundle_is_pickled_and_anybody_can_look_into_it(saved):
    with zipfile.ZipFile(saved) as opened:
        assert opened.testzip() is None
        assert opened.namelist() == FILES
        json.loads(opened.read("manifest.json"))
        for name in FILES[1:]:
            array = np.load(io.BytesIO(opened.read(name)), allow_pickle=False)
            assert array.dtype in (np.float32, np.int64)


def test_an_array_that_would_need_pickle_is_refused(saved):
    stream = io.BytesIO()
    np.save(stream, np.array([print], dtype=object), allow_pickle=True)
    change(saved, "rows.npy", lambda _: stream.getvalue())
    with pytest.raises(BundleError, match=r"rows\.npy cannot be read"):
        read_bundle(saved, verify=False)


@pytest.mark.parametrize(
    "classes", [np.array([b"a", b"b"]), np.array([(1, 2), None], dtype=object)]
)
def test_labels_that_are_neither_text_nor_numbers_cannot_be_saved(tmp_path, classes):
    bundle = Bundle(classes, np.array([0, 1]), np.arange(2), {}, {}, {}, make_settings([1, 1]))
    with pytest.raises(InputError, match="only labels that are text or numbers can be saved"):
        write_bundle(tmp_path / "x.iknow", bundle)
    assert list(tmp_path.iterdir()) == []


def test_a_rule_of_the_users_own_cannot_be_saved(tmp_path):
    class Everything(Rule):
        def reach(self, evidence):
            return np.full(len(evidence), np.inf)

    X, y = make_outputs()
    classifier = EpistemicClassifier(PrecomputedModel(), rule=Everything()).fit(X, y)
    with pytest.raises(InputError, match=r"register_rule\(Everything\)"):
        classifier.save(tmp_path / "x.iknow")
    assert list(tmp_path.iterdir()) == []


# Damage


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("position", ["first", "header", "middle", "last"])
def test_one_changed_byte_is_noticed_and_its_content_named(saved, name, position):
    found = place_of(saved, name)
    places = {"first": 0, "header": 20, "middle": (found.stop - found.start) // 2}
    place = found.start + places[position] if position in places else found.stop - 1
    saved.write_bytes(flip(saved.read_bytes(), place))
    with pytest.raises(BundleError, match=name):
        EpistemicClassifier.load(saved, verify="now")
    with pytest.raises(BundleError, match=name):
        EpistemicClassifier.load(saved).assess(make_outputs(seed=5)[0])


@pytest.mark.parametrize("shift", [0, pytest.param(5, marks=pytest.mark.slow)])
def test_a_flipped_bit_anywhere_in_the_file_is_noticed(saved, shift):
    content, sha256 = saved.read_bytes(), read_bundle(saved).sha256
    with saved.open("r+b", buffering=0) as file:
        for place, byte in enumerate(content):
            for value in (byte ^ 1 << (place + shift) % 8, byte):
                file.seek(place)
                file.write(bytes([value]))
                if value != byte and place < START:  # the other mark says the same
                    assert read_bundle(saved, verify="now").sha256 == sha256
                elif value != byte:
                    with pytest.raises(BundleError):
                        read_bundle(saved, verify="now")
    read_bundle(saved, verify="now")


def test_a_file_cut_short_or_with_a_new_start_is_refused_without_reading_arrays(saved):
    content = saved.read_bytes()
    for length in reversed(range(0, len(content), 7)):
        os.truncate(saved, length)
        with pytest.raises(BundleError, match=r"is not a bundle|is damaged: (its|it is cut)"):
            read_bundle(saved, verify=False)
    saved.write_bytes(b"x" + content)
    with pytest.raises(BundleError, match="is not a bundle"):
        read_bundle(saved, verify=False)


def test_what_no_mark_commits_is_not_read(saved):
    """It is what an interrupted writer leaves; nobody was told that it is there."""
    content = saved.read_bytes()
    for further in (b"x", bytes(1000), content):
        saved.write_bytes(content + further)
        assert read_bundle(saved, verify="now").n_torn == len(further)


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
    change(saved, name, lambda content: flip(content, -3))
    loaded = EpistemicClassifier.load(saved)
    for _ in range(2):
        with pytest.raises(BundleError, match=f"damaged: {name} does not match its checksum"):
            use(loaded, tmp_path)
    assert list(tmp_path.iterdir()) == [saved]


def test_a_damaged_metric_is_refused_on_load(tmp_path):
    X, y = make_outputs()
    metric = {"b": Weighted(np.eye(4))}
    classifier = EpistemicClassifier(PrecomputedModel(), rule=Ball(1), metric=metric)
    classifier.fit(X, y).save(tmp_path / "x.iknow")
    change(tmp_path / "x.iknow", "layers/b/metric-map.npy", lambda content: flip(content, -1))
    with pytest.raises(BundleError, match=r"metric-map\.npy does not match its checksum"):
        EpistemicClassifier.load(tmp_path / "x.iknow")


def test_arrays_are_compared_with_their_checksums_once(saved, monkeypatch):
    verified = []
    verify_all = iknow.storage.sealed.verify_all

    def record(contents):
        contents = list(contents)
        verified.extend(name for name, _, _ in contents)
        verify_all(contents)

    monkeypatch.setattr(iknow.storage.bundle, "verify_all", record)
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
    make_classifier(tuned=False).save(tmp_path / "x.iknow")
    points = np.array([[1.0], [2.0], [np.nan]], dtype=np.float32)
    bundle = Bundle(
        classes=np.array([0, 1]),
        labels=np.array([0, 1, 1]),
        rows=np.arange(3),
        activations={"a": points},
        metrics={"a": Minkowski(2)},
        neighborhoods={"a": Ball(0.1)},
        settings=make_settings([1, 2]),
    )
    query = ([[1.0, 0.0]], {"a": [[1.0]]})
    whole = np.nan_to_num(points)
    for wrong, message in [
        ({}, "activations of layer 'a' must be finite"),
        ({"activations": {"a": whole}, "labels": np.array([1, 0, 1])}, "must be ascending"),
        ({"activations": {"a": whole}, "labels": np.array([0, 1, 2])}, "codes from 0 to 1"),
        ({"activations": {"a": whole}, "labels": np.array([-1, 0, 1])}, "codes from 0 to 1"),
        ({"activations": {"a": whole}, "rows": np.array([0, 2, 2])}, "contain a number twice"),
        ({"activations": {"a": whole}, "rows": np.array([0, -2, 2])}, "whole numbers >= 0"),
    ]:
        write_bundle(tmp_path / "x.iknow", replace(bundle, **wrong))
        loaded = EpistemicClassifier.load(tmp_path / "x.iknow", verify=False)
        for _ in range(2):
            with pytest.raises(BundleError, match=f"damaged: .*{message}"):
                loaded.assess(query)


OF_THE_MACHINE = {"model", "search"}
OTHERWISE = {
    "layers": ["b"],
    "rule": RelativeBall(2.0, 1.5),
    "quorum": (2, 4),
    "k": 3,
    "metric": Weighted(np.diag([1.0, 2.0, 3.0, 4.0])),
    "classes": np.array([2, 1, 0]),
    "validation_fraction": 0.125,
    "batch_size": 7,
    "random_state": 9,
    "progress": False,
}


def come_back(given, came):
    if isinstance(given, Weighted):
        return type(came) is Weighted and np.array_equal(given.map, came.map)
    if isinstance(given, np.ndarray):
        return isinstance(came, np.ndarray) and given.tolist() == came.tolist()
    return type(given) is type(came) and given == came


def test_every_parameter_comes_back(tmp_path, monkeypatch):
    """A parameter that is added must be kept too, or belong to the machine."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    parameters = inspect.signature(EpistemicClassifier).parameters
    assert set(parameters) == OTHERWISE.keys() | OF_THE_MACHINE
    X, y = make_outputs()
    defaults = {name: parameters[name].default for name in OTHERWISE}
    for given in (defaults, OTHERWISE, *(defaults | {name: OTHERWISE[name]} for name in OTHERWISE)):
        if given["metric"] is not None:
            given = {**given, "layers": ["b"]}
        EpistemicClassifier(PrecomputedModel(), **given).fit(X, y).save(tmp_path / "x.iknow")
        loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
        for name, value in given.items():
            assert come_back(value, loaded.get_params()[name]), name
        loaded.save(tmp_path / "y.iknow")
        assert (tmp_path / "x.iknow").read_bytes() == (tmp_path / "y.iknow").read_bytes()


@pytest.mark.parametrize("metric", ["scaled", "whitened", "cosine"])
def test_a_fitted_metric_comes_back_and_is_fitted_anew_to_other_data(metric, tmp_path):
    X, y = make_outputs()
    made = EpistemicClassifier(PrecomputedModel(), metric=metric, rule=Ball(1.0)).fit(X, y)
    made.save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
    assert_same_assessment(loaded.assess(X), made.assess(X))
    for layer, index in made.indexes_.items():
        for name, values in index.metric.arrays().items():
            np.testing.assert_array_equal(loaded.indexes_[layer].metric.arrays()[name], values)
    scores, layers = X
    other = (scores, {layer: 5 * values**3 for layer, values in layers.items()})
    assert_same_assessment(loaded.fit(other, y).assess(other), made.fit(other, y).assess(other))


def test_what_was_given_by_layer_comes_back_by_layer(tmp_path):
    X, y = make_outputs()
    given = {"metric": {"b": Minkowski(1)}, "rule": {"a": Ball(1.0), "b": Nearest(2)}}
    random = np.random.RandomState(0)
    made = EpistemicClassifier(PrecomputedModel(), **given, random_state=random).fit(X, y)
    made.save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
    assert {name: loaded.get_params()[name] for name in given} == given
    assert loaded.random_state is None


def test_a_selection_is_taken_with_the_classes_that_may_be_known(tmp_path):
    X, y = make_outputs()
    tuned = EpistemicClassifier(PrecomputedModel()).fit(X, y).tune(*make_outputs(seed=1))
    selection = replace(tuned.selection_, knowable=(0, 2))
    made = EpistemicClassifier(PrecomputedModel(), rule=selection).fit(X, y)
    made.save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
    assert loaded.rule == selection
    plain = tuned.assess(X)
    assert ((plain.belief_codes == 1) & (plain.assertion == Assertion.IK)).any()
    for each in (made, loaded):
        assert not hasattr(each, "selection_")  # it was not tuned, and has no certificate
        assert each.neighborhoods_ == tuned.neighborhoods_
        assessment = each.assess(X)
        known = assessment.assertion == Assertion.IK
        expected = (plain.assertion == Assertion.IK) & (plain.belief_codes != 1)
        np.testing.assert_array_equal(known, expected)


def test_whitespace_added_to_the_manifest_is_noticed(saved):
    change(saved, "manifest.json", lambda text: text + b"\n")
    with pytest.raises(BundleError, match=r"manifest\.json is damaged"):
        read_bundle(saved)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_content_is_named(saved, name):
    contents = unpack(saved)
    del contents[name]
    pack(saved, contents)
    with pytest.raises(BundleError, match=f"{name} is missing"):
        EpistemicClassifier.load(saved)


@pytest.mark.parametrize("name", ["model.joblib", "layers/a/more.npy", "../x", "/etc/passwd"])
def test_a_content_that_does_not_belong_there_is_named(saved, name):
    pack(saved, unpack(saved) | {name: b"precious"})
    with pytest.raises(BundleError, match=f"{name} does not belong in it"):
        EpistemicClassifier.load(saved)


@pytest.mark.parametrize("name", FILES[1:])
@pytest.mark.parametrize("length", [0, 5, 60, 130, -1])
@pytest.mark.parametrize("verify", [True, False])
def test_an_array_cut_short_is_named_on_load(saved, name, length, verify):
    change(saved, name, lambda content: content[:length])
    with pytest.raises(BundleError, match=f"{name} cannot be read"):
        EpistemicClassifier.load(saved, verify=verify)


@pytest.mark.parametrize("name", FILES[1:])
@pytest.mark.parametrize("verify", [True, False])
def test_an_array_that_is_too_long_is_named_on_load(saved, name, verify):
    change(saved, name, lambda content: content + b"x")
    with pytest.raises(BundleError, match=rf"{name} cannot be read: expected \d+ bytes"):
        EpistemicClassifier.load(saved, verify=verify)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("labels.npy", np.zeros(30), r"labels.npy must hold int64 of shape \(30\)"),
        ("labels.npy", np.int64(3), r"labels.npy must hold int64 of shape \(at least one\)"),
        ("rows.npy", np.arange(29), r"rows.npy must hold int64 of shape \(30\)"),
        (
            "layers/a/activations.npy",
            np.zeros(30, "f4"),
            r"layer .a. must hold float32 of shape \(30, at least one\)",
        ),
        (
            "layers/a/activations.npy",
            np.zeros((30, 2), int),
            "must hold float32 .* dtype int64",
        ),
    ],
)
def test_arrays_of_another_kind_are_noticed_without_verification(saved, name, array, message):
    change_array(saved, name, array)
    with pytest.raises(BundleError, match=message):
        EpistemicClassifier.load(saved, verify=False)


@pytest.mark.parametrize("name", FILES[1:])
def test_a_damaged_header_gives_an_error_of_ours_also_without_checksums(saved, name):
    contents = unpack(saved)
    n_refused = 0
    for place in range(128):
        pack(saved, contents | {name: flip(contents[name], place, 1 << place % 8)})
        try:
            EpistemicClassifier.load(saved, verify=False).assess(make_outputs(seed=5)[0])
        except BundleError:
            n_refused += 1
    assert n_refused == 128


def test_without_verification_checksums_are_not_compared(saved):
    points = np.array(read_bundle(saved).activations["a"])
    points[0, 0] += 1
    change_array(saved, "layers/a/activations.npy", points)
    with pytest.raises(BundleError, match="does not match its checksum"):
        EpistemicClassifier.load(saved, verify="now")
    loaded = EpistemicClassifier.load(saved, verify=False)
    np.testing.assert_array_equal(loaded.indexes_["a"].points, points)


def test_layers_of_different_lengths_are_noticed_without_verification(saved):
    change_array(saved, "layers/b/activations.npy", read_bundle(saved).activations["b"][:-1])
    with pytest.raises(BundleError, match=r"layer 'b' must .* \(30, .*it has shape \(29, 4\)"):
        EpistemicClassifier.load(saved, verify=False)


@pytest.mark.parametrize("format", [9, 11])
@pytest.mark.parametrize("sealed", [True, False])
def test_another_format_is_refused_with_both_numbers_and_what_to_do(saved, format, sealed):
    """Another format may be sealed in another way."""
    set_format(saved, format, sealed=sealed)
    words = rf"has format {format}; this version of iknow reads format 10: .*the version that wrote"
    with pytest.raises(BundleError, match=words):
        EpistemicClassifier.load(saved)


def test_a_manifest_of_another_format_in_a_file_of_ours_is_refused(saved):
    rewrite_manifest(saved, lambda manifest: manifest.update(format=11))
    with pytest.raises(BundleError, match=r"manifest\.json is damaged"):
        EpistemicClassifier.load(saved)


def test_what_is_not_a_bundle_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("hello")
    (tmp_path / "empty").write_text("")
    os.mkfifo(tmp_path / "pipe")
    with zipfile.ZipFile(tmp_path / "zip", "w") as other:
        other.writestr("manifest.json", "{}")
    for name in ("folder", "file", "empty", "pipe", "zip", "nothing"):
        with pytest.raises(BundleError, match="is not a bundle"):
            EpistemicClassifier.load(tmp_path / name)
    with pytest.raises(BundleError, match="cannot be opened"):
        EpistemicClassifier.load(tmp_path / "nul\0")


@pytest.mark.parametrize("name", ["nul\0", "x" * 5000])
def test_what_is_no_name_of_a_file_is_refused_before_anything_is_written(tmp_path, name):
    classifier = EpistemicClassifier(PrecomputedModel(), rule=Ball(1.0))
    classifier.fit((np.eye(2), {"a": np.eye(2)}), [0, 1])
    with pytest.raises(BundleError, match="is not a valid file name"):
        classifier.save(tmp_path / name)
    with pytest.raises(InputError, match="path must be a file name"):
        classifier.save(3)
    assert list(tmp_path.iterdir()) == []


# The model


def test_a_foreign_scikit_learn_model_is_refused(tmp_path):
    X, y = make_blobs(60, 2, centers=3, random_state=0)
    classifier = EpistemicClassifier(LogisticRegression()).fit(X, y)
    classifier.save(tmp_path / "x.iknow")
    foreign = LogisticRegression().fit(X[::2], y[::2])
    with pytest.raises(BundleError, match="made with another model: the scores differ by"):
        EpistemicClassifier.load(tmp_path / "x.iknow", foreign)


def test_a_foreign_torch_module_is_refused(tmp_path):
    X, y = make_blobs(60, 2, centers=3, random_state=0)
    module = torch.nn.Linear(2, 3)
    EpistemicClassifier(module, rule=Ball(1)).fit(X, y).save(tmp_path / "x.iknow")
    with torch.no_grad():
        module.bias[0] += 1e-3
    with pytest.raises(BundleError, match=r"made with another model: .* differ by 0\.001 on"):
        EpistemicClassifier.load(tmp_path / "x.iknow", module)


def test_the_model_may_itself_have_been_pickled_in_between(tmp_path):
    X, y = make_blobs(60, 2, centers=3, random_state=0)
    classifier = EpistemicClassifier(LogisticRegression()).fit(X, y)
    classifier.save(tmp_path / "x.iknow")
    model = pickle.loads(pickle.dumps(classifier.model_.estimator))
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow", model)
    assert_same_assessment(loaded.assess(X), classifier.assess(X))


# Files that change while they are in use


def write_into(path, name):
    """Change a byte of an array where it lies, as `dd` or an editor would."""
    place = place_of(path, name).stop - 3
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0x40]))


@pytest.mark.parametrize("verify", [True, "now"])
@pytest.mark.parametrize("hide", [False, True])
def test_a_mapped_bundle_that_is_written_into_answers_no_more(saved, mapped, verify, hide):
    loaded = EpistemicClassifier.load(saved, verify=verify)
    X, _ = make_outputs(seed=5)
    expected = make_classifier().assess(X)
    assert_same_assessment(loaded.assess(X), expected)
    before = saved.stat()
    write_into(saved, "layers/a/activations.npy")
    if hide:
        os.utime(saved, ns=(before.st_atime_ns, before.st_mtime_ns))
    for use in [*USES.values()] * 2:
        with pytest.raises(BundleError, match="was changed after it was loaded: load it again"):
            use(loaded, saved.parent)
    write_into(saved, "layers/a/activations.npy")  # as it was
    assert_same_assessment(loaded.assess(X), expected)


def test_a_copied_bundle_does_not_care_what_becomes_of_its_file(saved):
    loaded = EpistemicClassifier.load(saved)  # not even compared with its checksums yet
    saved.write_bytes(b"")
    X, _ = make_outputs(seed=5)
    assert_same_assessment(loaded.assess(X), make_classifier().assess(X))
    saved.unlink()
    assert_same_assessment(loaded.assess(X), make_classifier().assess(X))


@pytest.mark.parametrize("verify", [True, False])
def test_a_mapped_bundle_that_was_only_touched_moved_or_removed_still_answers(
    saved, mapped, verify
):
    loaded = EpistemicClassifier.load(saved, verify=verify)
    X, _ = make_outputs(seed=5)
    changes = [lambda: saved.chmod(0o400), lambda: saved.rename(saved.with_name("moved"))]
    changes += [lambda: os.utime(saved.with_name("moved"))] if verify else []
    changes += [lambda: saved.with_name("moved").unlink()]
    for change_it in changes:
        loaded.assess(X)
        change_it()
        assert_same_assessment(loaded.assess(X), make_classifier().assess(X))


def test_without_verification_a_mapped_bundle_that_is_written_into_is_refused_too(saved, mapped):
    loaded = EpistemicClassifier.load(saved, verify=False)
    loaded.assess(make_outputs(seed=5)[0])
    write_into(saved, "rows.npy")
    with pytest.raises(BundleError, match="was changed after it was loaded"):
        loaded.assess(make_outputs(seed=5)[0])


@pytest.mark.parametrize("evidence", [True, False])
def test_a_change_in_the_midst_of_a_batch_is_noticed_before_its_answer_is_given(
    saved, mapped, monkeypatch, evidence
):
    loaded = EpistemicClassifier.load(saved)
    X, _ = make_outputs(seed=5)
    loaded.assess(X, evidence=evidence)
    asked = []

    def change_meanwhile(search):
        def searching(*arguments):
            if not asked:
                write_into(saved, "layers/a/activations.npy")
            asked.append(search)
            return search(*arguments)

        return searching

    index = loaded.indexes_["a"]._built
    monkeypatch.setattr(index, "gather", change_meanwhile(index.gather))
    monkeypatch.setattr(index, "decide", change_meanwhile(index.decide))
    with pytest.raises(BundleError, match="was changed after it was loaded"):
        loaded.assess(X, evidence=evidence)
    assert asked


CUT_SHORT = """
import os, sys
import numpy as np
import iknow.storage.sealed
from iknow import EpistemicClassifier
from iknow.errors import BundleError

iknow.storage.sealed.COPIED_UP_TO = 0
queries = (np.eye(3), {"a": np.eye(3)[:, :2], "b": np.eye(4)[:3]})
unused, used = (EpistemicClassifier.load(sys.argv[1]) for _ in range(2))
used.assess(queries)
os.truncate(sys.argv[1], 100)
for loaded in (unused, used):
    try:
        loaded.assess(queries)
    except BundleError as error:
        print("was changed" in str(error))
"""


def test_a_mapped_bundle_that_is_cut_short_does_not_end_the_process(saved):
    """Reading on would: the system has no other way to say that there is nothing."""
    done = subprocess.run(
        [sys.executable, "-c", CUT_SHORT, saved], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\nTrue\n"


COPIED_AFTER_THE_CUT = """
import copy, os, pickle, sys
import joblib
import iknow.storage.sealed
from iknow import EpistemicClassifier
from iknow.errors import BundleError

iknow.storage.sealed.COPIED_UP_TO = 0
loaded = EpistemicClassifier.load(sys.argv[1], joblib.load(sys.argv[2]))
os.truncate(sys.argv[1], 100)
for use in (copy.deepcopy, pickle.dumps):
    try:
        use(loaded)
    except BundleError as error:
        print("was changed" in str(error))
"""


def test_what_a_mapped_bundle_knows_its_model_by_is_not_lost_with_the_file(tmp_path):
    """Inputs of 1 MiB lie on pages that are not there any more when the classifier is copied."""
    X = np.random.default_rng(0).normal(size=(200, 1000))
    y = np.arange(200) % 2
    model = LogisticRegression().fit(X, y)
    classifier = EpistemicClassifier(FrozenEstimator(model), rule=Ball(1)).fit(X, y)
    classifier.save(tmp_path / "x.iknow")
    joblib.dump(model, tmp_path / "model.joblib")
    paths = [tmp_path / "x.iknow", tmp_path / "model.joblib"]
    done = subprocess.run(
        [sys.executable, "-c", COPIED_AFTER_THE_CUT, *paths], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "True\nTrue\n"), done.stderr


# Writing, and what was there before


def make_what_exists(kind, target):
    """Something that a user would not want to lose."""
    match kind:
        case "file":
            target.write_text("precious")
        case "folder":
            target.mkdir()
        case "browser extension":
            target.mkdir()
            (target / "manifest.json").write_text('{"manifest_version": 3}')
            (target / "bg.js").write_text("precious")
        case "folder with a model inside":
            target.mkdir()
            (target / "manifest.json").write_text('{"format": 1}')
            (target / "model.joblib").write_text("precious")
        case "zip":
            with zipfile.ZipFile(target, "w") as file:
                file.writestr("manifest.json", '{"format": 2}')
                file.writestr("bg.js", "precious")
        case "half a bundle":
            make_classifier().save(target)
            target.write_bytes(target.read_bytes()[:-1])
        case "newer bundle":
            make_classifier().save(target)
            set_format(target, 11, sealed=True)


def content_of(folder):
    return {p: p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


@pytest.mark.parametrize(
    "kind",
    [
        "file",
        "folder",
        "browser extension",
        "folder with a model inside",
        "zip",
        "half a bundle",
        "newer bundle",
    ],
)
@pytest.mark.parametrize("by_link", [False, True])
def test_what_exists_and_is_no_bundle_is_left_alone(tmp_path, kind, by_link):
    target = tmp_path / "thesis"
    make_what_exists(kind, target)
    before = content_of(tmp_path)
    if by_link:
        (tmp_path / "link").symlink_to("thesis")
    with pytest.raises(BundleError, match="exists and is not a bundle"):
        make_classifier().save(tmp_path / "link" if by_link else target)
    (tmp_path / "link").unlink(missing_ok=True)
    assert content_of(tmp_path) == before


def test_a_file_that_appears_while_a_bundle_is_written_is_left_alone(tmp_path, monkeypatch):
    target = tmp_path / "x.iknow"
    write = iknow.storage.bundle.write_file

    def write_slowly(file, contents):
        write(file, contents)
        target.write_text("precious")

    monkeypatch.setattr(iknow.storage.bundle, "write_file", write_slowly)
    with pytest.raises(BundleError, match="exists and is not a bundle"):
        make_classifier().save(target)
    assert content_of(tmp_path) == {target: b"precious"}


def test_missing_parent_folders_are_made(tmp_path):
    make_classifier().save(tmp_path / "a" / "b" / "x.iknow")
    assert EpistemicClassifier.load(tmp_path / "a" / "b" / "x.iknow").layers_ == ("a", "b")


def test_saving_over_a_bundle_replaces_all_of_it(saved, tmp_path):
    X, y = make_outputs(seed=9)
    X = (X[0], {"other": X[1]["a"]})
    new = EpistemicClassifier(PrecomputedModel(), rule=Ball(1)).fit(X, y)
    new.save(saved)
    assert_same_assessment(EpistemicClassifier.load(saved).assess(X), new.assess(X))
    assert "layers/a/activations.npy" not in unpack(saved)
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


def test_a_new_bundle_has_the_permissions_of_any_new_file_and_a_replaced_one_keeps_them(tmp_path):
    (tmp_path / "any").touch()
    make_classifier().save(tmp_path / "x.iknow")
    assert (tmp_path / "x.iknow").stat().st_mode == (tmp_path / "any").stat().st_mode
    (tmp_path / "x.iknow").chmod(0o600)
    make_classifier().save(tmp_path / "x.iknow")
    assert stat.S_IMODE((tmp_path / "x.iknow").stat().st_mode) == 0o600


@pytest.mark.parametrize("n_before", [0, 1])
def test_a_reader_of_the_old_bundle_still_answers_rightly_after_it_was_replaced(
    saved, mapped, n_before
):
    reader = EpistemicClassifier.load(saved)  # nothing of its arrays was read yet
    for _ in range(n_before):
        reader.assess(make_outputs(seed=5)[0])
    make_classifier(seed=20).save(saved)
    assert all(is_memory_mapped(index.points) for index in reader.indexes_.values())
    X, _ = make_outputs(seed=5)
    assert_same_assessment(reader.assess(X), make_classifier().assess(X))


def test_another_process_that_reads_the_old_bundle_answers_rightly_after_it_was_replaced(saved):
    script = """
import sys
import numpy as np
import iknow.storage.sealed
from iknow import EpistemicClassifier

iknow.storage.sealed.COPIED_UP_TO = 0
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
from iknow.models import PrecomputedModel

n = 20000
outputs = (np.eye(2)[np.arange(n) % 2], {"a": np.ones((n, 4))})
classifier = EpistemicClassifier(PrecomputedModel(), rule=Ball(1))
classifier.fit(outputs, np.arange(n) % 2)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # the kernel refuses larger files
try:
    classifier.save(sys.argv[1])
except OSError as error:
    print("refused")
"""


@pytest.mark.parametrize("limit", [100_000, 400_000], ids=["labels", "activations"])
def test_a_full_disk_leaves_the_old_bundle_and_no_leftovers(saved, tmp_path, limit):
    """Labels and rows take 160,128 bytes each, the activations after them 320,128."""
    before = saved.read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, saved, str(limit)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "refused\n"
    assert list(tmp_path.iterdir()) == [saved]
    assert saved.read_bytes() == before
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


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_step_leaves_the_old_bundle_or_none_and_no_leftovers(
    saved, tmp_path, monkeypatch, step
):
    def fail(*arguments):
        raise BrokenError

    monkeypatch.setattr(os, step, fail)
    for name in (saved, tmp_path / "new.iknow"):
        with pytest.raises(BrokenError):
            make_classifier(seed=20).save(name)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == [saved]
    X, _ = make_outputs(seed=5)
    assert_same_assessment(EpistemicClassifier.load(saved).assess(X), make_classifier().assess(X))


# Several at once, and killed ones


def make_small_bundle(seed, n=40_000):
    """A bundle that takes some milliseconds to write; its arrays tell by which seed."""
    return Bundle(
        classes=np.array([0, 1]),
        labels=np.sort(np.arange(n) % 2),
        rows=np.arange(n),
        activations={"a": np.full((n, 4), seed, dtype=np.float32)},
        metrics={"a": Minkowski(2)},
        neighborhoods={"a": Ball(seed)},
        settings=make_settings([n // 2, n // 2], random_state=seed),
    )


def assert_whole(bundle):
    """Everything in it was written by the same save."""
    assert (bundle.activations["a"] == bundle.settings.random_state).all()
    assert bundle.neighborhoods["a"] == Ball(bundle.settings.random_state)


def test_first_saves_and_loads_that_race_all_find_whole_bundles(tmp_path, mapped):
    path = tmp_path / "x.iknow"
    go = threading.Barrier(6)

    def save(seed):
        go.wait()
        for i in range(10):
            write_bundle(path, make_small_bundle(100 * seed + i))

    def load(_):
        go.wait()
        n_found = 0
        while n_found < 20:
            if path.exists():
                assert_whole(read_bundle(path, verify="now"))
                n_found += 1

    with ThreadPoolExecutor(6) as pool:
        saving = [pool.submit(save, seed) for seed in range(3)]
        loading = [pool.submit(load, seed) for seed in range(3)]
        for future in saving + loading:
            future.result(timeout=120)
    assert list(tmp_path.iterdir()) == [path]


SAVE_AND_BE_KILLED = """
import os, random, signal, sys, time
import numpy as np
from iknow import Ball
from iknow.storage.bundle import Bundle, read_bundle, write_bundle
from iknow.metrics import Minkowski
from tests.storage.making import make_settings

path, n_kills = sys.argv[1], int(sys.argv[2])
write_bundle(path, make_small_bundle(0))
moments = random.Random(0)
n_left = 0
for kill in range(n_kills):
    child = os.fork()
    if child == 0:
        for seed in range(10_000):
            write_bundle(path, make_small_bundle(seed))
    time.sleep(moments.uniform(0.001, 0.06))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert_whole(read_bundle(path, verify="now"))
    n_left += len(os.listdir(os.path.dirname(path))) - 1
    assert len(os.listdir(os.path.dirname(path))) <= 2
write_bundle(path, make_small_bundle(1))
print(n_left, os.listdir(os.path.dirname(path)))
"""


@pytest.mark.parametrize("n_kills", [10, pytest.param(300, marks=pytest.mark.slow)])
def test_killed_saves_leave_a_whole_bundle_and_the_next_save_cleans_up(tmp_path, n_kills):
    functions = [inspect.getsource(make_small_bundle), inspect.getsource(assert_whole)]
    script = "\n".join([*functions, SAVE_AND_BE_KILLED])
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "x.iknow", str(n_kills)],
        capture_output=True,
        text=True,
        check=True,
    )
    n_left, names = done.stdout.split(maxsplit=1)
    assert int(n_left) > 0  # or no save was caught at work
    assert names == "['x.iknow']\n"


# Names of layers


ODD_NAMES = ["a/b", "..", ".", ".x", "ü", "", "%", "%2E", "a b", "../../x", "/etc", "nul\x00", "\\"]
ODD_NAMES += ["\ud800", "x" * 700, "float"]


def test_layers_of_any_name_survive_and_stay_inside_the_bundle(tmp_path):
    X, y = make_outputs()
    values = {name: X[1]["a"] + i for i, name in enumerate(ODD_NAMES)}
    folder = tmp_path / "deep" / "er"
    classifier = EpistemicClassifier(PrecomputedModel(), rule=Ball(1))
    classifier.fit((X[0], values), y).save(folder / "x.iknow")
    loaded = EpistemicClassifier.load(folder / "x.iknow")
    assert loaded.layers_ == tuple(ODD_NAMES)
    assert_same_assessment(loaded.assess((X[0], values)), classifier.assess((X[0], values)))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [folder / "x.iknow"]
    names = [name for name in unpack(folder / "x.iknow") if name.endswith("/activations.npy")]
    assert len(names) == len(ODD_NAMES)
    for name in names:
        folder, layer, _ = name.split("/")
        assert folder == "layers"
        assert not layer.startswith(".")


def test_a_bundle_written_by_hand_reads_back(tmp_path):
    """The functions beneath save and load, without a classifier."""
    bundle = Bundle(
        classes=np.array(["x", "y"]),
        labels=np.array([0, 1]),
        rows=np.array([4, 2]),
        activations={"a": np.array([[1.0], [2.0]], dtype=np.float32)},
        metrics={"a": Minkowski(1.5)},
        neighborhoods={"a": Ball(np.inf)},
        settings=make_settings(
            [1, 1], feature_names_in=["ü", ""], validation_fraction=np.float32(0.5)
        ),
        probe={"a/b": np.array(["text", "ü"]), "": np.float16([[1], [2]]), "n": np.array(3)},
    )
    write_bundle(tmp_path / "x", replace(bundle, version="9.9"))
    found = read_bundle(tmp_path / "x")
    assert found.classes.tolist() == ["x", "y"]
    assert found.labels.tolist() == [0, 1]
    assert found.rows.tolist() == [4, 2]
    assert found.activations["a"].tolist() == [[1.0], [2.0]]
    assert found.metrics == {"a": Minkowski(1.5)}
    assert found.neighborhoods == {"a": Ball(np.inf)}
    assert found.settings == bundle.settings
    assert {name: (a.dtype, a.tolist()) for name, a in found.probe.items()} == {
        name: (a.dtype, a.tolist()) for name, a in bundle.probe.items()
    }
    assert json.loads(unpack(tmp_path / "x")["manifest.json"])["iknow"] == found.version == "9.9"
