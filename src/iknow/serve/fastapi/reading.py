"""Reading requests: who asks, with which id, and the body, within limits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from uuid import uuid4

from fastapi import Request

from iknow.core.text import shown
from iknow.serve.audit import Call
from iknow.serve.refusal import Refusal
from iknow.serve.service import Service

try:
    from opentelemetry import propagate, trace
except ImportError:  # the extra `telemetry`
    trace = None  # type: ignore[assignment]

REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)
ID_HEADER = "X-Request-Id"


def service_of(request: Request) -> Service:
    """The service that a request was sent to."""
    service: Service = request.app.state.service
    return service


def admit(request: Request, scope: str, *, watch: bool = True) -> Call:
    """Who asks, if the scope of their token permits it.

    Raises:
        Refusal: 401 or 403.
    """
    tokens = service_of(request).settings.tokens
    caller = tokens.admit(request.headers.get("Authorization"), scope)
    return Call(caller, request.state.request_id, watch)


def find_request_id(given: str | None) -> str:
    """The caller's own id for a request, if it may be printed; else a new one."""
    return given if given is not None and REQUEST_ID.fullmatch(given) else uuid4().hex


async def read_body(request: Request) -> bytes:
    """The body of a request, read no further than it may be long, and no longer than it may take.

    Raises:
        Refusal: 408, 413, 429 if the bodies of all requests together take too much, or 415 for a
            compressed one, which may unpack to any size.
    """
    service = service_of(request)
    settings = service.settings
    if (encoding := request.headers.get("Content-Encoding", "identity").lower()) != "identity":
        raise Refusal(415, f"compressed bodies are not read: send it plain; got {shown(encoding)}")
    most = settings.most_body
    announced = request.headers.get("Content-Length", "")
    if announced.isascii() and announced.isdigit() and int(announced[:20]) > most:
        raise _too_long(most)
    parts, size = [], 0
    try:
        async with asyncio.timeout(settings.timeout):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise _too_long(most)
                service.room.take(len(part))
                request.state.held = size  # until it is answered: see `Envelope`
                parts.append(part)
    except TimeoutError as error:
        raise Refusal(408, f"the body did not come within {settings.timeout:g} s") from error
    return b"".join(parts)


def _too_long(most: int) -> Refusal:
    return Refusal(413, f"the body may have {most:,} bytes: send fewer rows in several requests")


@contextmanager
def span(
    name: str, headers: Mapping[str, str] | None = None, **attributes: str | int
) -> Iterator[None]:
    """A span of the current trace, or of the one that the headers of a request name.

    Nothing where OpenTelemetry is not installed. The tracer provider is the application's own, as
    `opentelemetry-instrument` or the program that calls `create_app` sets it up.
    """
    if trace is None:
        yield
        return
    context = None if headers is None else propagate.extract(dict(headers))
    tracer = trace.get_tracer("iknow.serve")
    named = {f"iknow.{key}": value for key, value in attributes.items()}
    with tracer.start_as_current_span(name, context=context, attributes=named):
        yield
