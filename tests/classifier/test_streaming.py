"""Evidence on disk is the evidence in memory, and a fit that fails leaves nothing behind."""

import gc
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from iknow import Ball, EpistemicClassifier, as_model
from iknow.classifier import fitting
from iknow.errors import InputError, LayerError
from iknow.models import PrecomputedModel
from iknow.pages import find_map
from iknow.search import scratch
from iknow.search.disk import DiskIndex
from iknow.search.measured import MinkowskiIndex
from iknow.testing import assert_same_evidence

X, Y = load_iris(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(X))
X, Y = X[ORDER], Y[ORDER]
MODEL = FrozenEstimator(LogisticRegression(max_iter=500).fit(X[:90], Y[:90]))


def batches(size=7, stop=90):
    for start in range(0, stop, size):
        yield X[start : min(start + size, stop)], Y[start : min(start + size, stop)]


def make(**parameters):
    return EpistemicClassifier(MODEL, progress=False, **parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"rule": Ball},
        {"metric": "whitened"},
        {"metric": "scaled", "layers": ["input", "output"]},
    ],
)
def test_a_loader_on_disk_gives_the_evidence_of_memory(tmp_path, parameters):
    expected = make(**parameters).fit(X[:90], Y[:90])
    classifier = make(**parameters).fit(batches(), folder=tmp_path / "evidence")
    for layer, index in classifier.indexes_.items():
        known = expected.indexes_[layer]
        assert isinstance(index._index, DiskIndex)
        assert find_map(index.points) is not None
        for name in ("points", "labels", "rows"):
            np.testing.assert_array_equal(getattr(index, name), getattr(known, name))
        queries = X[90:] if layer == "input" else MODEL.decision_function(X[90:])
        assert_same_evidence(index.gather(queries, 3, 2), known.gather(queries, 3, 2))
    assert list((tmp_path / "evidence").iterdir()) == []  # its files have no names


def test_tuned_saved_and_loaded_it_asserts_the_same(tmp_path):
    expected = make().fit(X[:90], Y[:90]).tune(X[90:], Y[90:])
    classifier = make().fit(batches(), folder=tmp_path / "evidence").tune(X[90:], Y[90:])
    assert classifier.selection_.to_dict() == expected.selection_.to_dict()
    path, other = tmp_path / "disk.iknow", tmp_path / "memory.iknow"
    classifier.save(path)
    expected.save(other)
    loaded = EpistemicClassifier.load(path, MODEL, search=DiskIndex)
    for each in (classifier, loaded, EpistemicClassifier.load(path, MODEL)):
        found, wanted = each.assess(X), expected.assess(X)
        np.testing.assert_array_equal(found.assertion, wanted.assertion)
        np.testing.assert_array_equal(found.level, wanted.level)
        for layer in wanted.evidence:
            assert_same_evidence(found.evidence[layer], wanted.evidence[layer])
    assert isinstance(loaded.indexes_["input"]._index, DiskIndex)
    assert not isinstance(
        EpistemicClassifier.load(other, MODEL).indexes_["input"]._index, DiskIndex
    )


def test_row_numbers_and_data_at_hand_work_too(tmp_path):
    numbers = np.random.default_rng(1).permutation(1000)[:90]
    expected = make().fit(X[:90], Y[:90], rows=numbers).indexes_["input"]
    found = make().fit(X[:90], Y[:90], rows=numbers, folder=tmp_path).indexes_["input"]
    np.testing.assert_array_equal(found.rows, expected.rows)
    np.testing.assert_array_equal(found.points, expected.points)
    trained = EpistemicClassifier(LogisticRegression(max_iter=500), progress=False)
    assert_same = trained.fit(X, Y, folder=tmp_path).assess(X).assertion
    np.testing.assert_array_equal(assert_same, trained.fit(X, Y).assess(X).assertion)


def test_metrics_are_fitted_to_a_bounded_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "MOST_ROWS", 30)
    chosen = np.linspace(0, 89, 30).astype(int)
    metric = make(metric="scaled").fit(X[chosen], Y[chosen]).indexes_["input"].metric
    index = make(metric="scaled").fit(batches(), folder=tmp_path).indexes_["input"]
    np.testing.assert_array_equal(index.metric.scale, metric.scale)
    assert index.n_rows == 90


def test_an_index_of_the_users_choice_and_another_norm(tmp_path):
    from iknow.metrics import Minkowski

    classifier = make(metric=Minkowski(1.0)).fit(batches(), folder=tmp_path)
    assert isinstance(classifier.indexes_["input"]._index, MinkowskiIndex)
    assert find_map(classifier.indexes_["input"].points) is not None


def test_bad_input_is_refused_and_nothing_changes(tmp_path, monkeypatch):
    classifier = make().fit(X[:90], Y[:90])
    before = dict(vars(classifier))

    def different_widths():
        yield from batches(stop=14)
        yield X[14:20, :3], Y[14:20]

    unlabeled = (part for part, _ in batches())
    with pytest.raises(InputError, match="batches have no labels"):
        classifier.fit(unlabeled, folder=tmp_path)
    assert len(list(unlabeled)) > 5  # it did not wait for the last
    with pytest.raises(InputError, match="batch 2 of the loader"):
        classifier.fit(different_widths(), folder=tmp_path)
    with pytest.raises(InputError, match="yields nothing: expected batches"):
        classifier.fit(iter([]), folder=tmp_path)
    hole = X[:90].copy()
    hole[3, 1] = np.nan
    function = EpistemicClassifier(
        as_model(lambda inputs: inputs[:, :3], embed=lambda inputs: inputs)
    )
    with pytest.raises(InputError, match="row 3 has a NaN or inf"):
        function.fit(hole, Y[:90], folder=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used as a folder"):
        classifier.fit(batches(), folder=tmp_path / "file")
    with pytest.raises(InputError, match="search must be no device; got 'cpu'"):
        make(search="cpu").fit(batches(), folder=tmp_path)
    usage = scratch.shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(InputError, match=r"needs room for 3,\d\d\d bytes; 1,000 are free"):
        classifier.fit(X[:90], Y[:90], folder=tmp_path)
    assert vars(classifier).keys() == before.keys()
    assert classifier.plan_ is before["plan_"]
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_layer_of_changing_width_is_refused(tmp_path):
    batches = [((np.eye(2), {"a": np.zeros((2, width))}), [0, 1]) for width in (3, 4)]
    with pytest.raises(LayerError, match="layer 'a' gives 4 features for some samples and 3"):
        EpistemicClassifier(PrecomputedModel()).fit(iter(batches), folder=tmp_path)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs POSIX signals")
def test_a_killed_fit_leaves_nothing_on_the_disk(tmp_path):
    """It is killed while its loader yields batches, some of them written."""
    program = """
import os, signal, sys
import numpy as np
from iknow import EpistemicClassifier, as_model
def batches():
    for number in range(100):
        if number == 50:
            os.kill(os.getpid(), signal.SIGKILL)
        yield np.random.default_rng(number).standard_normal((64, 9)), np.arange(64) % 2
model = lambda X: np.stack([X[:, 0], -X[:, 0]], axis=1)
EpistemicClassifier(as_model(model, embed=lambda X: X), progress=False).fit(
    batches(), folder=sys.argv[1]
)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_the_space_is_free_when_the_classifier_is_gone(tmp_path):
    if not os.path.exists("/proc/self/fd"):
        pytest.skip("only Linux lists open files")
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    classifier = make(metric="euclidean").fit(batches(), folder=tmp_path)
    classifier.indexes_["input"].gather(X[:3])
    assert len(os.listdir("/proc/self/fd")) > before
    del classifier
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
