"""The client against the real server, whose answers must be those of the classifier itself; and
against a socket that plays whatever a broken server or a proxy may do.
"""

import json
import os
import pickle
import socket
import ssl
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from iknow import Assertion, Client, EpistemicClassifier, IknowError
from iknow.errors import InputError, ServiceError
from iknow.serve.client import ServedAnswer
from iknow.serve.settings import Settings
from iknow.serve.tokens import read_tokens

FORMS = {
    "array": lambda X: X,
    "column-major array": np.asfortranarray,
    "big-endian array": lambda X: X.astype(">f8"),
    "every second of an array": lambda X: np.repeat(X, 2, axis=0)[::2],
    "lists": lambda X: X.tolist(),
    "tuple of arrays": tuple,
    "array of objects": lambda X: X.astype(object),
    "dicts": lambda X: pd.DataFrame(X).rename(columns=str).to_dict("records"),
    "pandas": lambda X: pd.DataFrame(X, index=np.arange(len(X)) + 7),
    "polars": pl.DataFrame,
    "Arrow table": lambda X: pa.table({f"p{i}": X[:, i] for i in range(X.shape[1])}),
}


@pytest.fixture
def client(url):
    with Client(url) as made:
        yield made


@pytest.mark.parametrize("form", FORMS)
def test_answers_are_those_of_the_classifier_in_every_form(client, digits, form):
    X = digits.X[:12]
    expected = digits.classifier.assess(X)
    answers = client.assess("digits", FORMS[form](X))
    np.testing.assert_array_equal(answers.belief, expected.belief)
    np.testing.assert_array_equal(answers.assertion, expected.assertion)
    np.testing.assert_array_equal(answers.reason, expected.reason)
    np.testing.assert_array_equal(answers.level, expected.level)


def test_tables_may_miss_numbers_but_not_name_a_column_twice(client, digits):
    X = digits.X[:3].copy()
    X[1, 0] = np.nan
    expected = digits.classifier.assess(X)
    names = [str(i) for i in range(64)]
    for frame in (
        pd.DataFrame(X),
        pl.DataFrame(X, schema=names),
        pa.table(dict(zip(names, X.T, strict=True))),
    ):
        answers = client.assess("digits", frame)
        assert answers.belief.tolist() == expected.belief.tolist()
        np.testing.assert_array_equal(answers.reason, expected.reason)
    frame = pd.DataFrame(X)
    for twice in (
        frame.rename(columns={1: "0"}),
        frame.rename(columns={1: 0}),
        pa.Table.from_arrays([X[:, 0]] * 2, names=["a", "a"]),
    ):
        with pytest.raises(InputError, match="two columns"):
            client.assess("digits", twice)


def test_a_missing_number_makes_its_row_invalid_and_no_other(client, digits):
    X = digits.X[:3].copy()
    X[1, 5] = np.nan
    answers = client.assess("digits", X)
    assert [answer.reason.name == "INVALID" for answer in answers] == [False, True, False]
    assert answers[1].belief is None
    assert answers.belief.dtype == object


def test_texts(serving):
    texts, y = ["sun and beach", "snow and ice", "sun sea", "cold snow"] * 5, [1, 0, 1, 0] * 5
    pipeline = make_pipeline(TfidfVectorizer(), LogisticRegression())
    ec = EpistemicClassifier(pipeline.fit(texts, y), progress=False).fit(texts, y)
    ec.tune(texts, coverage=0.9)
    client = Client(serving({"weather": ec}))
    for form in (list, tuple, np.array, lambda each: np.array(each, dtype=object)):
        assert client.assess("weather", form(texts[:4])).belief.tolist() == [1, 0, 1, 0]


def test_evidence_and_exemplars_come_if_asked_for(client, digits):
    plain = client.assess("digits", digits.X[:2])
    assert plain.evidence is None
    assert plain[0].exemplars is None
    full = client.assess("digits", digits.X[:2], evidence=True, exemplars=True)
    layers = list(digits.classifier.neighborhoods_)
    assert [list(each) for each in full.exemplars] == [layers, layers]
    found = digits.classifier.assess(digits.X[:2])
    rows = found.evidence["input"].rows[1, found.belief_codes[1]]
    assert full[1].exemplars["input"] == rows[0]
    needed = digits.classifier.neighborhoods_["input"].quorum[0]
    assert full[1].evidence["input"]["for_row"] == rows[needed - 1]


