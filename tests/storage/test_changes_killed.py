"""SIGKILL at any moment: what was acknowledged is there, and nothing is there by half.

The oracle of the assertions is a classifier built from the samples that are there.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from iknow import EpistemicClassifier, RelativeBall
from iknow.models import PrecomputedModel
from iknow.storage.bundle import append_changes, compact_bundle, read_bundle
from iknow.storage.changes import fold_changes
from tests.storage.changing import addition, removal, rows_after
from tests.storage.killing import work
from tests.storage.test_bundle import make_outputs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork"),
]
RULE = RelativeBall(3.0, 1.5)


@pytest.fixture
def path(tmp_path):
    X, y = make_outputs(60)
    EpistemicClassifier(PrecomputedModel(), rule=RULE).fit(X, y).save(tmp_path / "x.iknow")
    return tmp_path / "x.iknow"


def test_every_acknowledged_change_survives_any_kill(path):
    command = [sys.executable, "-m", "tests.storage.killing", str(path), "200"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["changes"] > 200
    assert counts["torn"] > 5  # killed while it appended
    assert counts["temporary"] > 5  # and while it compacted
    found = read_bundle(path)
    assert_as_rebuilt(path, fold_changes(found), make_outputs(40, seed=9)[0])
    compact_bundle(path)
    assert list(path.parent.iterdir()) == [path]  # what killed compactions left is gone
    assert_as_rebuilt(path, read_bundle(path), make_outputs(40, seed=9)[0])


def assert_as_rebuilt(path, folded, X):
    """The assertions are those of a classifier built from the rows of the folded bundle."""
    changed = EpistemicClassifier.load(path)
    order = np.argsort(folded.rows)
    activations = {name: values[order] for name, values in folded.activations.items()}
    y = folded.classes[folded.labels[order]]
    scores = np.eye(len(folded.classes))[folded.labels[order]]
    rebuilt = EpistemicClassifier(PrecomputedModel(), rule=RULE, metric="euclidean")
    rebuilt.fit((scores, activations), y, rows=folded.rows[order])
    one, other = changed.assess(X), rebuilt.assess(X)
    np.testing.assert_array_equal(one.reason, other.reason)
    for layer, evidence in one.evidence.items():
        wanted = other.evidence[layer]
        np.testing.assert_array_equal(evidence.class_distances, wanted.class_distances)
        np.testing.assert_array_equal(evidence.exemplars, wanted.exemplars)


def test_a_reader_assesses_all_the_time_beside_a_writer_and_compactions(path):
    """It loads whole states only, each one that was there, and never fails."""
    X, _ = make_outputs(40, seed=9)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        work(path, 0, write)
    try:
        seen, until = [], time.monotonic() + 8
        old = EpistemicClassifier.load(path)
        before = old.assess(X).reason.tolist()
        while time.monotonic() < until:
            bundle = read_bundle(path, copied_up_to=random.Random(len(seen)).choice([0, None]))
            folded = fold_changes(bundle)
            assert set(folded.rows.tolist()) == rows_after(len(folded.log) - 1)
            bundle.check()
            seen.append(len(folded.log))
            assert old.assess(X).reason.tolist() == before
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)
    assert seen == sorted(seen)
    assert len(set(seen)) > 20


def test_two_processes_at_once_lose_nothing(path):
    children = []
    for who in range(3):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for i in range(40):
                    append_changes(path, [addition(10_000 * (who + 1) + i)])
                    if i % 9 == who:
                        compact_bundle(path)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    found = read_bundle(path, verify="now")
    rows = set(fold_changes(found).rows.tolist())
    assert rows == {*range(60), *(10_000 * (who + 1) + i for who in range(3) for i in range(40))}


def test_a_disk_that_is_full_leaves_what_was_there(path):
    """The system itself refuses: a limit on the size of files stands for a full disk."""
    import resource

    append_changes(path, [removal(3)])
    before, size = path.read_bytes(), path.stat().st_size
    for room in (0, 10, 200, 900):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
                resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, limit))
                try:
                    append_changes(path, [addition(*range(500, 530))])
                except OSError:
                    status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert path.read_bytes() == before
    append_changes(path, [removal(5)])
    assert len(read_bundle(path, verify="now").changes) == 2


def test_a_compaction_on_a_full_disk_leaves_the_old_bundle(path, monkeypatch):
    append_changes(path, [removal(3)])
    before = path.read_bytes()
    monkeypatch.setattr("iknow.storage.files.os.fsync", _full)
    with pytest.raises(OSError, match="No space"):
        compact_bundle(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def _full(descriptor):
    raise OSError(28, "No space left on device")
