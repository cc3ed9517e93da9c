"""A tiny server with the page and a status, made by the live state of a small digit reader."""

import http.server
import json
import threading
import warnings
from contextlib import contextmanager
from datetime import UTC, datetime

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from iknow import EpistemicClassifier, as_image
from iknow.serve.activity import Activity
from iknow.serve.answers import Portrayer
from iknow.serve.page import HEADERS, page_files

HOSTILE = "<img src=x onerror=\"document.title='run'\">"
NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC).timestamp()
DIGITS = load_digits()
X = DIGITS.data / 16
LABELS = np.array(["zero", "one", "two", "three", "four", HOSTILE, "six", "seven", "eight", "nine"])
Y = LABELS[DIGITS.target]
TEST = slice(800, None)


def read_digits():
    """A digit reader with levels, and those of the samples it was tuned on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it need not be good
        model = MLPClassifier((16,), max_iter=25, random_state=0).fit(X[:400], Y[:400])
    reader = EpistemicClassifier(model).fit(X[:400], Y[:400])
    reader.tune(X[400:800], Y[400:800], coverage=0.8)
    return reader, reader.assess(X[400:800]).level


class Clock:
    def __init__(self, now):
        self.now = now

    def __call__(self):
        return self.now


def make_live(reader, reference, clock):
    threshold = reader.selection_.level
    live = Activity(
        reader.classes_, ["input", "hidden1"],
        reference=reference, threshold=threshold, clock=clock,
    )  # fmt: skip
    live.portrayer = Portrayer(as_image(8, 8, limits=(0, 1)), clock=clock)
    return live


def converse(live, reader, clock, n_requests=8, noise=0.0, seed=0):
    """Requests of some rows every few seconds, a few of them strange; returns them by id."""
    rng, requests = np.random.default_rng(seed), {}
    tests = X[TEST]
    for step in range(n_requests):
        clock.now += 5
        rows = rng.integers(len(tests), size=rng.integers(4, 30))
        inputs = np.clip(tests[rows] + noise * rng.normal(size=(len(rows), 64)), 0, 1)
        if step % 7 == 0:
            inputs[:2] = rng.random(64), np.full(64, np.nan)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assessment = reader.assess(inputs)
        seconds = float(0.004 * np.exp(0.4 * rng.normal()))
        portraits = live.portrayer.portray(assessment, inputs)
        live.add(assessment.answers, seconds, f"{seed}-{step}", portraits)
        requests[f"{seed}-{step}"] = inputs
    return requests


def strengths(logs):
    """Evidence as the service tells it, each beside its threshold."""
    return {name: {"evidence": log, "threshold": 2.3} for name, log in logs.items()}


QUIET = {
    "alarmed": False, "since": None, "evidence": 0.42, "threshold": 2.0, "n_samples": 2431,
    "by_class": strengths({"zero": -0.2, HOSTILE: 0.4, "nine": 0.1}),
    "by_layer": strengths({"input": 0.3, "hidden1": -0.1}),
    "reference": 600, "text": "Nothing suggests that the inputs have changed.",
}  # fmt: skip
RINGING = {
    **QUIET, "alarmed": True, "since": 2502, "evidence": 7.3, "n_samples": 3120,
    "by_class": strengths({"zero": 0.2, HOSTILE: 5.1, "nine": 2.4}),
    "by_layer": strengths({"input": 7.3, "hidden1": 1.2}),
    "text": f"The inputs changed, most in layer input and class {HOSTILE}.",
}  # fmt: skip
ACCURACY = {
    "n": 310, "estimate": 0.9871, "low": 0.962, "high": 0.997, "certified": 0.97, "alarmed": False,
    "text": "What it knows is as right as was certified.",
}  # fmt: skip


def status_of(live, alarm=None, accuracy=None, models=("digits",)):
    server = {
        "version": "0.5.0", "started": "2026-05-04T08:00:00Z", "uptime": 14_460.0, "ready": True,
        "queue": {"waiting": 0, "most": 1024}, "audit": {"ok": True, "records": 2431},
    }  # fmt: skip
    about = {
        "version": "3", "bundle": "9f2c" * 16, "accuracy": accuracy,
        "promises": ["At level 0.13 and above at least 97% are right, with 95% confidence."],
    }  # fmt: skip
    found = [{"name": name, **about, "live": live.to_dict(), "alarm": alarm} for name in models]
    return {"server": server, "models": found}


class Server(http.server.ThreadingHTTPServer):
    """Serves the page and a status; a test changes `status` and `token` as it likes."""

    daemon_threads = True
    status = None
    token = None
    asked = 0


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        if self.path == "/v1/status":
            return self._status()
        if self.path not in page_files():
            return self._send(404, b"", "text/plain")
        return self._send(200, *page_files()[self.path])

    def _status(self):
        self.server.asked += 1
        if self.server.token and self.headers["Authorization"] != f"Bearer {self.server.token}":
            return self._send(401, b'{"error": "this needs a token; got none or a wrong one"}')
        if self.server.status is None:
            return self._send(503, b'{"error": "the server is shutting down"}')
        return self._send(200, json.dumps(self.server.status, allow_nan=False).encode())

    def _send(self, code, content, content_type="application/json"):
        self.send_response(code)
        for name, value in {**HEADERS, "Content-Type": content_type}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@contextmanager
def serving():
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
