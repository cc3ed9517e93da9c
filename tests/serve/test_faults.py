"""Faults of clients and disks at the real server: what is answered, and that others are."""

import asyncio
import json
import logging
import re
import socket
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from benchmarks.service.asking import NPY, as_npy, ask_json, ask_npy, ask_v2, assess_path
from benchmarks.service.wire import Asked, Wire
from iknow.serve import server
from iknow.serve.settings import Settings
from iknow.serve.tokens import read_tokens
from tests.conditions import wait_until

GET = {"method": "GET", "kind": None}


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("iknow.serve").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("iknow.serve").setLevel(logging.NOTSET)


@pytest.fixture
def port(url):
    return port_of(url)


@pytest.fixture
def start(running, digits):
    """Start a server of the digit reader with other settings; its port and its service."""

    def start(**settings):
        found = running({"digits": digits.classifier}, Settings(**settings))
        return port_of(found.url), found.service

    return start


def port_of(url):
    return int(url.rpartition(":")[2])


def ask(port, asked):
    with Wire(port) as wire:
        told = wire.ask(asked)
    assert b"Traceback" not in told.body
    return told


def assertions(told):
    assert told.status == 200, told
    return [answer["assertion"] for answer in told.json()["answers"]]


def expected(digits, rows):
    return [each.name for each in digits.classifier.assess(rows).assertion]


def metric(port, name):
    text = ask(port, Asked("/metrics", **GET)).body.decode()
    return sum(float(each) for each in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.M))


