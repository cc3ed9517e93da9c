"""Against a real server on loopback that fails first."""

import hashlib
import hmac
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from iknow.errors import InputError
from iknow.service.webhook import Webhook

SECRET = "a secret of the test"


class Receiver:
    """A server that gives the answers it is told to, then 200; `await_requests` waits for them."""

    def __init__(self):
        self.answers, self.requests = [], []
        self.changed = threading.Condition()
        self.may_answer = threading.Event()
        self.may_answer.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.may_answer.wait(20)
                with receiver.changed:
                    receiver.requests.append((self.path, dict(self.headers), body))
                    answer = receiver.answers.pop(0) if receiver.answers else 200
                    receiver.changed.notify_all()
                self.send_response(answer)
                if answer == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?key=1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def await_requests(self, n):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.requests) >= n, 20)
        return self.requests

    def close(self):
        self.may_answer.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver():
    found = Receiver()
    yield found
    found.close()


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def hook(receiver, pauses):
    found = Webhook(
        receiver.url, SECRET, clock=lambda: 1767225600.9, pause=pauses.append, chance=lambda: 0.5
    )
    yield found
    found.close()


def test_a_payload_arrives_signed_after_failures(receiver, hook, pauses):
    receiver.answers = [500, 503, 429]
    hook.send({"what": "drift", "class": "größer"})
    hook.close()
    requests = receiver.await_requests(4)
    assert len(requests) == 4
    assert pauses == [0.375, 0.75, 1.5]  # twice as long each time, a quarter less by chance
    for path, headers, body in requests:
        assert path == "/hook?key=1"
        assert json.loads(body) == {"what": "drift", "class": "größer"}
        signed = headers["X-Iknow-Timestamp"].encode() + b"." + body
        expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
        assert headers["X-Iknow-Signature"] == f"v1={expected}"
        assert headers["X-Iknow-Timestamp"] == "1767225600"
    assert len({headers["X-Iknow-Delivery"] for _, headers, _ in requests}) == 1
    assert hook.status() | {"last_error": ""} == {
        "sent": 1, "failed": 0, "dropped": 0, "retried": 3, "waiting": 0, "last_error": "",
    }  # fmt: skip


@pytest.mark.parametrize("answer", [302, 400, 401, 404])
def test_some_answers_are_final_and_redirects_are_not_followed(receiver, hook, pauses, answer):
    receiver.answers = [answer]
    hook.send({"n": 1})
    hook.send({"n": 2})
    hook.close()
    assert [json.loads(body)["n"] for _, _, body in receiver.requests] == [1, 2]
    assert {path for path, _, _ in receiver.requests} == {"/hook?key=1"}
    assert pauses == []
    assert (hook.status()["failed"], hook.status()["sent"]) == (1, 1)
    assert str(answer) in hook.status()["last_error"]


def test_it_gives_up_after_some_attempts_and_waits_no_longer_than_told(receiver, pauses):
    hook = Webhook(
        receiver.url, SECRET, attempts=5, longest=2, pause=pauses.append, chance=lambda: 0
    )
    receiver.answers = [500] * 5
    hook.send({})
    hook.close()
    assert pauses == [0.5, 1, 2, 2]
    assert len(receiver.requests) == 5
    assert hook.status()["failed"] == 1


def test_a_full_queue_drops_the_oldest(receiver):
    receiver.may_answer.clear()
    hook = Webhook(receiver.url, SECRET, most=3)
    for n in range(50):
        hook.send({"n": n})  # never blocks, though nobody answers
    assert hook.status()["waiting"] == 3
    receiver.may_answer.set()
    hook.close()
    seen = [json.loads(body)["n"] for _, _, body in receiver.requests]
    assert seen[-3:] == [47, 48, 49]
    assert hook.status()["dropped"] == 50 - len(seen)


def test_a_closed_hook_drops_and_does_not_hang(receiver):
    hook = Webhook(receiver.url, SECRET)
    hook.send({"n": 1})
    hook.close()
    hook.send({"n": 2})
    hook.close()
    assert hook.status()["dropped"] == 1
    assert len(receiver.requests) == 1
    Webhook(receiver.url, SECRET).close()  # without a thread


def test_closing_gives_up_on_a_receiver_that_keeps_failing(receiver):
    receiver.answers = [500] * 100
    hook = Webhook(receiver.url, SECRET, first=1000, longest=1000)
    for n in range(3):
        hook.send({"n": n})
    receiver.await_requests(1)
    hook.close(limit=0.01)
    assert hook.status()["waiting"] == 0
    assert hook.status()["failed"] + hook.status()["dropped"] == 3


def test_nobody_there(pauses):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hook = Webhook(f"http://127.0.0.1:{port}/", SECRET, attempts=3, pause=pauses.append)
    hook.send({})
    hook.close()
    assert hook.status()["failed"] == 1
    assert "refused" in hook.status()["last_error"]
    assert len(pauses) == 2


@pytest.mark.parametrize("drip", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: "])
def test_a_receiver_that_never_finishes_is_cut_off(drip):
    """It accepts, perhaps says a little, and then nothing: an attempt still ends."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        hook = Webhook(url, SECRET, attempts=1, timeout=0.1)
        hook.send({})
        connection, _ = server.accept()
        with connection:
            connection.sendall(drip)
            hook.close(limit=20)
    assert hook.status()["failed"] == 1


@pytest.mark.parametrize(
    "url",
    ["ftp://host/", "file:///etc/passwd", "host/path", "http://", "http://user:pw@host/", "",
     "http://host/a b", "http://host/\r\nX: y", "http://host:99999/", "http://host/#part", None,
     "http://höst/"],
)  # fmt: skip
def test_a_url_must_be_plain_http(url):
    with pytest.raises(InputError, match="like https://host/path"):
        Webhook(url, SECRET)


def test_a_payload_must_be_json(hook):
    for wrong in ({"x": float("nan")}, {"x": object()}, {"x": {1, 2}}):
        with pytest.raises(InputError, match="plain values for JSON"):
            hook.send(wrong)
    assert hook.status()["waiting"] == 0


def test_neither_keys_nor_secrets_are_shown():
    hook = Webhook("https://host/path?key=hidden", SECRET)
    assert repr(hook) == "Webhook('https://host')"
    with pytest.raises(InputError, match="secret"):
        Webhook("https://host/", "")


@pytest.mark.parametrize(
    "wrong", [{"most": 0}, {"attempts": 0}, {"timeout": 0}, {"first": -1}, {"longest": "x"}]
)
def test_wrong_limits_are_refused(wrong):
    with pytest.raises(InputError):
        Webhook("https://host/", SECRET, **wrong)
