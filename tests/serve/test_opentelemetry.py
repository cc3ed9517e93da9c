"""Traces, as OpenTelemetry's own SDK records them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from iknow import Client
from iknow.serve import http


def test_a_request_is_a_span_of_the_callers_trace(
    url: str, digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from http.client import HTTPConnection
    from urllib.parse import urlsplit

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(http.trace, "get_tracer", provider.get_tracer)
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port)
    headers = {
        "Content-Type": "application/json",
        "traceparent": f"00-{trace_id}-b7ad6b7169203331-01",
    }
    body = json.dumps({"rows": digits.X[:1].tolist()})
    connection.request("POST", "/v1/models/digits/assess", body, headers)
    assert connection.getresponse().status == 200
    connection.close()
    (span,) = exporter.get_finished_spans()
    assert f"{span.context.trace_id:032x}" == trace_id
    assert (span.name, dict(span.attributes or {})) == ("assess", {"iknow.model": "digits"})


def test_without_it_nothing_happens(url: str, digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "trace", None)
    assert len(Client(url).assess("digits", digits.X[:1])) == 1
