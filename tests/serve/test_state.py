"""What the alarms know outlives a restart and a crash, and is about one model."""

import json
import logging
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from iknow import Client, EpistemicClassifier
from iknow.errors import InputError
from iknow.serve.monitor import AccuracyMonitor, DriftAlarm, Monitors
from iknow.serve.monitor.monitors import StateFile
from iknow.serve.served import BundleSource, serve_classifier
from iknow.serve.settings import Settings
from iknow.storage.files import write_bytes
from tests.conditions import wait_until

NOISE = np.random.default_rng(0).random((300, 64))
FILE = "digits@1.json"


def alarm_of(server, model=0):
    return Client(server.url).status()["models"][model]["alarm"]


def ask(server, rows, model="digits", samples=None):
    """Ask about some rows, and wait until the alarm saw them."""
    client = Client(server.url)
    answers = client.assess(model, rows)
    names = [each["name"] for each in client.status()["models"]]
    if samples is None:
        return answers
    wait_until(lambda: alarm_of(server, names.index(model))["n_samples"] == samples)
    return answers


def ring(server, digits):
    ask(server, digits.X[:200], samples=200)
    Client(server.url).assess("digits", NOISE)
    wait_until(lambda: alarm_of(server)["alarmed"])


@pytest.fixture
def settings(tmp_path):
    return Settings(state=tmp_path / "state")


