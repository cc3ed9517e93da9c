"""Replies: a response as what it says, or as the error it tells."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from iknow.core.text import shorten, visible
from iknow.errors import ServiceError

T = TypeVar("T")
LONGEST = 1_000


@dataclass(frozen=True)
class Reply:
    """A response. retry_after: in seconds, if the service says so in a number."""

    status: int
    content: bytes
    retry_after: float | None


def read_reply(reply: Reply, read: Callable[[Any], T], url: str) -> T:
    """What a response says.

    Raises:
        ServiceError: It tells an error, or it is none that a service of iknow gives.
    """
    try:
        said = json.loads(reply.content)
    except (ValueError, RecursionError):
        said = None
    if reply.status != 200:
        raise ServiceError(_why(reply, said, url), reply.status, reply.retry_after)
    try:
        return read(said)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ServiceError(
            f"{url} answers, but not as this version of iknow expects ({type(error).__name__}: "
            f"{error}): is it `iknow serve`, and of this version?",
            reply.status,
        ) from error


def _why(reply: Reply, said: Any, url: str) -> str:
    """The sentence of the service, or what else stands in the response of a proxy."""
    if isinstance(said, dict) and isinstance(said.get("error"), str):
        return f"{reply.status}: {shorten(visible(said['error']), LONGEST)}"
    text = visible(reply.content[:200].decode("utf-8", "replace").strip())
    return f"{url} answered with status {reply.status}" + (f": {text}" if text else "")
