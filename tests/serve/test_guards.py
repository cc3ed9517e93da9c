"""Attacks on the real server by what is no body, by bodies that unpack, and by clients that stall:
it holds little, answers in a sentence where it can, and closes.
"""

import json
import socket
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.service.asking import ask_json, ask_npy
from benchmarks.service.wire import Asked, Wire
from iknow.serve import server
from iknow.serve.bodies import WIDEST, ByteBudget, read_json, unpacked_size
from iknow.serve.schema import AssessRequest, ChangeRequest, Refusal, Relabel
from iknow.serve.service import check_change
from iknow.serve.settings import Settings
from iknow.serve.tokens import read_tokens
from tests.conditions import wait_until

GET = {"method": "GET", "kind": None}
POST = b"POST /v1/models/digits/assess HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "many headers": (b"GET /healthz HTTP/1.1\r\n", b"a: b\r\n"),
    "headers of some length": (b"GET /healthz HTTP/1.1\r\n", b"a: " + b"b" * 1000 + b"\r\n"),
    "a header line": (b"GET /healthz HTTP/1.1\r\na: ", b"b" * 1000),
    "the name of a header": (b"GET /healthz HTTP/1.1\r\n", b"b" * 1000),
    "a target": (b"GET /", b"b" * 1000),
    "trailers": (CHUNKED + b"0\r\n", b"a: b\r\n"),
    "a trailer line after a large chunk": (
        CHUNKED + b"%x\r\n%s\r\n0\r\na: " % (1 << 20, b" " * (1 << 20)),
        b"b" * 1000,
    ),
    "extensions of a chunk": (CHUNKED + b"1;", b"b" * 1000),
    "extensions of many chunks": (CHUNKED, b"1;" + b"b" * 1000 + b"\r\n[\r\n"),
}


@pytest.fixture(scope="module")
def started(digits):
    from tests.serving import serve_in_thread

    with serve_in_thread({"digits": digits.classifier}) as found:
        yield found


def connect(running):
    port = int(running.url.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), 20)


def read_all(connection):
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@pytest.mark.parametrize("what", ENDLESS)
def test_what_is_no_body_has_an_end(started, what):
    start, part = ENDLESS[what]
    with connect(started) as connection:
        try:
            connection.sendall(start)
            for _ in range(64):  # far beyond all limits, and less than a socket may buffer
                connection.sendall(part * (8192 // len(part)))
        except (BrokenPipeError, ConnectionResetError):
            pass
        reply = read_all(connection)
    assert reply.startswith(b"HTTP/1.1 431 "), reply[:100]
    assert set(json.loads(reply.partition(b"\r\n\r\n")[2])) == {"error"}


def test_usual_heads_and_chunks_pass(started, digits):
    port = int(started.url.rpartition(":")[2])
    body = ask_json(digits.X[:50].tolist()).body
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in
                      (body[i : i + 7] for i in range(0, len(body), 7)))  # fmt: skip
    headers = (("X-Long", "y" * 50_000), *((f"X-{i}", "1") for i in range(200)))
    with Wire(port) as wire:
        assert wire.exchange(CHUNKED + chunks + b"0\r\na: b\r\n\r\n").status == 200
        assert wire.ask(Asked("/healthz", headers=headers, **GET)).status == 200


def test_only_so_many_requests_wait_on_a_connection(started):
    ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(started) as connection:
        connection.sendall(ask * 10)
        replies = b""
        while replies.count(b"HTTP/1.1 200") < 10:
            part = connection.recv(1 << 16)
            assert part
            replies += part
    with connect(started) as connection:
        connection.sendall(ask * 2000)
        assert read_all(connection).count(b"HTTP/1.1 200") < 2 * server.MOST_PIPELINED


def test_a_client_that_reads_nothing_is_not_waited_for(started, digits, monkeypatch):
    monkeypatch.setattr(server, "READ_SECONDS", 0.2)
    rows = np.resize(digits.X, (5000, 64))
    asked = ask_npy(rows, query="?exemplars=true&watch=false").encode("localhost")
    connections = started.server.server_state.connections
    with connect(started) as silent:
        with suppress(ConnectionError):  # it may be closed while we still ask
            for _ in range(12):
                silent.sendall(asked)  # answered by megabytes, which fill all buffers
                if not connections:
                    break
        wait_until(lambda: not connections, seconds=60)


def test_a_refused_body_that_drips_is_not_waited_for(started, monkeypatch):
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    with connect(started) as slow:
        slow.sendall(POST.replace(b"digits", b"nobody") + b"Content-Length: 1000000\r\n\r\n")
        assert slow.recv(1 << 16).startswith(b"HTTP/1.1 404")

        def is_closed():
            try:
                slow.sendall(b" ")
            except (BrokenPipeError, ConnectionResetError):
                return True
            return False

        wait_until(is_closed)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-300, 300) | st.floats(allow_nan=False)
    | st.text(max_size=20),
    lambda values: st.lists(values) | st.dictionaries(st.text(max_size=5), values),
    max_leaves=20,
)  # fmt: skip
PIECES = [b"[]", b"0", b"-6", b"1.5", b'"ab"', b"{}", b'{"a":1}', b"[[[]]]", b"[1]", b'"\xc3\xa9"',
          b'{"":{"":{}}}', '"xxxxxxxxxxxxxxxxxxxx\U0001f600"'.encode(), b'"\\ud83d\\ude00xxxx"',
          b'{"abcdefghijklmnopqrstuvwxyzabcdefghijkl":1}', b"12345678901234567890123"]  # fmt: skip