@pytest.fixture(scope="module")
def made(digits, tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "digits.iknow"
    digits.classifier.save(path, onnx=True)
    return path


@pytest.fixture
def bundle(made, tmp_path):
    (tmp_path / "bundles").mkdir()
    return Path(shutil.copy(made, tmp_path / "bundles" / "digits.iknow"))


def crashed(settings, tmp_path):
    """Settings of a service that starts with what a killed one would leave on disk now."""
    copy = tmp_path / "left"
    shutil.copytree(settings.state, copy)
    return Settings(state=copy)


def test_what_rings_is_on_disk_before_anybody_sees_it(running, digits, settings, tmp_path):
    server = running({"digits": digits.classifier}, settings)
    ring(server, digits)
    again = running({"digits": digits.classifier}, crashed(settings, tmp_path))
    assert alarm_of(again)["alarmed"]
    assert alarm_of(again)["since"] == alarm_of(server)["since"]


def test_a_reset_is_on_disk_before_it_is_answered(running, digits, settings, tmp_path):
    server = running({"digits": digits.classifier}, settings)
    ring(server, digits)
    Client(server.url)._ask("POST", "/v1/models/digits/alarm/reset", dict)
    found = alarm_of(running({"digits": digits.classifier}, crashed(settings, tmp_path)))
    assert (found["alarmed"], found["resets"]) == (False, 1)


def test_labels_are_on_disk_before_they_are_answered(running, digits, tmp_path):
    settings = Settings(audit=str(tmp_path / "a.db"), state=tmp_path / "state")
    server = running({"digits": digits.classifier}, settings)
    answers = ask(server, digits.X[:60])
    counted = Client(server.url).labels(answers.label(digits.y[:60])).counted
    again = running({"digits": digits.classifier}, crashed(settings, tmp_path))
    assert counted > 0
    assert Client(again.url).status()["models"][0]["accuracy"]["n"] == counted


def test_names_and_versions_do_not_collide(running, digits, settings):
    models = [serve_classifier(*each) for each in (("a", digits.classifier, "1-2"),
                                                   ("a-1", digits.classifier, "2"))]  # fmt: skip
    server = running(models, settings)
    ask(server, digits.X[:30], "a", samples=30)
    server.stop()
    again = running(models, settings)
    assert [alarm_of(again, i)["n_samples"] for i in (0, 1)] == [30, 0]


@pytest.mark.parametrize("name", ["", "../x", "a@1", "a/b", "a\\b", "a\0"])
def test_no_name_leaves_the_folder(tmp_path, name):
    for names in ((name, "1"), ("a", name)):
        with pytest.raises(InputError, match="no file can be named"):
            StateFile(tmp_path, *names)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("with_audit", [False, True])
def test_the_state_is_kept_beside_the_audit_or_the_bundle(
    running, digits, bundle, tmp_path, with_audit
):
    audit = tmp_path / "answers.db"
    settings = Settings(audit=str(audit)) if with_audit else Settings()
    server = running([BundleSource(bundle)], settings)
    ask(server, digits.X[:30], samples=30)
    server.stop()
    beside = audit if with_audit else bundle
    assert (beside.with_name(f"{beside.name}.state") / FILE).is_file()
    assert alarm_of(running([BundleSource(bundle)], settings))["n_samples"] == 30


def test_one_warning_says_what_is_promised_without_a_state(
    running, digits, bundle, caplog, tmp_path
):
    bundle.with_name("digits.iknow.state").write_text("no folder")
    with caplog.at_level(logging.WARNING, "iknow.serve"):
        server = running([BundleSource(bundle)])
        ask(server, digits.X[:30], samples=30)
        server.stop()
    (warning,) = (each.getMessage() for each in caplog.records)
    assert "0.01, is promised from one start to the next only" in warning
    assert "--state FOLDER" in warning
    assert alarm_of(running([BundleSource(bundle)]))["n_samples"] == 0


def test_a_disk_that_is_full_is_told_once_and_the_alarm_rings_all_the_same(tmp_path, caplog):
    monitors = make_monitors(tmp_path)
    assert not monitors.watch(*stream(200))
    shutil.rmtree(tmp_path)
    tmp_path.write_text("no folder any more")
    with caplog.at_level(logging.WARNING, "iknow.serve"):
        assert monitors.watch(*stream(400, 9.0))
        monitors.watch(*stream(10))
        monitors.keep()
    assert sum("cannot be written" in each.getMessage() for each in caplog.records) == 1
    tmp_path.unlink()
    tmp_path.mkdir()
    monitors.close()
    assert make_monitors(tmp_path).reports()[0].alarmed


def test_nobody_reads_that_it_rang_until_that_is_on_disk(tmp_path, monkeypatch):
    monitors, read = make_monitors(tmp_path), []
    assert not monitors.watch(*stream(200))

    def write(path, content):
        reader = threading.Thread(target=lambda: read.append(monitors.reports()[0].alarmed))
        reader.start()
        reader.join(0.2)
        assert True not in read
        return write_bytes(path, content)

    monkeypatch.setattr("iknow.serve.monitor.monitors.write_bytes", write)
    assert monitors.watch(*stream(400, 9.0))
    wait_until(lambda: True in read)


def test_two_services_do_not_write_one_state(running, digits, settings, caplog):
    first = running({"digits": digits.classifier}, settings)
    with caplog.at_level(logging.WARNING, "iknow.serve"):
        second = running({"digits": digits.classifier}, settings)
    assert "another service keeps its alarms there" in caplog.text
    ask(second, digits.X[:50], samples=50)
    ask(first, digits.X[:30], samples=30)
    second.stop()
    first.stop()
    assert alarm_of(running({"digits": digits.classifier}, settings))["n_samples"] == 30


def test_another_rate_is_the_rate_from_now_on(running, digits, tmp_path):
    server = running({"digits": digits.classifier}, Settings(state=tmp_path))
    ask(server, digits.X[:30], samples=30)
    server.stop()
    again = running({"digits": digits.classifier}, Settings(state=tmp_path, alarm_rate=0.05))
    found = alarm_of(again)
    assert (found["n_samples"], found["rate"]) == (30, 0.05)
    assert found["threshold"] == pytest.approx(np.log10(2 / 0.05), abs=1e-4)


def test_changes_made_while_it_was_stopped_are_no_other_model(running, digits, bundle, settings):
    server = running([BundleSource(bundle)], settings)
    ask(server, digits.X[:30], samples=30)
    server.stop()
    changed = EpistemicClassifier.load(bundle)
    changed.memory.remove([3]).commit()
    found = running([BundleSource(bundle)], settings)
    assert alarm_of(found)["n_samples"] == 30


@pytest.mark.parametrize("how", ["restart", "reload"])
def test_a_model_that_was_tuned_again_begins_anew(running, digits, bundle, settings, caplog, how):
    server = running([BundleSource(bundle)], settings)
    ask(server, digits.X[:30], samples=30)
    if how == "restart":
        server.stop()
    again = EpistemicClassifier.load(bundle)
    again.tune(digits.X[:200], coverage=0.5).save(bundle, onnx=True)
    with caplog.at_level(logging.WARNING, "iknow.serve"):
        if how == "restart":
            server = running([BundleSource(bundle)], settings)
        else:
            assert Client(server.url).reload()[0].changed
    assert alarm_of(server)["n_samples"] == 0
    assert "another model, or one that was tuned again" in caplog.text
    ask(server, digits.X[:20], samples=20)
    server.stop()
    assert alarm_of(running([BundleSource(bundle)], settings))["n_samples"] == 20


def test_a_bundle_written_anew_with_the_same_model_goes_on(running, digits, bundle, settings):
    server = running([BundleSource(bundle)], settings)
    ask(server, digits.X[:30], samples=30)
    EpistemicClassifier.load(bundle).save(bundle, onnx=True, note="the same")
    assert Client(server.url).reload()[0].changed
    assert alarm_of(server)["n_samples"] == 30
    ask(server, digits.X[:20], samples=50)
    server.stop()
    assert alarm_of(running([BundleSource(bundle)], settings))["n_samples"] == 50


def damages(content):
    state = json.loads(content)
    drift = state["drift"]
    yield b""
    yield b"no JSON"
    yield b"[" * 100_000
    yield content[: len(content) // 2]
    yield b"[]"
    yield json.dumps({"alarm": {}, "accuracy": {}}).encode()
    yield json.dumps(state | {"drift": {}}).encode()
    yield json.dumps(state | {"accuracy": []}).encode()
    yield json.dumps(state | {"drift": drift | {"counts": "AAAA"}}).encode()
    gamblers = drift["gamblers"] | {"stakes": "AAAA"}
    yield json.dumps(state | {"drift": drift | {"gamblers": gamblers}}).encode()
    yield json.dumps(state | {"drift": drift | {"layers": ["y"]}}).encode()
    yield json.dumps(state | {"drift": drift | {"classes": drift["classes"][::-1]}}).encode()


def make_monitors(folder, classes=("a", "b")):
    monitors = Monitors("m 1", DriftAlarm(None, classes, ["x"]), AccuracyMonitor(0.9), "model")
    monitors.keep_in(folder, "m", "1")
    return monitors


def stream(n, power=1.0):
    rng = np.random.default_rng(n)
    levels = rng.random(n) ** power
    return levels, rng.integers(0, 2, n), levels[:, None]


def test_a_damaged_state_is_set_aside_and_told(tmp_path, caplog):
    monitors, path = make_monitors(tmp_path), tmp_path / "m@1.json"
    monitors.watch(*stream(20))
    monitors.close()
    content = path.read_bytes()
    for damaged in damages(content):
        path.write_bytes(damaged)
        caplog.clear()
        with caplog.at_level(logging.ERROR, "iknow.serve"):
            again = make_monitors(tmp_path)
        again.close()
        assert again.reports()[0].samples == 0
        assert "m@1.json cannot be read, so the alarms of m 1 begin anew" in caplog.text
        assert (tmp_path / "m@1.json.damaged").read_bytes() == damaged
    path.write_bytes(content)
    assert make_monitors(tmp_path).reports()[0].samples == 20


def test_a_class_that_came_since_has_no_detector_until_the_next_tuning(tmp_path):
    monitors = make_monitors(tmp_path)
    monitors.watch(*stream(20))
    monitors.close()
    later = make_monitors(tmp_path, ("a", "b", "c")).reports()[0]
    assert later.samples == 20
    assert [each.name for each in later.detectors if each.kind == "class"] == ["a", "b"]


def test_a_service_that_cannot_serve_lets_go_of_its_state(running, digits, settings):
    models = [serve_classifier("digits", digits.classifier)] * 2
    with pytest.raises(InputError, match="given twice"):
        running(models, settings)
    server = running(models[:1], settings)
    ask(server, digits.X[:30], samples=30)
    server.stop()
    assert alarm_of(running(models[:1], settings))["n_samples"] == 30
