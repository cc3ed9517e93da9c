"""Traces, where OpenTelemetry is installed and configured; else nothing, at no cost.

The application's own tracer provider is used, as `opentelemetry-instrument` or the program that
calls `create_app` sets it up. A trace that the caller began (`traceparent`) goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

try:
    from opentelemetry import propagate, trace
except ImportError:  # the extra `telemetry`
    trace = None  # type: ignore[assignment]


@contextmanager
def span(
    name: str, headers: Mapping[str, str] | None = None, **attributes: str | int
) -> Iterator[None]:
    """A span of the current trace, or of the one that the headers of a request name."""
    if trace is None:
        yield
        return
    context = None if headers is None else propagate.extract(dict(headers))
    tracer = trace.get_tracer("iknow.service")
    named = {f"iknow.{key}": value for key, value in attributes.items()}
    with tracer.start_as_current_span(name, context=context, attributes=named):
        yield
