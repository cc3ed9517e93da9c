"""The service over a real socket, against what the classifier itself says."""

from __future__ import annotations

import io
import json
import socket
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pytest

from iknow.serve.audit import open_journal, verify
from iknow.serve.settings import Settings
from iknow.serve.tokens import Tokens, read_tokens
from tests.conditions import wait_until


class Reply(NamedTuple):
    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(url: str, path: str, body: Any = None, method: str | None = None, **headers: str) -> Reply:
    """One request; a body that is no bytes is sent as JSON."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        headers.setdefault("Content-Type", "application/json")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method or ("GET" if body is None else "POST"), path, body, named)
    response = connection.getresponse()
    try:
        return Reply(response.status, response.headers, response.read())
    finally:
        connection.close()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def said_by(digits: Any, X: Any) -> list[dict[str, Any]]:
    found = digits.classifier.assess(X)
    return [
        {
            "belief": int(b),
            "assertion": a.name,
            "reason": r.name,
            "level": float(level),
            "probability": float(p),
        }
        for b, a, r, level, p in zip(
            found.belief, found.assertion, found.reason, found.level, found.probability, strict=True
        )
    ]


def test_answers_are_those_of_the_classifier(url: str, digits: Any) -> None:
    X, path = digits.X[:40], "/v1/models/digits/assess"
    expected = said_by(digits, X)
    reply = ask(url, path, {"rows": X.tolist()})
    assert reply.status == 200
    assert reply.json["answers"] == expected
    assert reply.json["request"] == reply.headers["X-Request-Id"]
    by_npy = ask(url, path, npy(X), Content_Type="application/x-npy")
    assert by_npy.json["answers"] == expected
    assert ask(url, "/v1/models/digits/versions/1/assess", {"rows": X.tolist()}).status == 200


def test_evidence_and_exemplars_on_request(url: str, digits: Any) -> None:
    X = digits.X[:5]
    path = "/v1/models/digits/assess?evidence=true&exemplars=true"
    answers = ask(url, path, {"rows": X.tolist()}).json["answers"]
    found = digits.classifier.assess(X)
    needed = {layer: rule.quorum[0] for layer, rule in found.neighborhoods.items()}
    for i, answer in enumerate(answers):
        for layer, evidence in found.evidence.items():
            rows, last = evidence.rows[i, found.belief_codes[i]], needed[layer] - 1
            assert answer["exemplars"][layer] == rows[0]
            assert answer["evidence"][layer]["for_row"] == rows[last]
            expected = evidence.distances[i, found.belief_codes[i], last]
            assert answer["evidence"][layer]["for"] == pytest.approx(expected)


def test_answers_are_explained_on_request(url: str, digits: Any) -> None:
    X = digits.X[:5]
    path = "/v1/models/digits/assess?explain=true"
    answers = ask(url, path, {"rows": X.tolist()}).json["answers"]
    found = digits.classifier.assess(X)
    for i, answer in enumerate(answers):
        told, explanation = answer["explanation"], found.explain(i)
        assert told["sentence"] == explanation.sentence
        assert told["level"] == pytest.approx(explanation.level)
        assert told["decides"] in explanation.sentence
        for layer, said in zip(explanation.layers, told["layers"], strict=True):
            assert said["findings"] == list(layer.findings)
            assert [each["row"] for each in said["for"]] == [each.row for each in layer.samples_for]
    many = ask(url, path, {"rows": digits.X[:101].tolist()})
    assert many.status == 413
    assert "up to 100 rows are explained at once; got 101" in many.json["error"]


def test_a_row_that_is_no_number_is_invalid_and_the_others_are_answered(
    url: str, digits: Any
) -> None:
    rows = digits.X[:3].tolist()
    rows[1][5] = None
    answers = ask(url, "/v1/models/digits/assess", {"rows": rows}).json["answers"]
    assert (answers[1]["assertion"], answers[1]["reason"]) == ("IDK", "INVALID")
    expected = said_by(digits, digits.X[:3])
    assert [answers[0], answers[2]] == [expected[0], expected[2]]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/models/digits/assess", {"rows": [[1, 2]]}, 422),
        ("/v1/models/digits/assess", {"rows": []}, 422),
        ("/v1/models/digits/assess", {"rows": [["a"] * 64]}, 422),
        ("/v1/models/digits/assess?evidence=perhaps", {"rows": [[0] * 64]}, 422),
        ("/v1/models/digits/assess", b"\xff\xfe", 400),
        ("/v1/models/nobody/assess", {"rows": [[1]]}, 404),
        ("/v1/models/digits/versions/9/assess", {"rows": [[1]]}, 404),
        ("/v1/labels", {"labels": [{"request": "a", "row": 0, "label": 1}]}, 409),
        ("/nowhere", {"rows": []}, 404),
    ],
)
def test_bad_input_is_told_in_a_sentence(url: str, path: str, body: Any, status: int) -> None:
    reply = ask(url, path, body, Content_Type="application/json")
    assert reply.status == status
    assert set(reply.json) == {"error"}
    assert "Traceback" not in reply.json["error"]


def test_methods_types_and_probes(url: str, digits: Any) -> None:
    assert ask(url, "/v1/models/digits/assess").status == 405
    assert ask(url, "/v1/models/digits/assess", b"x", Content_Type="image/png").status == 415
    for probe in ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"):
        assert ask(url, probe).status == 200
    told = ask(url, "/v1/models").json["models"]
    assert [model["name"] for model in told] == ["digits"]
    assert told[0]["promises"]
    described = ask(url, "/openapi.json").json
    assert described["info"]["title"] == "iknow"
    answers = described["components"]["schemas"]["AssessReply"]["properties"]["answers"]
    (example,) = answers["examples"][0]
    told = ask(url, "/v1/models/digits/assess", {"rows": digits.X[:1].tolist()}).json["answers"][0]
    assert set(example) == set(told)


def test_the_page_is_served_with_a_strict_policy(url: str) -> None:
    page = ask(url, "/")
    assert page.status == 200
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert ask(url, "/", If_None_Match=page.headers["ETag"]).status == 304


def test_another_site_cannot_ask_through_a_browser(url: str) -> None:
    assert ask(url, "/v1/models", Host="evil.example").status == 403


def test_metrics_count_answers_and_requests(serving: Any, digits: Any) -> None:
    url = serving({"digits": digits.classifier})
    ask(url, "/v1/models/digits/assess", {"rows": digits.X[:7].tolist()})
    ask(url, "/v1/models/digits/assess", {"rows": []})
    lines = ask(url, "/metrics").body.decode().splitlines()
    counts = [float(line.split()[-1]) for line in lines if line.startswith("iknow_answers_total")]
    assert sum(counts) == 7
    route = '{route="/v1/models/{name}/assess",status="422"}'
    assert f"iknow_requests_total{route} 1.0" in lines


@pytest.fixture
def tokens(tmp_path: Any) -> Tokens:
    path = tmp_path / "tokens"
    path.write_text("asker assess 0123456789abcdef\nboss admin fedcba9876543210\n")
    return read_tokens(path)


def test_tokens_and_scopes(serving: Any, digits: Any, tokens: Tokens) -> None:
    url = serving({"digits": digits.classifier}, Settings(tokens=tokens))
    path, body = "/v1/models/digits/assess", {"rows": digits.X[:1].tolist()}
    refused = ask(url, path, body)
    assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert ask(url, path, body, Authorization="Bearer 0123456789abcdex").status == 401
    assert ask(url, path, body, Authorization="Bearer 0123456789abcdef").status == 200
    assert ask(url, "/v1/status", Authorization="Bearer 0123456789abcdef").status == 403
    assert ask(url, "/v1/status", Authorization="Bearer fedcba9876543210").status == 200
    assert ask(url, "/metrics").status == 401
    assert ask(url, "/healthz").status == 200


def test_every_answer_is_recorded_before_it_is_given(
    serving: Any, digits: Any, tmp_path: Any, tokens: Tokens
) -> None:
    where = str(tmp_path / "audit.db")
    url = serving(
        {"digits": digits.classifier}, Settings(audit=where, keep_inputs=True, tokens=tokens)
    )
    body, token = {"rows": digits.X[:3].tolist()}, "Bearer fedcba9876543210"
    path = "/v1/models/digits/assess?exemplars=true"
    reply = ask(url, path, body, Authorization=token, X_Request_Id="abc-1")
    with open_journal(where, readonly=True) as journal:
        for i, answer in enumerate(reply.json["answers"]):
            record = journal.find("abc-1", i)
            assert record is not None
            assert record.caller == "boss"
            assert json.loads(record.belief) == answer["belief"]
            told = (record.assertion, record.reason, record.level, record.exemplars)
            assert told == tuple(answer[k] for k in ("assertion", "reason", "level", "exemplars"))
        assert verify(journal).holds


def test_labels_are_compared_with_recorded_answers(
    serving: Any, digits: Any, tmp_path: Any
) -> None:
    settings = Settings(audit=str(tmp_path / "audit.db"), state=tmp_path / "state")
    url = serving({"digits": digits.classifier}, settings)
    X, y = digits.X[:60], digits.y[:60]
    answered = ask(url, "/v1/models/digits/assess", {"rows": X.tolist()}).json
    known = [answer["assertion"] == "IK" for answer in answered["answers"]]
    labels = [
        {"request": answered["request"], "row": i, "label": int(label)} for i, label in enumerate(y)
    ]
    told = ask(url, "/v1/labels", {"labels": [*labels, labels[0]]}).json
    expected = {"counted": sum(known), "others": 60 - sum(known), "repeated": 1, "unknown": 0}
    assert told == expected
    assert ask(url, "/v1/labels", {"labels": labels[:2]}).json["repeated"] == 2
    unknown = [{"request": "never", "row": 0, "label": 1}]
    assert ask(url, "/v1/labels", {"labels": unknown}).json["unknown"] == 1
    accuracy = ask(url, "/v1/status").json["models"][0]["accuracy"]
    right = digits.classifier.predict(X)[known] == y[known]
    assert (accuracy["n"], accuracy["estimate"]) == (sum(known), pytest.approx(right.mean()))


def test_bodies_of_all_requests_together_are_bounded(serving: Any, digits: Any) -> None:
    row = digits.X[:1].tolist()
    size = len(json.dumps({"rows": row}))
    settings = Settings(most_body=30 * size, most_held=30 * size)
    url = serving({"digits": digits.classifier}, settings)
    parts = urlsplit(url)
    head = (
        f"POST /v1/models/digits/assess HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {30 * size}\r\n\r\n"
    )
    path = "/v1/models/digits/assess"
    with socket.create_connection((parts.hostname, parts.port)) as half_sent:
        half_sent.sendall(head.encode() + b" " * (30 * size - 1))
        wait_until(lambda: ask(url, path, {"rows": row}).status == 429)
        assert ask(url, path, {"rows": row}).headers["Retry-After"]
    wait_until(lambda: ask(url, path, {"rows": row}).status == 200)  # it hung up


def test_labels_of_another_kind_are_no_labels_of_an_answer(
    serving: Any, digits: Any, tmp_path: Any
) -> None:
    url = serving({"digits": digits.classifier}, Settings(audit=str(tmp_path / "audit.db")))
    answered = ask(url, "/v1/models/digits/assess", {"rows": digits.X[:80].tolist()}).json
    ones = [
        i
        for i, each in enumerate(answered["answers"])
        if (each["belief"], each["assertion"]) == (1, "IK")
    ]
    truths = [True, 1.0]  # 1.0 is what was believed, true is not
    labels = [
        {"request": answered["request"], "row": row, "label": truth}
        for row, truth in zip(ones, truths, strict=False)
    ]
    assert ask(url, "/v1/labels", {"labels": labels}).json["counted"] == 2
    assert ask(url, "/v1/status").json["models"][0]["accuracy"]["estimate"] == 0.5
    for wrong in (None, float("nan"), [1]):
        body = {"labels": [{**labels[0], "label": wrong}]}
        assert ask(url, "/v1/labels", body).status == 422
    assert ask(url, "/v1/labels", {"labels": [{**labels[0], "row": 2**70}]}).status == 422


def test_the_alarm_rings_on_noise_and_not_on_tests(serving: Any, digits: Any) -> None:
    url = serving({"digits": digits.classifier})
    noise = np.random.default_rng(0).random((300, 64))
    path = "/v1/models/digits/assess"

    def status() -> Any:
        return ask(url, "/v1/status").json["models"][0]

    ask(url, path, {"rows": digits.X[:200].tolist()})
    ask(url, f"{path}?watch=false", {"rows": noise.tolist()})
    wait_until(lambda: status()["live"]["total"]["rows"] == 500)
    assert not status()["alarm"]["alarmed"]
    ask(url, path, {"rows": noise.tolist()})
    wait_until(lambda: status()["alarm"]["alarmed"])
    assert 'iknow_alarm{alarm="drift",model="digits",version="1"} 1.0' in (
        ask(url, "/metrics").body.decode()
    )
    assert not ask(url, "/v1/models/digits/alarm/reset", b"").json["alarmed"]


def test_what_the_alarm_has_seen_outlives_a_restart(
    running: Any, digits: Any, tmp_path: Any
) -> None:
    settings = Settings(state=tmp_path / "state")
    first = running({"digits": digits.classifier}, settings)
    ask(first.url, "/v1/models/digits/assess", {"rows": digits.X[:50].tolist()})
    first.stop()
    second = running({"digits": digits.classifier}, settings)
    assert ask(second.url, "/v1/status").json["models"][0]["alarm"]["n_samples"] == 50
