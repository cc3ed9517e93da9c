"""The envelope of every request: its id, its time, its status, and what no answer may lack.

A plain ASGI middleware, as it must see requests that no route takes. On loopback without tokens it
answers only to local names, or a page of another site could ask through the reader's browser.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from iknow.client.address import is_loopback
from iknow.service.fastapi.reading import ID_HEADER, find_request_id
from iknow.service.room import Room

log = logging.getLogger("iknow.service")
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