def test_answers_are_a_sequence_and_a_table(client, digits):
    answers = client.assess("digits", digits.X[:30], request_id="my-id:1")
    assert (answers.model, answers.version, answers.request) == ("digits", "1", "my-id:1")
    assert len(answers) == len(list(answers)) == 30
    assert answers[-1] == answers[29] == answers[29:][0]
    assert isinstance(answers[0], ServedAnswer)
    assert type(answers[0].belief) is int
    with pytest.raises(IndexError):
        _ = answers[30]
    frame = answers.to_frame()
    assert frame.columns.tolist() == ["belief", "assertion", "reason", "level", "probability"]
    expected = digits.classifier.assess(digits.X[:30]).probability
    assert answers.probability.tolist() == expected.tolist()
    assert [each.probability for each in answers] == expected.tolist()
    assert (frame["assertion"] >= "IK").tolist() == (answers.assertion == Assertion.IK).tolist()
    assert repr(answers).startswith("ServedAnswers of digits 1: IK ")


def test_what_is_served(client, digits):
    (model,) = client.models()
    assert model == client.model("digits")
    assert model.classes == tuple(range(10))
    assert (model.name, model.version, model.n_features) == ("digits", "1", 64)
    assert client.ready()
    client.wait_until_ready(timeout=5)
    assert client.status()["server"]["ready"] is True
    assert [(each.name, each.changed, each.error) for each in client.reload()] == [
        ("digits", False, None)
    ]


def test_labels_are_counted_once(serving, digits, tmp_path):
    client = Client(serving({"digits": digits.classifier}, Settings(audit=str(tmp_path / "a.db"))))
    answers = client.assess("digits", digits.X[:40])
    known = int((answers.assertion == Assertion.IK).sum())
    truth = answers.label(digits.y[:40])
    learned = client.labels(truth)
    assert (learned.counted, learned.others, learned.repeated) == (known, 40 - known, 0)
    assert client.labels(truth).repeated == 40
    assert client.labels([{"request": "nobody", "row": 0, "label": 1}]).unknown == 1
    assert answers.label([None] * 39 + [3]) == [{"request": answers.request, "row": 39, "label": 3}]
    with pytest.raises(InputError, match="expected 40 labels"):
        answers.label([1])


@pytest.mark.parametrize(
    ("ask", "status", "message"),
    [
        (lambda c: c.assess("cats", [[0.0]]), 404, "cats"),
        (lambda c: c.assess("digits/../x", [[0.0]]), 404, "."),
        (lambda c: c.assess("digits", [[0.0] * 64], version="7"), 404, "7"),
        (lambda c: c.assess("digits", [[1.0, 2.0]]), 422, "64 features"),
        (lambda c: c.assess("digits", [[1.0], [1.0, 2.0]]), 422, "row 1 has 2"),
        (lambda c: c.assess("digits", np.zeros((0, 64))), 422, "no rows"),
        (lambda c: c.assess("digits", []), 422, "empty"),
        (lambda c: c.assess("digits", [1.0, 2.0]), 422, "row for each"),
        (lambda c: c.labels([{"request": "a", "row": 0, "label": 1}]), 409, "--audit"),
        (lambda c: c.model("dogs"), 404, "dogs"),
    ],
)
def test_a_refusal_tells_its_status_and_its_reason(client, ask, status, message):
    with pytest.raises(ServiceError, match=message) as caught:
        ask(client)
    assert caught.value.status == status
    assert isinstance(caught.value, IknowError)
    assert client.ready()  # the connection is as good as before


@pytest.mark.parametrize(
    "X",
    [
        "a text", b"bytes", None, 7, np.zeros(3, dtype="M8[s]"), np.zeros(3, dtype=complex),
        [{"a": object()}], {"a": {1, 2}}, pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pd.DataFrame({"a": [object()]}), (row for row in [[1]]), pd.DataFrame,
    ],
    ids=lambda X: type(X).__name__,
)  # fmt: skip
def test_what_is_no_sample_is_told_before_anything_is_sent(X):
    with pytest.raises(InputError):
        Client("http://127.0.0.1:9").assess("digits", X)


def test_a_body_that_is_too_large_is_refused_and_the_client_goes_on(serving, digits):
    client = Client(serving({"digits": digits.classifier}, Settings(most_body=1 << 16)))
    for _ in range(3):
        with pytest.raises(ServiceError, match="65,536 bytes") as caught:
            client.assess("digits", np.zeros((20_000, 64)))
        assert caught.value.status == 413
    assert len(client.assess("digits", digits.X[:5])) == 5


