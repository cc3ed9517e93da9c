"""Signals, reloads and dead workers, at real server processes with bundles, under load."""

import json
import os
import shutil
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from benchmarks.service.asking import ask_npy
from benchmarks.service.process import start
from benchmarks.service.wire import CLOSED, Asked, Wire
from iknow import EpistemicClassifier
from tests.conditions import wait_until

pytest.importorskip("skl2onnx")  # the extra `export`
pytestmark = pytest.mark.slow
MODELS = Asked("/v1/models", method="GET", kind=None)
METRICS = Asked("/metrics", method="GET", kind=None)
RELOAD = Asked("/v1/reload", b"")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """Two bundles of digit readers, and what each says about some rows."""
    X, y = load_digits(return_X_y=True)
    X = X.astype(np.float32)
    folder, said = tmp_path_factory.mktemp("bundles"), []
    for i, n_rows in enumerate((400, 900)):
        model = LogisticRegression(max_iter=1000).fit(X[:n_rows] / 16, y[:n_rows])
        fitted = EpistemicClassifier(model, progress=False).fit(X[:n_rows] / 16, y[:n_rows])
        fitted.tune(X[1100:1500] / 16, y[1100:1500])
        fitted.save(folder / f"{i}.iknow", onnx=True, version=str(i + 1))
        told = EpistemicClassifier.load(folder / f"{i}.iknow").assess(X[1000:1040] / 16)
        said.append([each.name for each in told.assertion])
    assert said[0] != said[1]
    return folder, X[1000:1040] / 16, said


@pytest.fixture
def serve(bundles, tmp_path):
    """Start a server process of the first bundle; its `Server`, and the path of the bundle."""
    started = []

    def serve(**settings):
        path = tmp_path / "digits.iknow"
        shutil.copy(bundles[0] / "0.iknow", path)
        command = ["-m", "benchmarks.service.serve", json.dumps(settings), str(path)]
        server = start(command)
        started.append(server)
        server.await_ready()
        return server, path

    yield serve
    for server in started:
        server.end()


def ask(server, asked):
    with Wire(server.port) as wire:
        told = wire.ask(asked)
    assert b"Traceback" not in told.body
    return told


class Load:
    """Clients that ask without a pause until they are told to stop or the server is gone."""

    def __init__(self, server, rows, n_clients=4):
        self.told, self.stopping = [], threading.Event()
        self._work = ask_npy(rows), server.port
        self._threads = [threading.Thread(target=self._ask) for _ in range(n_clients)]
        for thread in self._threads:
            thread.start()

    def _ask(self):
        asked, port = self._work
        with Wire(port) as wire:
            while not self.stopping.is_set():
                told = wire.ask(asked)
                self.told.append(told)
                if told.status == CLOSED:
                    return

    def stop(self):
        self.stopping.set()
        for thread in self._threads:
            thread.join()
        return self.told


def versions(told):
    return [each.json()["version"] for each in told if each.status == 200]


def right(told, said):
    for each in told:
        answer = each.json()
        found = [row["assertion"] for row in answer["answers"]]
        assert found == said[int(answer["version"]) - 1]


def test_sigterm_answers_what_is_under_way_and_ends_with_success(serve, bundles):
    server, _ = serve()
    load = Load(server, bundles[1])
    wait_until(lambda: len(load.told) > 20)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0
    told = load.stop()
    statuses = {each.status for each in told}
    assert statuses <= {200, CLOSED}  # a connection may close between two requests
    assert sum(each.status == CLOSED for each in told) <= 4
    right([each for each in told if each.status == 200], bundles[2])


def test_sighup_replaces_the_bundle_and_no_request_fails(serve, bundles):
    server, path = serve()
    load = Load(server, bundles[1])
    wait_until(lambda: len(load.told) > 20)
    shutil.copy(bundles[0] / "1.iknow", path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "2" in versions(load.told[-4:]), seconds=60)
    told = load.stop()
    assert {each.status for each in told} == {200}
    right(told, bundles[2])
    assert versions([ask(server, ask_npy(bundles[1]))]) == ["2"]


@pytest.mark.parametrize("damage", ["truncated", "garbage", "removed"])
def test_a_bad_bundle_is_refused_and_the_old_one_goes_on(serve, bundles, damage):
    server, path = serve()
    content = (bundles[0] / "1.iknow").read_bytes()
    bad = {"truncated": content[: len(content) // 2], "garbage": b"no bundle" * 100}
    path.unlink()
    if damage in bad:
        path.write_bytes(bad[damage])
    (told,) = ask(server, RELOAD).json()["models"]
    assert not told["changed"]
    assert told["error"]
    answer = ask(server, ask_npy(bundles[1]))
    assert versions([answer]) == ["1"]
    right([answer], bundles[2])
    assert b"iknow_reload_failures_total 1.0" in ask(server, METRICS).body
    path.unlink(missing_ok=True)
    shutil.copy(bundles[0] / "1.iknow", path)
    (told,) = ask(server, RELOAD).json()["models"]
    assert (told["changed"], told["error"], told["version"]) == (True, None, "2")


def test_a_worker_that_is_killed_is_replaced_and_its_request_answered(serve, bundles):
    server, _ = serve(workers=2)
    load = Load(server, bundles[1])
    wait_until(lambda: len(load.told) > 20)
    workers = children(server.process.pid)
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    n_before = len(load.told)
    wait_until(lambda: len(load.told) > n_before + 20, seconds=120)
    told = load.stop()
    assert {each.status for each in told} == {200}
    right(told, bundles[2])


def test_workers_end_with_a_server_that_is_killed(serve, bundles):
    server, _ = serve(workers=2)
    assert ask(server, ask_npy(bundles[1])).status == 200
    workers = children(server.process.pid)
    assert len(workers) == 2
    server.end(signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, workers)), seconds=30)


def is_alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def children(process):
    """The processes that assess; another one tracks resources."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [
        int(each) for each in found if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()
    ]


def test_an_alarm_that_rang_still_rings_after_sigkill(serve, bundles):
    server, path = serve()
    rng, alarm = np.random.default_rng(0), b'iknow_alarm{alarm="drift",model="digits",version="1"} '
    ordinary = load_digits(return_X_y=True)[0][1500:1780].astype(np.float32) / 16
    ask(server, ask_npy(ordinary))
    strange = ask_npy(rng.random((300, 64)).astype(np.float32))
    assert alarm + b"0.0" in ask(server, METRICS).body
    ask(server, strange)
    wait_until(lambda: alarm + b"1.0" in ask(server, METRICS).body)
    server.end(signal.SIGKILL)
    again, _ = serve()
    assert alarm + b"1.0" in ask(again, METRICS).body
    assert (path.with_name("digits.iknow.state") / "digits@1.json").is_file()


def test_a_database_that_goes_away_and_comes_back(serve, bundles):
    from tests.serve.audit.server import Server

    database = Server()
    database.start()
    try:
        server, _ = serve(audit=database.url())
        assert ask(server, ask_npy(bundles[1])).status == 200
        database.stop(signal.SIGQUIT)
        told = ask(server, ask_npy(bundles[1]))
        assert (told.status, "recorded" in told.json()["error"]) == (503, True)
        database.start()
        wait_until(lambda: ask(server, ask_npy(bundles[1])).status == 200, seconds=60)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    finally:
        database.remove()
