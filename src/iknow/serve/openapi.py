"""The routes of the service, and their description in OpenAPI's form, made from their schemas."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar, get_type_hints

import msgspec

from iknow.serve.schema import JSON, Failure
from iknow.version import __version__

REFUSED = (401, 403, 404, 500, 503)
REFUSED_WITH_BODY = (400, 408, 409, 413, 415, 422, 429, 504, 507)
NO_TOKEN = ""
"""The scope of routes that ask for no token."""
BINARY = {"schema": {"type": "string", "format": "binary"}}
Handle = TypeVar("Handle", bound=Callable[..., Awaitable[Any]])


class Endpoint(NamedTuple):
    """A route. What it takes and tells are structs of the schema; other content has a type."""

    method: str
    path: str  # with parameters, such as {name}
    handle: Callable[..., Awaitable[Any]]  # its docstring describes the route
    scope: str | None  # which one a token needs: None for any, NO_TOKEN for no token at all
    body: Any = None
    bodies: tuple[str, ...] = ()
    reply: Any = None
    replies: tuple[str, ...] = (JSON,)
    flags: Any = None  # in its query
    described: bool = True


ENDPOINTS: list[Endpoint] = []
"""All routes, in the order in which they are tried."""


def route(method: str, *paths: str, scope: str | None, **more: Any) -> Callable[[Handle], Handle]:
    """Have a function answer the requests to some paths; more: fields of `Endpoint`.

    What it returns, and a parameter `body`, are structs of the schema if it is annotated with them.
    """

    def note(handle: Handle) -> Handle:
        hints = get_type_hints(handle)
        known = {"body": hints.get("body"), "reply": hints["return"]} | more
        ENDPOINTS.extend(Endpoint(method, path, handle, scope, **known) for path in paths)
        return handle

    return note


def describe() -> dict[str, Any]:
    """What `GET /openapi.json` tells."""
    given = {kind for each in ENDPOINTS for kind in (each.body, each.reply)}
    kinds = {kind for kind in given if isinstance(kind, type(Failure))}
    ordered = sorted({*kinds, Failure}, key=lambda kind: str(kind.__name__))
    template = "#/components/schemas/{name}"
    schemas, components = msgspec.json.schema_components(ordered, ref_template=template)
    known = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, Any] = {}
    for each in ENDPOINTS:
        if each.described:
            paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, known)
    promise = "Makes a classifier honest: IK, IMK or IDK for every prediction."
    about = {"title": "iknow", "version": __version__, "description": promise}
    scheme = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0", "info": about, "paths": paths,
        "components": {"schemas": components, "securitySchemes": scheme},
    }  # fmt: skip


def _operation(endpoint: Endpoint, known: dict[Any, Any]) -> dict[str, Any]:
    refused = {"description": "Refused.", "content": {JSON: {"schema": known[Failure]}}}
    statuses = REFUSED if endpoint.method == "GET" else (*REFUSED, *REFUSED_WITH_BODY)
    reply = dict.fromkeys(endpoint.replies, BINARY)
    if JSON in reply:
        reply[JSON] = {"schema": known.get(endpoint.reply, {})}
    flags = () if endpoint.flags is None else endpoint.flags.__struct_fields__
    made: dict[str, Any] = {
        "summary": (endpoint.handle.__doc__ or "").partition(".")[0],
        "operationId": re.sub(r"\W+", "_", f"{endpoint.method} {endpoint.path}").strip("_").lower(),
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"{(\w+)}", endpoint.path)
        ]
        + [{"name": name, "in": "query", "schema": {"type": "boolean"}} for name in flags],
        "responses": {
            "200": {"description": "Answered.", "content": reply},
            **{str(status): refused for status in statuses},
        },
    }  # fmt: skip
    if endpoint.scope != NO_TOKEN:
        made["security"] = [{"token": []}, {}]  # on loopback it may need none
    if endpoint.body is not None:
        content = {JSON: {"schema": known[endpoint.body]}, **dict.fromkeys(endpoint.bodies, BINARY)}
        made["requestBody"] = {"required": True, "content": content}
    return made
