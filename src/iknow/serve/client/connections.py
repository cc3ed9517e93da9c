"""The address of a service, connections to it, one for each thread, and its replies.

A token that travels without TLS can be read by everybody on the way. So it is sent to this machine
only, unless the caller says otherwise.

A server may close a connection that idles, at the very moment we use it again. So a connection that
was closed meanwhile is replaced before anything is sent, and if a used one ends before the first
byte of an answer, the request is sent once more on a new one. On a new connection nothing is sent
twice.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from iknow.core.text import shorten, shown, visible
from iknow.errors import InputError, ServiceError

if TYPE_CHECKING:  # only those who ask load http
    import ssl
    from http.client import HTTPConnection, HTTPResponse

T = TypeVar("T")
LONGEST = 1_000
LOCAL_NAMES = ("localhost", "ip6-localhost")
DEFAULT_URL = "http://127.0.0.1:8000"
PORTS = {"http": 80, "https": 443}
PRINTABLE = re.compile(r"[!-~]+", re.ASCII)
"""What a token is made of: anything else would break the header that carries it."""


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


@dataclass(frozen=True)
class Address:
    """Where a service is. prefix: the path before its own paths, behind a proxy."""

    scheme: str
    host: str
    port: int
    prefix: str = ""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"


def parse_address(url: str) -> Address:
    """The parts of a URL.

    Examples:
        >>> parse_address("https://knows.example/grid/").url
        'https://knows.example:443/grid'

    Raises:
        InputError: It is no http or https URL, or has parts that no service has.
    """
    expected = "the URL of a service looks like http://127.0.0.1:8000"
    if not isinstance(url, str):
        raise InputError(f"{expected}; got {shown(url)}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f"{expected}; got {shown(url)}: {error}") from error
    if "@" in parts.netloc:  # never quoted: it holds a password
        raise InputError(f"{expected}, without a user or a password: give token= instead")
    if parts.scheme not in PORTS or not host or PRINTABLE.fullmatch(url) is None:
        raise InputError(f"{expected}; got {shown(url)}")
    if parts.query or parts.fragment:
        raise InputError(f"{expected}, without anything after ? or #; got {shown(url)}")
    chosen = PORTS[parts.scheme] if port is None else port
    return Address(parts.scheme, host, chosen, parts.path.rstrip("/"))


def check_token(token: str | None, address: Address, *, insecure: bool) -> None:
    """Refuse a token that cannot be sent, or that others could read on its way.

    Raises:
        InputError: Never with the token in its message.
    """
    if token is None:
        return
    if not isinstance(token, str) or PRINTABLE.fullmatch(token) is None:
        raise InputError("a token is text of visible ASCII characters without spaces")
    if address.scheme == "http" and not is_loopback(address.host) and not insecure:
        raise InputError(
            f"a token must not travel without TLS, and {address.url} has none: use https, or say "
            "insecure=True if nobody else listens on the way"
        )


def is_loopback(host: str) -> bool:
    """Whether only programs on the same machine reach an address.

    Examples:
        >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    if host.lower().rstrip(".") in LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


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
        from http.client import HTTPException

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
        import ssl
        from http.client import HTTPConnection, HTTPSConnection

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