@pytest.mark.parametrize(
    ("asked", "status", "told"),
    [
        (ask_json([[1, 2]]), 422, "2 features.*64"),
        (ask_json([[1] * 65]), 422, "65 features.*64"),
        (ask_json([["a"] * 64]), 422, "must hold numbers"),
        (ask_json([]), 422, "at least one"),
        (ask_npy(np.zeros((0, 64))), 422, "no rows"),
        (ask_npy(np.zeros((2, 64), complex)), 422, "must hold numbers"),
        (Asked(assess_path("digits"), b"x", "text/csv"), 415, "application/json"),
        (Asked(assess_path("digits"), b""), 400, "empty"),
        (Asked(assess_path("digits"), b"{"), 400, "no JSON"),
        (Asked(assess_path("digits"), as_npy(np.zeros((1, 64)))[:-1], NPY), 400, "bytes"),
        (ask_json([[0] * 64], "nothing"), 404, "no model 'nothing'.*'digits'"),
        (Asked("/v1/models/digits/versions/7/assess", b"{}"), 404, "no version '7'.*'1'"),
        (Asked("/v2/models/nothing/infer", b"{}"), 404, "no model"),
        (Asked("/v1/labels", b'{"labels": [{"request": "", "row": 0, "label": 1}]}'), 409, "audit"),
        (Asked("/nothing", **GET), 404, "nothing at this path"),
        (Asked(assess_path("digits"), method="GET"), 405, "method"),
        (Asked("/healthz", headers=(("Host", "evil.example"),), **GET), 403, "localhost"),
        (Asked("/healthz", headers=(("Host", "127.0.0.1.evil.example"),), **GET), 403, "localhost"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_a_sentence(port, asked, status, told):
    answer = ask(port, asked)
    assert (answer.status, set(answer.json())) == (status, {"error"})
    assert re.search(told, answer.json()["error"])


def test_rows_with_gaps_are_invalid_and_others_are_answered(port, digits):
    rows = digits.X[:4].copy()
    rows[1, 3], rows[2, 5] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        told = expected(digits, digits.X[:4])
    for asked in (ask_npy(rows), ask_json(json.loads(json.dumps(rows.tolist())))):
        found = ask(port, asked).json()["answers"]
        assert [each["assertion"] for each in found] == [told[0], "IDK", "IDK", told[3]]
        assert [each["reason"] for each in found[1:3]] == ["INVALID", "INVALID"]
        assert [each["belief"] for each in found[1:3]] == [None, None]


def test_an_id_that_cannot_be_printed_is_replaced(port):
    for given in ("ok-1.2:3", "\x01", "a b", "x" * 200, "<script>"):
        told = ask(port, Asked("/healthz", headers=(("X-Request-Id", given),), broken=True, **GET))
        if told.status == 400:  # uvicorn: no HTTP
            continue
        assert (told.headers["x-request-id"] == given) is (given == "ok-1.2:3")


def test_tokens_are_asked_for_and_have_scopes(start, tmp_path):
    secret = {name: name * 20 for name in ("a", "l", "r")}
    lines = [
        f"asker assess {secret['a']}",
        f"labeler labels {secret['l']}",
        f"root admin {secret['r']}",
    ]
    (tmp_path / "tokens").write_text("\n".join(lines))
    port, _ = start(tokens=read_tokens(tmp_path / "tokens"))
    row = ask_json([[0] * 64])

    def status(given, asked=row):
        headers = () if given is None else (("Authorization", given),)
        told = ask(port, Asked(asked.path, asked.body, asked.kind, asked.method, headers))
        assert not any(each in told.body.decode() for each in secret.values())
        return told.status

    wrong = (None, "", "Bearer", "Bearer ", "Bearer wrong", "Bearer \udcff", secret["a"])
    for given in (*wrong, *(f"{how}{secret['a'][:-1]}" for how in ("Basic ", "Bearer "))):
        assert status(given) == 401, given
    assert status(f"Bearer {secret['a']}") == status(f"bearer {secret['r']}") == 200
    assert status(f"Bearer {secret['l']}") == 403
    reload = Asked("/v1/reload", b"")
    assert status(f"Bearer {secret['a']}", reload) == 403
    assert status(f"Bearer {secret['r']}", reload) == 200
    assert ask(port, Asked("/healthz", **GET)).status == 200  # probes have no tokens


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_long_is_refused_before_its_end(start, chunked):
    port, _ = start(most_body=10_000)
    head = "Transfer-Encoding: chunked" if chunked else "Content-Length: 99999999999"
    content = b"%x\r\n%s\r\n" % (20_000, b"x" * 20_000) if chunked else b"x" * 20_000
    request = f"POST {assess_path('digits')} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n".encode()
    with Wire(port, 20) as wire:
        told = wire.exchange(request + content)
    assert told.status == 413
    assert "10,000 bytes" in told.json()["error"]


def test_a_slow_body_and_a_slow_head_are_not_waited_for(start, monkeypatch):
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    port, _ = start(timeout=0.3)
    body = ask_json([[0] * 64]).encode("localhost")
    with Wire(port, 20) as wire:
        assert wire.exchange(body[:-1]).status == 408
    with socket.create_connection(("127.0.0.1", port), 20) as slow:
        slow.sendall(body[:30])
        assert slow.recv(100) == b""  # closed
    with socket.create_connection(("127.0.0.1", port), 20) as silent:
        assert silent.recv(100) == b""
    assert ask(port, Asked("/healthz", **GET)).status == 200


def test_clients_that_disconnect_leave_nothing_behind(start, digits):
    port, service = start()
    model = service.models.find("digits")
    content = ask_npy(digits.X[:50]).encode("localhost")
    for end in (1, 100, len(content) // 2, len(content)):
        with socket.create_connection(("127.0.0.1", port)) as gone:
            gone.sendall(content[:end])
    assert assertions(ask(port, ask_npy(digits.X[:5]))) == expected(digits, digits.X[:5])
    wait_until(lambda: model.batcher.waiting == 0)


class Gate:
    """Holds all batches back until it is opened."""

    def __init__(self, service, monkeypatch):
        self.opened, self.entered = threading.Event(), threading.Event()
        model = service.models.find("digits")
        assess = model.batcher._assess

        async def wait(rows, wanted):
            self.entered.set()
            await asyncio.to_thread(self.opened.wait, 30)
            return await assess(rows, wanted)

        monkeypatch.setattr(model.batcher, "_assess", wait)
        self.batcher = model.batcher


def test_too_many_are_told_to_come_back_and_the_others_are_answered_right(
    start, digits, monkeypatch
):
    port, service = start(most_rows=10, most_waiting=20, batch_rows=64)
    gate = Gate(service, monkeypatch)
    parts = [digits.X[3 * i : 3 * i + 3] for i in range(12)]
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(ask, port, ask_npy(part)) for part in parts]
        wait_until(lambda: sum(each.done() for each in asked) == 6)  # 6 of 12 do not fit
        assert gate.batcher.waiting <= 20
        gate.opened.set()
        told = [each.result() for each in asked]
    refused = [each for each in told if each.status == 429]
    assert len(refused) == 6
    assert all(int(each.headers["retry-after"]) >= 1 for each in refused)
    for part, each in zip(parts, told, strict=True):
        if each.status == 200:
            assert assertions(each) == expected(digits, part)


def test_joined_requests_get_their_own_answers_and_one_bad_one_harms_none(
    start, digits, monkeypatch
):
    port, service = start()
    gate = Gate(service, monkeypatch)
    joined = []
    assess = gate.batcher._assess

    async def note(rows, wanted):
        joined.append(len(rows))
        return await assess(rows, wanted)

    monkeypatch.setattr(gate.batcher, "_assess", note)
    rows = digits.X
    asked = [ask_npy(rows[i : i + 2]) for i in range(0, 20, 2)]
    asked += [ask_json(rows[i : i + 2].tolist()) for i in range(20, 30, 2)]
    asked += [ask_v2(rows[30:32]), ask_npy(rows[32:34].astype(np.float32))]
    asked += [ask_npy(rows[34:36], query="?evidence=true"), ask_npy(rows[36:38, :63])]
    with ThreadPoolExecutor(1 + len(asked)) as pool:
        first = pool.submit(ask, port, ask_npy(rows[:1]))
        gate.entered.wait(30)
        others = [pool.submit(ask, port, each) for each in asked]
        wait_until(lambda: gate.batcher.waiting == 1 + 2 * len(asked))
        gate.opened.set()
        assert assertions(first.result()) == expected(digits, rows[:1])
        told = [each.result() for each in others]
    assert max(joined) >= 30  # of one form, together
    assert told[-1].status == 422
    assert told[-4].json()["outputs"][1]["data"] == expected(digits, rows[30:32])
    for i, each in enumerate(told[:15]):
        assert assertions(each) == expected(digits, rows[2 * i : 2 * i + 2])
    assert assertions(told[-3]) == expected(digits, rows[32:34])
    assert assertions(told[-2]) == expected(digits, rows[34:36])


def test_an_answer_that_takes_too_long_is_504_and_the_next_is_right(start, digits, monkeypatch):
    port, service = start(timeout=0.2)
    gate = Gate(service, monkeypatch)
    assert ask(port, ask_npy(digits.X[:2])).status == 504
    gate.opened.set()
    wait_until(lambda: gate.batcher.waiting == 0)
    assert assertions(ask(port, ask_npy(digits.X[:2]))) == expected(digits, digits.X[:2])


@pytest.mark.parametrize("required", [True, False])
def test_a_full_disk_withholds_answers_unless_told_otherwise(start, digits, tmp_path, required):
    path = tmp_path / "audit.db"
    port, service = start(audit=str(path), audit_required=required)
    asked = ask_npy(digits.X[:50])
    assert ask(port, asked).status == 200
    writer = service.audit.journal._writer
    (n_pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count = {n_pages}")  # until the journal opens the file anew
    told = ask(port, asked)
    if required:
        assert told.status == 503
        assert "recorded" in told.json()["error"]
        assert int(told.headers["retry-after"]) > 0
    else:
        assert assertions(told) == expected(digits, digits.X[:50])
        assert metric(port, "iknow_unrecorded_answers_total") == 50
    assert ask(port, asked).status == 200
    with sqlite3.connect(path) as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)


def test_a_request_that_outlives_its_model_is_answered(start, digits, monkeypatch):
    """A bundle is replaced while an answer about the old one is under way."""
    port, service = start()
    gate, model = Gate(service, monkeypatch), service.models.find("digits")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, port, ask_npy(digits.X[:3]))
        gate.entered.wait(30)
        model.watcher.close()
        gate.opened.set()
        assert assertions(asked.result()) == expected(digits, digits.X[:3])