def test_tokens_and_their_scopes(serving, digits, monkeypatch):
    monkeypatch.setenv("IKNOW_TOKENS", "ann assess 0123456789abcdef;ops admin fedcba9876543210")
    settings = Settings(tokens=read_tokens(None))
    url = serving({"digits": digits.classifier}, settings)
    with pytest.raises(ServiceError, match="a token is needed") as caught:
        Client(url).models()
    assert caught.value.status == 401
    with pytest.raises(ServiceError, match="takes the scope admin") as caught:
        Client(url, "0123456789abcdef").status()
    assert caught.value.status == 403
    monkeypatch.setenv("IKNOW_URL", url)
    monkeypatch.setenv("IKNOW_TOKEN", "fedcba9876543210")
    assert Client().status()["server"]["ready"] is True
    assert len(Client(token="0123456789abcdef").models()) == 1
    assert "fedc" not in repr(Client())


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:8000", "ftp://a", "http://", "http://a:99999", "http://a?x=1", "http://a b",
     "http://user:secret@a", "http://[::1", "http://a/\r\nX: y", 5],
)  # fmt: skip
def test_a_url_that_is_none_is_refused(url, monkeypatch):
    monkeypatch.setenv("IKNOW_URL", "also none")
    with pytest.raises(InputError) as caught:
        Client(url)
    assert "secret" not in str(caught.value)


def test_a_token_goes_nowhere_without_tls_but_to_this_machine():
    for url in ("http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1", "https://a.example"):
        Client(url, "secret-token")
    for url in ("http://a.example", "http://10.0.0.1", "http://localhost.evil.example"):
        with pytest.raises(InputError, match="without TLS") as caught:
            Client(url, "secret-token")
        assert "secret" not in str(caught.value)
        Client(url, "secret-token", insecure=True)
        Client(url)
    for token in ("two words", "line\nbreak", "ü", 5):
        with pytest.raises(InputError, match="visible ASCII"):
            Client("https://a.example", token)


@pytest.mark.parametrize("name", ["", ".", "..", None, 5, "\ud800"])
def test_a_name_that_cannot_stand_in_a_path_is_refused(name):
    with pytest.raises(InputError):
        Client().model(name)


@pytest.mark.parametrize("given", [{"timeout": 0}, {"timeout": None}, {"retries": -1}])
def test_settings_are_checked(given):
    with pytest.raises(InputError, match=next(iter(given))):
        Client("http://a", **given)


def test_many_threads_share_a_client(client, digits):
    expected = digits.classifier.assess(digits.X[:64])

    def ask(i):
        answers = client.assess("digits", digits.X[i : i + 3], request_id=f"r{i}")
        return answers.request == f"r{i}" and answers.belief[0] == expected.belief[i]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(64)))


def test_a_service_that_is_not_there():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    client = Client(f"http://127.0.0.1:{port}")
    assert not client.ready()
    with pytest.raises(ServiceError, match="cannot be reached") as caught:
        client.models()
    assert caught.value.status is None
    with pytest.raises(ServiceError, match=r"not ready after 0 s: .*cannot be reached"):
        client.wait_until_ready(timeout=0)


def test_tls_is_verified(running, digits, tmp_path):
    cert, key = str(tmp_path / "c.pem"), str(tmp_path / "k.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-out", cert, "-keyout", key],
        check=True, capture_output=True,
    )  # fmt: skip
    found = running({"digits": digits.classifier}, certificate=cert, key=key)
    assert found.url.startswith("https://")
    with pytest.raises(ServiceError, match="CERTIFICATE_VERIFY_FAILED"):
        Client(found.url).ready()
    trusting = Client(found.url, context=ssl.create_default_context(cafile=cert))
    assert len(trusting.assess("digits", digits.X[:3])) == 3


class Scripted:
    """A server that plays a script: for each request the bytes to answer, "close" to end the
    connection without a word, or "late" to end it after the answer before. It counts requests.
    """

    def __init__(self, script):
        self.script, self.requests = list(script), []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def _play(self):
        while self.script:
            connection, _ = self._socket.accept()
            with connection, connection.makefile("rb") as stream:
                while self.script and (head := self._read(stream)):
                    self.requests.append(head)
                    said = self.script.pop(0)
                    if said == "close":
                        break
                    connection.sendall(said)
                    if self.script and self.script[0] == "late":
                        self.script.pop(0)
                        break

    @staticmethod
    def _read(stream):
        head = b""
        while (line := stream.readline()) not in (b"", b"\r\n"):
            head += line
        length = [line for line in head.lower().splitlines() if line.startswith(b"content-length")]
        stream.read(int(length[0].split(b":")[1]) if length else 0)
        return head.decode()

    def close(self):
        self._socket.close()
        self._thread.join()


def answer(status, value, **headers):
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {each}" for name, each in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


MODELS = answer(200, {"models": []})
BUSY = {"error": "busy"}