def weigh(value, known):
    """Bytes of plain values and all in them, each object once."""
    if id(value) in known:
        return 0
    known.add(id(value))
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    keys = value if isinstance(value, dict) else ()
    collected = 16 if isinstance(value, dict | list) else 0
    return sys.getsizeof(value) + collected + sum(weigh(each, known) for each in (*parts, *keys))


@pytest.mark.parametrize("piece", PIECES)
def test_json_is_charged_for_what_it_unpacks_to(piece):
    text = b'{"rows":[' + b",".join([piece] * 20_000) + b"]}"
    rows = read_json(text, AssessRequest, ByteBudget(1 << 40)).rows
    assert weigh(rows, set()) + 8 * len(rows) < unpacked_size(text) <= WIDEST * len(text)
    with pytest.raises(Refusal) as refused:
        read_json(text, AssessRequest, ByteBudget(unpacked_size(text) - 1))
    assert refused.value.status == 413
    budget = ByteBudget(unpacked_size(text) + 100)
    budget.take(200)
    with pytest.raises(Refusal) as refused:
        read_json(text, AssessRequest, budget)
    assert (refused.value.status, budget.held) == (429, 200)


@given(st.lists(VALUES, min_size=1, max_size=20))
def test_any_json_is_charged_for_what_it_unpacks_to(values):
    text = json.dumps({"rows": values * 20}).encode()
    rows = read_json(text, AssessRequest, ByteBudget(1 << 40)).rows
    assert weigh(rows, set()) < unpacked_size(text) <= WIDEST * len(text)


BOMBS = """
import json, resource
from iknow.serve.bodies import ByteBudget, decode
from iknow.serve.oip import read_request
from iknow.serve.schema import JSON, Refusal
long, budget = "x" * 100_000, ByteBudget(1 << 30)
rows = [
    [[long], *([["b"]] * 2000)], [[1, long], *([[1, 2]] * 2000)],
    [{"a": long}, *([{"a": 1}] * 2000)],
]
tensor = {"name": "a", "shape": [2001], "datatype": "INT64", "data": [long, *([1] * 2000)]}
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20),) * 2)
for work in (
    *(lambda each=each: decode(json.dumps({"rows": each}).encode(), JSON, 10_000, budget)
      for each in rows),
    lambda: read_request(json.dumps({"inputs": [tensor]}).encode(), None, 10_000, budget),
    lambda: decode(
        json.dumps({"inputs": {"a": [long, *["b"] * 2000]}}).encode(), JSON, 10_000, budget
    ),
):
    try:
        print(len(work()))
    except Refusal as error:
        print(error.status)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
def test_one_long_text_does_not_make_all_texts_long():
    """An array of texts has the width of the longest: here it would take 800 MB."""
    done = subprocess.run([sys.executable, "-c", BOMBS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["422", "422", "422", "422", "2001"]


def test_every_request_but_probes_and_the_page_needs_a_token(running, digits, tmp_path):
    (tmp_path / "tokens").write_text("one labels 0123456789abcdef\ntwo assess fedcba9876543210\n")
    settings = Settings(tokens=read_tokens(tmp_path / "tokens"))
    server = running({"digits": digits.classifier}, settings)
    with Wire(int(server.url.rpartition(":")[2])) as wire:

        def status(path, token=None):
            headers = () if token is None else (("Authorization", f"Bearer {token}"),)
            return wire.ask(Asked(path, headers=headers, **GET)).status

        description = json.loads(
            wire.ask(
                Asked(
                    "/openapi.json", headers=(("Authorization", "Bearer 0123456789abcdef"),), **GET
                )
            ).body
        )
        open_paths = {"/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"}
        for path, methods in description["paths"].items():
            if "get" in methods:
                expected = 200 if path in open_paths else 401
                assert status(path.format(name="digits", version="1")) == expected, path
        assert status("/openapi.json") == 401
        assert status("/v2", "0123456789abcdef") == 200  # any token
        assert status("/v2/models/digits/ready", "0123456789abcdef") == 403
        assert status("/v2/models/digits/ready", "fedcba9876543210") == 200
        assert status("/") == 200


@pytest.mark.parametrize(
    ("classes", "label", "fits"),
    [([0, 1], True, False), ([0, 1], 1, True), ([0, 1], 2, True), ([0, 1], 1.0, True),
     ([False, True], 1, False), ([False, True], True, True), (["a", "b"], True, False),
     (["a", "b"], "c", True), ([0, 1], float("inf"), False)],
)  # fmt: skip
def test_a_flag_is_no_number_of_a_class(classes, label, fits):
    for change in (ChangeRequest(relabel=[Relabel(3, label)]),):
        if fits:
            check_change(change, classes, 10)
        else:
            with pytest.raises(Refusal) as refused:
                check_change(change, classes, 10)
            assert refused.value.status == 422
