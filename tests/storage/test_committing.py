"""Changes of a loaded classifier on their way to its bundle; what is left of removed samples."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier

from iknow import EpistemicClassifier
from iknow.classifier.memory import follow
from iknow.errors import BundleError, ConflictError, InputError
from iknow.storage.bundle import compact_bundle, read_bundle
from iknow.storage.info import describe_bundle
from iknow.storage.saving import commit_changes
from tests.storage.test_bundle import make_classifier, make_outputs

X, Y = make_blobs(400, 5, centers=4, cluster_std=2.0, random_state=0)
FRESH = X[300:]


@pytest.fixture(scope="module")
def model():
    network = MLPClassifier((8,), learning_rate_init=0.05, tol=1e-2, n_iter_no_change=3,
                            random_state=0)  # fmt: skip
    return FrozenEstimator(network.fit(X[:150], Y[:150]))


@pytest.fixture(scope="module")
def made(model, tmp_path_factory):
    """A real bundle: several layers, a probe of real inputs, and the model as ONNX."""
    path = tmp_path_factory.mktemp("made") / "x.iknow"
    ec = EpistemicClassifier(model, layers=["input", "hidden1"]).fit(X[:150], Y[:150])
    ec.tune(X[150:300], Y[150:300]).save(path, onnx=True)
    return path


@pytest.fixture
def path(made, tmp_path):
    (tmp_path / "x.iknow").write_bytes(made.read_bytes())
    return tmp_path / "x.iknow"


def said(classifier):
    found = classifier.assess(FRESH)
    return found.reason.tolist(), found.level.tolist()


def change(ec):
    """Removals, among them of samples in the probe, additions, other labels and a new class."""
    ec.memory.remove(ec.probe_.rows[:3].tolist(), who="Ada", why="withdrawn")
    ec.memory.add(X[150:160], Y[150:160], who="Ben")
    ec.memory.remove([152], why="withdrawn too")
    ec.memory.relabel([20, 151], [0, 0])
    ec.memory.add(X[160:161], [9], rows=[700])
    return ec


def test_a_loaded_bundle_says_what_was_committed(path, model):
    ec = change(EpistemicClassifier.load(path, model))
    before, expected = path.stat().st_size, said(ec)
    assert said(EpistemicClassifier.load(path, model)) != expected
    ec.memory.commit()
    assert path.stat().st_size > before
    assert said(EpistemicClassifier.load(path)) == expected  # by its own model
    compact_bundle(path)
    loaded = EpistemicClassifier.load(path)
    assert said(loaded) == expected
    assert [each.sentence() for each in loaded.memory.log] == [
        each.sentence() for each in ec.memory.log
    ]
    assert loaded.classes_.tolist() == [0, 1, 2, 3, 9]
    info = describe_bundle(path)
    assert (info.n_samples, info.n_segments, len(info.changes)) == (157, 0, 5)
    assert info.selection.stale == ec.selection_.stale
    loaded.save(path.with_name("again.iknow"))
    assert said(EpistemicClassifier.load(path.with_name("again.iknow"))) == expected


def traces_of(content, samples):
    """Which arrays, each a row, occur in the bytes of a file, in either precision."""
    kinds = [np.float32, np.float64]
    return [
        i for i, row in enumerate(samples) if any(row.astype(k).tobytes() in content for k in kinds)
    ]


def test_after_compaction_nothing_of_a_removed_sample_is_left(path, model):
    ec = EpistemicClassifier.load(path, model)
    gone = [*ec.probe_.rows[:3].tolist(), 40, 41]
    layers = ec.indexes_.items()
    held = [point for _, index in layers for point in index.take(np.array(gone))[0]]
    raw = [row for table in ec.probe_.observed.activations.values() for row in table[:3]]
    scores, added = list(ec.probe_.observed.scores[:3]), X[350:352]
    kept = {
        row.tobytes() for _, index in layers for row in index.points[~np.isin(index.rows, gone)]
    }
    held = [row for row in held if row.any() and row.tobytes() not in kept]  # others have the same
    raw = [row for row in raw if np.count_nonzero(row) > 1]
    traces = [*held, *X[gone], *raw, *scores]
    assert len(traces_of(path.read_bytes(), traces)) > 5  # the search can find them
    first, _ = ec.memory.add(added, Y[350:352])
    ec.memory.remove([*gone, int(first)])
    came = ec.indexes_["input"].transform(added)
    ec.memory.commit()
    assert traces_of(path.read_bytes(), traces)  # not before compaction
    assert traces_of(path.read_bytes(), came) == [0, 1]
    compact_bundle(path)
    content = path.read_bytes()
    assert traces_of(content, traces) == []
    assert traces_of(content, came) == [1]  # the one that stayed
    ec.save(path.with_name("other.iknow"))
    content = path.with_name("other.iknow").read_bytes()
    assert traces_of(content, traces) == []
    loaded = EpistemicClassifier.load(path, model)
    assert set(gone).isdisjoint(loaded.probe_.rows.tolist())


def test_what_is_chosen_anew_is_written_too(path, model):
    ec = EpistemicClassifier.load(path, model)
    ec.memory.remove([3]).commit()
    assert describe_bundle(path).selection.stale
    ec.recertify(X[150:300], Y[150:300])
    ec.memory.commit()
    info = describe_bundle(path)
    assert not info.selection.stale
    assert info.is_portable  # although it was loaded with another model
    assert said(EpistemicClassifier.load(path)) == said(ec)
    content = path.read_bytes()
    ec.memory.commit()
    assert path.read_bytes() == content  # nothing happened since


def test_of_two_who_loaded_it_the_second_is_told(path):
    one, other = EpistemicClassifier.load(path), EpistemicClassifier.load(path)
    one.memory.remove([3]).commit()
    other.memory.remove([5])
    with pytest.raises(ConflictError, match="load it again"):
        other.memory.commit()
    again = EpistemicClassifier.load(path)
    again.memory.remove([5]).commit()
    assert [each.ids.tolist() for each in again.memory.log] == [[3], [5]]


def test_a_failed_commit_can_be_tried_again(path, monkeypatch):
    ec = EpistemicClassifier.load(path)
    ec.memory.remove([3])

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("iknow.storage.archive.os.write", fail)
    with pytest.raises(OSError, match="No space"):
        ec.memory.commit()
    monkeypatch.undo()
    assert not read_bundle(path).changes
    ec.memory.commit()
    assert len(read_bundle(path).changes) == 1


def test_what_was_not_loaded_is_saved_instead(path):
    with pytest.raises(InputError, match="save this one"):
        make_classifier().memory.commit()
    with pytest.raises(BundleError):
        EpistemicClassifier.load(path, at="0" * 64)


@pytest.mark.parametrize("given", [True, False])
def test_what_was_compacted_is_committed_compacted(path, model, given):
    """The bundle keeps its model and its maker's words, and nothing of what was removed."""
    ec = change(EpistemicClassifier.load(path, model if given else None))
    before, gone = describe_bundle(path), X[[152, *range(3)]]
    gone[1:] = ec.indexes_["input"].take(np.array([30, 31, 32]))[0]
    ec.memory.compact()
    ec.memory.remove([30, 31, 32], who="Cid").compact()
    assert traces_of(path.read_bytes(), gone) == [1, 2, 3]
    ec.memory.commit()
    loaded, info = EpistemicClassifier.load(path), describe_bundle(path)
    assert said(loaded) == said(ec)
    assert [each.sentence() for each in loaded.memory.log] == [
        each.sentence() for each in ec.memory.log
    ]
    assert (info.n_samples, info.n_segments, len(info.changes)) == (154, 0, 6)
    assert (info.exported, info.created, info.model) == (
        before.exported,
        before.created,
        before.model,
    )
    assert traces_of(path.read_bytes(), gone) == []
    assert info.sha256 == ec.plan_.bundled["sha256"]
    ec.memory.remove([33]).commit()
    assert describe_bundle(path).n_segments == 1  # from here on it appends again


