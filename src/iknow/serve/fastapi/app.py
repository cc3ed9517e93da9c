"""The application: a service behind HTTP.

An error is answered by one sentence in JSON; a traceback goes to the log and never to a caller. The
envelope of every request is a plain ASGI middleware, as it must see requests that no route takes.
On loopback without tokens it answers only to local names, or a page of another site could ask
through the reader's browser.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.text import name
from iknow.serve.client import is_loopback
from iknow.serve.fastapi import pages, v1, v2
from iknow.serve.fastapi.reading import ID_HEADER, find_request_id
from iknow.serve.prometheus_client import Metrics
from iknow.serve.refusal import Refusal
from iknow.serve.room import Room
from iknow.serve.served import serve_classifier
from iknow.serve.service import Service
from iknow.serve.settings import Settings
from iknow.version import __version__

LONGEST = 1_000
EXPLAINED = {404: "there is nothing at this path", 405: "this path does not take that method"}
SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}
log = logging.getLogger("iknow.serve")


def handle_errors(app: FastAPI) -> None:
    """Have an application answer errors in one form."""
    handlers: dict[Any, Any] = {
        Refusal: _refused,
        HTTPException: _by_status,
        RequestValidationError: _invalid,
        ClientDisconnect: _gone,
        Exception: _failed,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


async def _refused(request: Request, error: Refusal) -> Response:
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return _respond(error.status, str(error), headers)


async def _by_status(request: Request, error: HTTPException) -> Response:
    headers = dict(error.headers or {})
    return _respond(error.status_code, EXPLAINED.get(error.status_code, str(error.detail)), headers)


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    told = error.errors()[0]
    where = ".".join(map(str, told.get("loc", ())))
    return _respond(422, f"{where}: {told.get('msg', 'is not valid')}")


async def _gone(request: Request, error: ClientDisconnect) -> Response:
    return _respond(400, "the connection closed before the body was complete")


async def _failed(request: Request, error: Exception) -> Response:
    request_id = getattr(request.state, "request_id", "")
    log.error("request %s failed because of a bug", request_id, exc_info=error)
    return _respond(500, f"the service failed; its log has the details under {request_id}")


def _respond(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": name(message, LONGEST)}, status, headers)


class Envelope:
    """Wraps an application."""

    def __init__(self, app: ASGIApp, metrics: Any, room: Room, local_only: bool) -> None:
        self._app, self._metrics, self._room = app, metrics, room
        self._local_only = local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, start, status = Headers(scope=scope), time.perf_counter(), 500
        request_id = find_request_id(headers.get(ID_HEADER))
        scope.setdefault("state", {})["request_id"] = request_id

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                told = MutableHeaders(scope=message)
                told[ID_HEADER] = request_id
                for name, value in SAFE.items():
                    told.setdefault(name, value)
            await send(message)

        try:
            if self._local_only and not is_local(headers.get("Host", "")):
                refused = {"error": "without tokens only localhost is answered: see --tokens"}
                await JSONResponse(refused, 403)(scope, receive, sending)
            else:
                await self._app(scope, receive, sending)
        finally:
            self._room.give(scope["state"].get("held", 0))
            route = getattr(scope.get("route"), "path", "other")
            seconds = time.perf_counter() - start
            self._metrics.requested(route, status, seconds)
            log.debug(
                "%s %s %d %.1f ms %s", scope["method"], route, status, 1e3 * seconds, request_id
            )


def is_local(host: str) -> bool:
    """Whether a Host header names this machine.

    Examples:
        >>> is_local("localhost:8000"), is_local("[::1]:80"), is_local("evil.example")
        (True, True, False)
    """
    name = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name)


def create_app(
    models: Service | Mapping[str, EpistemicClassifier],
    settings: Settings | None = None,
    *,
    on_failure: Callable[[Exception], None] | None = None,
) -> FastAPI:
    """An ASGI application that serves classifiers.

    Args:
        models: Classifiers by name, of any kind of model; or a `Service`, as `iknow serve` makes it
            from bundles.
        settings: How to serve; not with a `Service`, which has its own.
        on_failure: Is told why the service could not start. Default: it raises in the background,
            and `/readyz` never succeeds.

    Examples:
        >>> app = create_app({"irises": ec})
        >>> app.title
        'iknow'
    """
    if isinstance(models, Service):
        service = models
    else:
        served = [serve_classifier(name, classifier) for name, classifier in models.items()]
        service = Service(served, settings)
    metrics = Metrics(service)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # In the background: the probes answer while models are loaded.
        starting = asyncio.create_task(_start(service, on_failure))
        try:
            yield
        finally:
            await asyncio.gather(starting, return_exceptions=True)
            await service.stop()

    app = FastAPI(
        title="iknow",
        version=__version__,
        description="Makes a classifier honest: IK, IMK or IDK for every prediction.",
        lifespan=lifespan,
        docs_url=None,  # it would load scripts from elsewhere
        redoc_url=None,
    )
    app.state.service, app.state.metrics = service, metrics
    handle_errors(app)
    for router in (v1.router, v2.router, pages.router):
        app.include_router(router)
    app.add_middleware(
        Envelope, metrics=metrics, room=service.room, local_only=not service.settings.tokens
    )
    return app


async def _start(service: Service, on_failure: Callable[[Exception], None] | None) -> None:
    try:
        await service.start()
    except Exception as error:
        log.error("the service cannot start: %s", error)
        if on_failure is None:
            raise
        on_failure(error)
