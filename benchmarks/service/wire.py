"""The wire: requests as bytes, so that what no library would send can be sent."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import Any

CLOSED = 0
"""The status of a request whose connection was closed without an answer."""
LIMIT = 60.0
JSON = "application/json"


@dataclass(frozen=True)
class Asked:
    """A request. broken: whether a server may close the connection instead of answering."""

    path: str
    body: bytes = b""
    kind: str | None = JSON
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    length: str | None = None  # if not that of the body
    broken: bool = False
    what: str = ""

    def encode(self, host: str) -> bytes:
        """The request as it is sent."""
        head = [f"{self.method} {self.path} HTTP/1.1"]
        given = {name.lower() for name, _ in self.headers}
        if "host" not in given:
            head.append(f"Host: {host}")
        if self.kind is not None:
            head.append(f"Content-Type: {self.kind}")
        if "transfer-encoding" not in given:
            head.append(f"Content-Length: {len(self.body) if self.length is None else self.length}")
        head += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join(head).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + self.body


@dataclass(frozen=True)
class Told:
    """A response; status 0 if there was none."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """A connection to a server on loopback, kept open between requests, opened anew when closed.

    Args:
        port: The server's.
        limit: Seconds that an answer may take.
    """

    def __init__(self, port: int, limit: float = LIMIT) -> None:
        self._port, self._limit = port, limit
        self._socket: socket.socket | None = None

    def ask(self, asked: Asked) -> Told:
        """Send a request and read its answer."""
        return self.exchange(asked.encode(f"127.0.0.1:{self._port}"), asked.method, asked.broken)

    def exchange(self, content: bytes, method: str = "POST", last: bool = False) -> Told:
        """Send bytes and read one answer. last: nothing follows; the server sees the end of it."""
        try:
            connection = self._connect()
            with suppress(BrokenPipeError, ConnectionResetError):  # it may answer before the end
                connection.sendall(content)
                if last:
                    connection.shutdown(socket.SHUT_WR)
            response = HTTPResponse(connection, method=method)
            response.begin()
            told = Told(response.status, response.read(), dict(response.getheaders()))
            if last or response.will_close:
                self.close()
            response.close()
            return told
        except (HTTPException, ConnectionError):
            self.close()
            return Told(CLOSED)

    def _connect(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), self._limit)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
