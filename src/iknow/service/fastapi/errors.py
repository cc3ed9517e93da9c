"""Errors as responses: one sentence in JSON; a traceback goes to the log and never to a caller."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from iknow.core.text import name
from iknow.service.refusal import Refusal

log = logging.getLogger("iknow.service")
LONGEST = 1_000
EXPLAINED = {404: "there is nothing at this path", 405: "this path does not take that method"}


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
