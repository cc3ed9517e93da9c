"""Changes of a served model's evidence: on disk, in the answers, and told to everybody."""

import os
import threading

import pytest

from iknow import Client, EpistemicClassifier
from iknow.errors import ServiceError
from iknow.serve.audit import Event
from iknow.serve.served import BundleSource, serve_classifier
from iknow.serve.settings import Settings
from iknow.storage.bundle import compact_bundle
from tests.serve.killed import failing_fsync


@pytest.fixture(scope="module")
def made(digits, tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "digits.iknow"
    digits.classifier.save(path, onnx=True)
    return path


@pytest.fixture
def path(made, tmp_path):
    path = tmp_path / "digits.iknow"
    path.write_bytes(made.read_bytes())
    return path


@pytest.fixture(params=["portable", "with its model"])
def model(request, digits, path):
    """The same bundle, served by itself or with the model in Python."""
    if request.param == "portable":
        return BundleSource(path)
    return serve_classifier("digits", EpistemicClassifier.load(path, digits.classifier.model))


def said_by(path, X):
    found = EpistemicClassifier.load(path).assess(X)
    return [each.name for each in found.reason]


def test_a_change_is_on_disk_and_in_the_answers(running, digits, path, model, tmp_path):
    server = running([model], Settings(audit=str(tmp_path / "a.db")))
    client = Client(server.url)
    before = client.model("digits")
    X, y = digits.X, digits.y
    done = client.change("digits", add=(X[:20], y[:20]), remove=[3, 5], relabel={7: 1}, why="drift")
    assert [each.what for each in done.changes] == ["remove", "relabel", "add"]
    after = client.model("digits")
    assert (done.before, done.bundle) == (before.bundle, after.bundle)
    assert (before.stale, before.changes, after.changes) == ("", 0, 3)
    assert "2 samples removed" in after.stale
    assert any("Stale" in each for each in after.promises)
    assert client.changes("digits") == done.changes
    loaded = EpistemicClassifier.load(path)
    assert loaded.plan_.bundled["sha256"] == after.bundle
    assert [each.why for each in loaded.memory.log] == ["drift"] * 3
    answers = client.assess("digits", X[:100])
    assert answers.bundle == after.bundle
    assert [each.name for each in answers.reason] == said_by(path, X[:100])
    records = [record for _, record in server.service.audit.journal.records()]
    events = [each for each in records if isinstance(each, Event)]
    (event,) = [each for each in events if each.what == "change"]
    assert event.details["before"] == before.bundle
    assert event.details["changes"][0]["why"] == "drift"


def test_readers_go_on_while_it_changes(serving, digits, path):
    client = Client(serving([BundleSource(path)]))
    X = digits.X[:30]
    states, failures, stop = {}, [], threading.Event()

    def ask():
        mine = Client(client.url)
        while not stop.is_set():
            try:
                answers = mine.assess("digits", X)
                states[answers.bundle] = [each.name for each in answers.reason]
            except Exception as error:
                failures.append(error)

    readers = [threading.Thread(target=ask) for _ in range(3)]
    for each in readers:
        each.start()
    digests = {client.model("digits").bundle}
    for i in range(8):
        digests.add(client.change("digits", remove=[i], add=(X[i : i + 1], [0])).bundle)
    stop.set()
    for each in readers:
        each.join()
    assert not failures
    assert set(states) <= digests
    for sha256, reasons in states.items():
        then = EpistemicClassifier.load(path, at=sha256).assess(X)
        assert [each.name for each in then.reason] == reasons


@pytest.mark.slow
def test_worker_processes_load_the_new_state(serving, digits, path):
    client = Client(serving([BundleSource(path)], Settings(workers=2)))
    for i in range(3):
        done = client.change("digits", remove=[i])
        for _ in range(4):
            answers = client.assess("digits", digits.X[:50])
            assert answers.bundle == done.bundle
            assert [each.name for each in answers.reason] == said_by(path, digits.X[:50])


WRONG = [
    ({}, 422, "nothing is asked for"),
    ({"why": "x"}, 422, "nothing is asked for"),
    ({"burn": [1]}, 422, "expected an object"),
    ({"remove": [1], "after": "ab"}, 409, "by now"),
    ({"remove": 3}, 422, "remove: expected array, got int"),
    ({"remove": [True]}, 422, r"remove\[0\]: expected int, got bool"),
    ({"remove": [-1]}, 422, r"remove\[0\]: expected int >= 0"),
    ({"remove": [99999]}, 422, "no samples with these numbers"),
    ({"remove": [3, 3]}, 422, "came twice"),
    ({"relabel": [[3, 1]]}, 422, r"relabel\[0\]: expected object, got array"),
    ({"relabel": [{"id": 3, "label": [1]}]}, 422, r"relabel\[0\].label: expected .*got array"),
    ({"relabel": [{"id": 3, "label": "one"}]}, 422, "another kind"),
    ({"add": [[1]]}, 422, "add: expected object"),
    ({"add": {"rows": [[0] * 64], "labels": []}}, 422, "as many labels"),
    ({"add": {"rows": [[0] * 63], "labels": [1]}}, 422, "422"),
    ({"add": {"rows": [[0] * 64], "labels": [1], "ids": [3]}}, 422, "these numbers"),
    ({"remove": [3], "add": {"rows": [[None] * 64], "labels": [1]}}, 422, "422"),
    ({"remove": list(range(20_000))}, 413, "may change"),
    ({"remove": [1], "why": "x" * 3000}, 422, "at most"),
]


def test_what_is_wrong_is_told_and_changes_nothing(serving, path):
    client = Client(serving([BundleSource(path)]))
    before = path.read_bytes()
    for body, status, message in WRONG:
        with pytest.raises(ServiceError, match=message) as refused:
            client._post("/v1/models/digits/changes", body, dict)
        assert refused.value.status == status, body
    with pytest.raises(ServiceError) as refused:
        client._post("/v1/models/other/changes", {"remove": [1]}, dict)
    assert refused.value.status == 404
    assert path.read_bytes() == before


def test_a_bundle_that_somebody_else_changed_is_a_conflict_until_it_is_loaded(serving, path):
    client = Client(serving([BundleSource(path)]))
    EpistemicClassifier.load(path).memory.remove([3]).commit()
    with pytest.raises(ServiceError, match="reload") as refused:
        client.change("digits", remove=[5])
    assert refused.value.status == 409
    assert client.reload()[0].changed
    assert [each.ids for each in client.change("digits", remove=[5]).changes] == [(5,)]
    assert len(client.changes("digits")) == 2


def test_a_full_disk_is_told_and_nothing_is_lost(serving, digits, path, monkeypatch):
    client = Client(serving([BundleSource(path)]))
    before, said = path.read_bytes(), client.assess("digits", digits.X[:50])
    monkeypatch.setattr(os, "fsync", failing_fsync(path, lambda n: n == 1))
    with pytest.raises(ServiceError, match="the disk is full") as refused:
        client.change("digits", remove=[3])
    assert refused.value.status == 507
    monkeypatch.undo()
    assert path.read_bytes() == before
    again = client.assess("digits", digits.X[:50])
    assert (again.bundle, again.reason.tolist()) == (said.bundle, said.reason.tolist())
    assert client.change("digits", remove=[3]).before == said.bundle


def test_a_classifier_without_a_bundle_takes_no_changes(url):
    with pytest.raises(ServiceError, match="not served from a bundle") as refused:
        Client(url).change("digits", remove=[3])
    assert refused.value.status == 409


def test_the_alarm_and_the_figures_go_on(running, digits, path, tmp_path):
    server = running([BundleSource(path)], Settings(state=tmp_path / "state"))
    client = Client(server.url)
    client.assess("digits", digits.X[:40])
    for model in server.service.models:
        model.watcher.close()  # until everything was watched
    client.change("digits", remove=[3])
    (model,) = server.service.models
    assert model.status()["live"]["total"]["rows"] == 40
    assert model.status()["alarm"]["n_samples"] == 40
    server.stop()
    again = running([BundleSource(path)], Settings(state=tmp_path / "state"))
    (alarm,) = (each["alarm"] for each in Client(again.url).status()["models"])
    assert alarm["n_samples"] == 40, "it is about the stream, not about one state of the evidence"


def test_a_compacted_bundle_is_served_again(serving, digits, path):
    client = Client(serving([BundleSource(path)]))
    client.change("digits", remove=[3], why="gone")
    said = client.assess("digits", digits.X[:50])
    compact_bundle(path)
    assert client.assess("digits", digits.X[:50]).reason.tolist() == said.reason.tolist()
    assert client.reload()[0].changed
    assert client.assess("digits", digits.X[:50]).reason.tolist() == said.reason.tolist()
    assert client.changes("digits")[0].why == "gone"