def test_what_was_compacted_does_not_undo_what_others_did(path):
    one, other = EpistemicClassifier.load(path), EpistemicClassifier.load(path)
    one.memory.remove([3]).compact()
    other.memory.remove([5]).commit()
    before = path.read_bytes()
    with pytest.raises(ConflictError, match="load it again"):
        one.memory.commit()
    assert path.read_bytes() == before


def test_whoever_keeps_a_record_is_told_the_sha256_before_and_may_refuse(path):
    """Also where the bundle is written anew."""

    def refuse(sha256):
        raise ZeroDivisionError

    for prepare in (lambda m: m.remove([3]), lambda m: m.remove([5]).compact()):
        ec = EpistemicClassifier.load(path)
        prepare(ec.memory)
        before, told = path.read_bytes(), []
        with pytest.raises(ZeroDivisionError):
            commit_changes(ec.plan_, None, refuse)
        assert path.read_bytes() == before
        plan = commit_changes(ec.plan_, None, told.append)
        assert told == [describe_bundle(path).sha256] == [plan.bundled["sha256"]]


def test_a_classifier_catches_up_with_its_bundle(tmp_path):
    make_classifier().save(tmp_path / "x.iknow")
    reader, writer = (EpistemicClassifier.load(tmp_path / "x.iknow") for _ in range(2))
    digests = []
    for i in range(4):
        writer.memory.remove([i]).commit()
        digests.append(writer.plan_.bundled["sha256"])
    queries = make_outputs(40, seed=9)[0]
    halfway = follow(reader, digests[1])
    then = EpistemicClassifier.load(tmp_path / "x.iknow", at=digests[1])
    np.testing.assert_array_equal(halfway.assess(queries).reason, then.assess(queries).reason)
    assert [len(each.memory.log) for each in (reader, halfway, then)] == [0, 2, 2]
    assert len(follow(halfway).memory.log) == 4
    assert follow(halfway, digests[0]) is None  # never backward
    compact_bundle(tmp_path / "x.iknow")
    assert follow(halfway) is None  # it must be loaded