@pytest.fixture
def play():
    made = []

    def start(*script):
        made.append(Scripted(script))
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.mark.parametrize("status", [429, 503])
def test_what_was_refused_for_the_moment_is_sent_again(play, status):
    server = play(*[answer(status, BUSY, Retry_After=0)] * 2, MODELS)
    assert Client(server.url).models() == ()
    assert len(server.requests) == 3


def test_nothing_is_sent_again_without_end(play):
    server = play(*[answer(429, BUSY, Retry_After=0)] * 2)
    with pytest.raises(ServiceError, match="429: busy") as caught:
        Client(server.url, retries=1).models()
    assert (caught.value.status, caught.value.retry_after) == (429, 0)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "said",
    [
        answer(429, BUSY),
        answer(503, BUSY, Retry_After=31),
        answer(503, BUSY, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT"),
        answer(503, BUSY, Retry_After=-1),
        answer(500, BUSY, Retry_After=0),
        answer(504, BUSY, Retry_After=0),
    ],
)
def test_all_else_is_sent_once(play, said):
    server = play(said)
    with pytest.raises(ServiceError, match="busy"):
        Client(server.url, timeout=30).models()
    assert len(server.requests) == 1


def test_a_kept_connection_that_ended_is_replaced(play):
    server = play(MODELS, "late", MODELS)
    client = Client(server.url)
    assert client.models() == client.models() == ()
    assert len(server.requests) == 2


def test_a_request_whose_kept_connection_ends_without_a_word_is_sent_again(play):
    server = play(MODELS, "close", MODELS)
    client = Client(server.url)
    assert client.models() == client.models() == ()
    assert len(server.requests) == 3


def test_a_request_on_a_new_connection_is_sent_once(play):
    server = play("close")
    with pytest.raises(ServiceError, match="cannot be reached"):
        Client(server.url).models()
    assert len(server.requests) == 1


def test_half_an_answer_is_an_error_and_nothing_is_sent_again(play):
    server = play(MODELS, answer(200, b'{"models": [')[:-3], "late")
    client = Client(server.url)
    client.models()
    with pytest.raises(ServiceError, match="without sending complete message body"):
        client.models()
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (answer(502, b"<html>Bad \x1b[31mgateway"), r"status 502: <html>Bad \\x1b\[31mgateway"),
        (answer(302, b"", Location="http://evil.example"), "status 302"),
        (answer(200, b"<html>"), "is it `iknow serve`"),
        (answer(200, {"models": [{"name": 1}]}), "is it `iknow serve`"),
        (answer(200, {"models": 5}), "is it `iknow serve`"),
        (answer(200, b"[" * 100_000), "is it `iknow serve`"),
        (answer(400, {"error": ["no text"]}), "status 400"),
        (b"nonsense\r\n\r\n", "cannot be reached"),
    ],
)
def test_what_no_service_says_is_an_error_in_one_sentence(play, said, message):
    server = play(said, "late")
    with pytest.raises(ServiceError, match=message):
        Client(server.url).models()


def test_a_server_that_says_nothing_is_left_after_the_timeout():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServiceError, match=r"did not answer within 0.1 s"):
            Client(url, timeout=0.1).models()


def test_a_reason_of_a_newer_service_is_told(play):
    said = {"model": "a", "version": "1", "bundle": "", "request": "r", "answers": [
        {"belief": 1, "assertion": "IK", "reason": "TELEPATHY", "level": 0.5}]}  # fmt: skip
    with pytest.raises(ServiceError, match="TELEPATHY"):
        Client(play(answer(200, said)).url).assess("a", [[1.0]])


class Counting(ThreadingHTTPServer):
    """A server without models that counts connections."""

    daemon_threads = True
    connections = 0

    def process_request(self, *args):
        self.connections += 1
        super().process_request(*args)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.wfile.write(MODELS)

    def log_message(self, *_):
        pass


def test_connections_are_kept_and_a_process_does_not_use_those_of_its_parent(monkeypatch):
    with Counting(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,)).start()
        client = Client(f"http://127.0.0.1:{server.server_port}")
        for _ in range(3):
            assert client.models() == ()
        assert server.connections == 1
        parent = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: parent + 1)  # as a child finds it
        assert client.models() == client.models() == ()
        assert server.connections == 2
        client.close()
        client._kept[parent].close()
        server.shutdown()


def test_a_client_where_httpx2_is_absent_names_what_is_missing(run_without):
    code = """
import iknow
try:
    iknow.Client()
except iknow.errors.MissingExtraError as error:
    print(error)
"""
    assert "iknow[client]" in run_without({"httpx2"}, code)


def test_the_error_crosses_processes():
    error = pickle.loads(pickle.dumps(ServiceError("busy", 429, 3.0)))
    assert (str(error), error.status, error.retry_after) == ("busy", 429, 3.0)
