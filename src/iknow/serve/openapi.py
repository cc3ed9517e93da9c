"""The description of the service in OpenAPI's form, made from its routes and their schemas."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from iknow.serve.schema import JSON, Failure
from iknow.version import __version__

READ = (401, 403, 404, 500, 503)
ASKED = (400, *READ, 408, 413, 415, 422, 429, 504)
CHANGED = (400, *READ, 408, 409, 413, 415, 422, 429, 507)
PLAIN = "text/plain"
NO_TOKEN = ""
"""The scope of routes that ask for no token."""


@dataclass(frozen=True, eq=False)
class Endpoint:
    """A route.

    Attributes:
        method, path: What it takes; the path may have parameters, such as {name}.
        handle: Answers a request; its docstring describes the route.
        scope: Which scope a token needs; None for any, `NO_TOKEN` for no token at all.
        body: The struct of its JSON body, if it takes one.
        bodies: Content types of other bodies.
        reply: The struct of its JSON reply, if it has one.
        replies: Content types of replies: JSON, and others.
        refuses: The statuses of its refusals.
        flags: Names of flags in its query.
        described: Whether OpenAPI tells of it.
    """

    method: str
    path: str
    handle: Callable[..., Awaitable[Any]]
    scope: str | None
    body: Any = None
    bodies: tuple[str, ...] = ()
    reply: Any = None
    replies: tuple[str, ...] = (JSON,)
    refuses: tuple[int, ...] = READ
    flags: tuple[str, ...] = ()
    described: bool = True


def describe(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """What `GET /openapi.json` tells."""
    kinds = {kind for each in endpoints for kind in (each.body, each.reply) if kind is not None}
    ordered = sorted({*kinds, Failure}, key=lambda kind: str(kind.__name__))
    template = "#/components/schemas/{name}"
    schemas, components = msgspec.json.schema_components(ordered, ref_template=template)
    known = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, Any] = {}
    for each in endpoints:
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
    text = " ".join((endpoint.handle.__doc__ or "").split())
    refused = {"description": "Refused.", "content": {JSON: {"schema": known[Failure]}}}
    reply = {kind: _binary() for kind in endpoint.replies}
    if JSON in reply:
        reply[JSON] = {"schema": known.get(endpoint.reply, {})}
    made: dict[str, Any] = {
        "summary": text.partition(". ")[0].rstrip("."),
        "operationId": re.sub(r"\W+", "_", f"{endpoint.method} {endpoint.path}").strip("_").lower(),
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"{(\w+)}", endpoint.path)
        ]
        + [
            {"name": name, "in": "query", "schema": {"type": "boolean"}} for name in endpoint.flags
        ],
        "responses": {
            "200": {"description": "Answered.", "content": reply},
            **{str(status): refused for status in endpoint.refuses},
        },
    }  # fmt: skip
    if endpoint.scope != NO_TOKEN:
        made["security"] = [{"token": []}, {}]  # on loopback it may need none
    if endpoint.body is not None:
        bodies = {kind: _binary() for kind in endpoint.bodies}
        content = {JSON: {"schema": known[endpoint.body]}, **bodies}
        made["requestBody"] = {"required": True, "content": content}
    return made


def _binary() -> dict[str, Any]:
    return {"schema": {"type": "string", "format": "binary"}}
