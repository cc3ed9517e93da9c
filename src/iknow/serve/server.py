"""The server: uvicorn, with limits on what a connection may take, and signals.

What is no body, such as the head of a request, is bounded in bytes, in fields and in time, before
anybody is asked for a token; so is what waits to be read by a client that does not read.

SIGTERM, SIGINT   stop listening, answer what is under way, close
SIGHUP            load bundles that changed, and the tokens
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from iknow.errors import IknowError, InputError
from iknow.serve.client import is_loopback
from iknow.serve.http import create_app
from iknow.serve.service import Service

log = logging.getLogger("iknow.serve")
HEAD_SECONDS = 10.0
"""In which the head of a request must come, or the connection is closed."""
HEAD_BYTES = 64 << 10
"""Of a request that are no body: its target, headers, and what lies between chunks."""
MOST_FIELDS = 256
"""Headers and trailers of a request."""
MOST_PIPELINED = 16
"""Requests on one connection that wait for the answer to another."""
READ_SECONDS = 30.0
"""In which a client must read some of an answer, or the connection is closed."""
MOST_CONNECTIONS = 1_000
TOO_LARGE = json.dumps(
    {"error": f"the head of a request may have {HEAD_BYTES:,} bytes and {MOST_FIELDS} fields"}
).encode()


@dataclass(frozen=True)
class Address:
    """Where to listen, and the files of TLS."""

    host: str = "127.0.0.1"
    port: int = 8000
    certificate: str | None = None
    key: str | None = None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{self.port}"


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's own, which sets no limit to the head of a request, nor to what is not read.

    Bytes that are no body are counted from the first of a request to its last: that bounds its
    target, its headers, its trailers and extensions of its chunks, and thus what the parser holds.
    Each byte of a body earns one for the line of its chunk, but no more than the limit in all.
    """

    _n_head = _n_fields = 0
    _in_head = _refused = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._wait()

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), HEAD_BYTES):  # what comes at once may be more
            if self._refused or self.transport.is_closing():
                return
            part = data[start : start + HEAD_BYTES]
            self._n_head += len(part)
            super().data_received(part)
            if self._n_head > HEAD_BYTES:
                self._refuse()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._n_fields, self._in_head = 0, True
        self._wait()
        if len(self.pipeline) >= MOST_PIPELINED:
            self._refuse()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._n_fields += 1
        if self._n_fields > MOST_FIELDS:
            self._refuse()
        else:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._time("head")
        self._in_head = False
        if not self._refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._n_head = max(self._n_head - 2 * len(body), -HEAD_BYTES)
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._n_head = 0
        self._time("head")
        if not self._refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.more_body:  # it was refused, and may still be sent, for a while
            self._wait()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._time("reader")

    def connection_lost(self, exc: Exception | None) -> None:
        self._time("head")
        self._time("reader")
        super().connection_lost(exc)

    def _await_reader(self, unread: float = math.inf) -> None:
        """Close the connection if its client has read nothing since `unread` bytes were left."""
        left = self.transport.get_write_buffer_size()
        if left < unread:
            self._time("reader", READ_SECONDS, self._await_reader, left)
        else:
            self.transport.abort()

    def _wait(self) -> None:
        """Close the connection if the head of a request does not come."""
        self._time("head", HEAD_SECONDS, self.timeout_keep_alive_handler)

    def _time(self, what: str, seconds: float = 0, *call: Any) -> None:
        """Call something later, unless it is timed anew before, or not any more."""
        if (timer := self._timers.pop(what, None)) is not None:
            timer.cancel()
        if call:
            self._timers[what] = self.loop.call_later(seconds, *call)

    def _refuse(self) -> None:
        """Answer 431 and close, unless an answer to an earlier request is under way."""
        if self._refused:
            return
        self._refused = True
        if self._in_head:
            unanswered = self.cycle is None or self.cycle.response_complete
        else:
            unanswered = not self.pipeline and not self.cycle.response_started
        if unanswered:
            head = (
                "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(TOO_LARGE)}\r\n\r\n"
            )
            self.transport.write(head.encode() + TOO_LARGE)
            if self.cycle is not None:
                self.cycle.disconnected = True  # what the application says is not sent any more
        self.transport.close()


class Runner(Server):
    """A server that ends with success when it is told to end, and loads changed bundles at SIGHUP.

    Args:
        service: What to serve.
        address: Where.
        on_reload: Is called at SIGHUP, before bundles are loaded: to read the tokens again.
    """

    def __init__(
        self,
        service: Service,
        address: Address,
        on_reload: Callable[[Service], None] | None = None,
    ) -> None:
        self.service, self._on_reload = service, on_reload
        config = Config(
            create_app(service),
            http=GuardedProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=max(1, round(service.settings.drain)),
            ssl_certfile=address.certificate,
            ssl_keyfile=address.key,
        )
        super().__init__(config)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn would raise the signal once more at the end, as if it had not been handled.
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        in_main = threading.current_thread() is threading.main_thread()
        if hasattr(signal, "SIGHUP") and in_main:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self.service.failure is not None

    def _reload(self) -> None:
        try:
            if self._on_reload is not None:
                self._on_reload(self.service)
        except (IknowError, OSError) as error:
            log.error("the tokens stay as they are: %s", error)
        self.service.start_task(self.service.reload())


def run(
    service: Service,
    address: Address,
    *,
    on_reload: Callable[[Service], None] | None = None,
    on_listening: Callable[[str], None] | None = None,
) -> None:
    """Serve until a signal ends it.

    Args:
        service: What to serve.
        address: Where. Other than loopback needs tokens.
        on_reload: See `Runner`.
        on_listening: Is told the URL as soon as it listens; models may still be loading.

    Raises:
        InputError: The address cannot be used.
        IknowError: The service cannot start.
    """
    if not service.settings.tokens and not is_loopback(address.host):
        raise InputError(
            f"{address.host} can be reached from other machines, and there are no tokens: give "
            "--tokens FILE, or listen on 127.0.0.1"
        )
    with _listen(address) as listening:
        if on_listening is not None:
            on_listening(replace(address, port=listening.getsockname()[1]).url)
        Runner(service, address, on_reload).run([listening])
    if service.failure is not None:
        raise service.failure


def _listen(address: Address) -> socket.socket:
    """A socket that listens; bound here, so that a busy port is told in one line."""
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((address.host, address.port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise InputError(f"cannot listen on {address.host}:{address.port}: {error}") from error
