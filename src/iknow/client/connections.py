"""Connections: one for each thread, kept open between requests.

A server may close a connection that idles, at the very moment we use it again. So a connection that
was closed meanwhile is replaced before anything is sent, and if a used one ends before the first
byte of an answer, the request is sent once more on a new one. On a new connection nothing is sent
twice.
"""

from __future__ import annotations

import os
import select
import ssl
import threading
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any

from iknow.client.address import Address
from iknow.client.replies import Reply
from iknow.errors import ServiceError


class EndedError(Exception):
    """The connection ended before the first byte of an answer."""


class Kept:
    """A connection, which closes with its thread or its client."""

    def __init__(self, connection: HTTPConnection) -> None:
        self.connection, self._process = connection, os.getpid()

    def is_open(self) -> bool:
        """Whether it can be used: the server has not closed it, and it is this process' own."""
        sock = self.connection.sock
        if self._process != os.getpid() or sock is None:
            return False
        return not _has_something(sock)  # the end, or an answer that nobody asked for

    def __del__(self) -> None:
        self.connection.close()


class Connections:
    """Sends requests to one address, from any thread.

    context: for https; None verifies the server's certificate as the system does.
    """

    def __init__(self, address: Address, timeout: float, context: ssl.SSLContext | None) -> None:
        self.address = address
        self._timeout, self._context = timeout, context
        self._local = threading.local()

    def ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Reply:
        """Send a request and wait for its answer.

        Raises:
            ServiceError: There was none; its `status` is None.
        """
        kept = self._take()
        try:
            if kept is not None:
                try:
                    return self._send(kept, method, path, body, headers)
                except EndedError:
                    pass
            return self._send(self._open(), method, path, body, headers)
        except TimeoutError as error:
            raise ServiceError(
                f"{self.address.url} did not answer within {self._timeout:g} s: send fewer rows, "
                "or set a longer timeout"
            ) from error
        except (OSError, HTTPException, EndedError) as error:
            said = str(error) or type(error).__name__
            raise ServiceError(f"{self.address.url} cannot be reached: {said}") from error

    def close(self) -> None:
        """Close the connection of this thread."""
        self._local.kept = None

    def _take(self) -> Kept | None:
        """The connection of this thread, if it is still open."""
        kept: Kept | None = getattr(self._local, "kept", None)
        self._local.kept = None
        return kept if kept is not None and kept.is_open() else None

    def _open(self) -> Kept:
        where, timeout = (self.address.host, self.address.port), self._timeout
        if self.address.scheme == "http":
            return Kept(HTTPConnection(*where, timeout=timeout))
        context = ssl.create_default_context() if self._context is None else self._context
        return Kept(HTTPSConnection(*where, timeout=timeout, context=context))

    def _send(
        self,
        kept: Kept,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
    ) -> Reply:
        connection = kept.connection
        try:
            response = _begin(connection, method, self.address.prefix + path, body, headers)
            content = response.read()
        except BaseException:  # an interrupt too: what comes next would be another's answer
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._local.kept = kept
        return Reply(response.status, content, _as_seconds(response.headers.get("Retry-After")))


def _begin(
    connection: HTTPConnection, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> HTTPResponse:
    """Send a request, and read the head of the answer."""
    if connection.sock is None:
        connection.connect()  # here, as its errors are others
    try:
        with suppress(ConnectionError):  # a server may refuse a body before it is complete
            connection.request(method, path, body, headers)
        return connection.getresponse()
    except ConnectionError as error:
        raise EndedError(str(error)) from error


def _has_something(sock: Any) -> bool:
    """Whether there is something to read, the end included."""
    if hasattr(select, "poll"):  # select itself fails beyond 1,024 open files
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])


def _as_seconds(text: str | None) -> float | None:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) < 10
    return float(text) if is_number and text is not None else None
