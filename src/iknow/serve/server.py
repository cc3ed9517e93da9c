"""Running: uvicorn, with a limit on how long a request's head may take, and signals.

SIGTERM, SIGINT   stop listening, answer what is under way, close
SIGHUP            load bundles that changed, and the tokens
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
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
MOST_CONNECTIONS = 1_000


@dataclass(frozen=True)
class Address:
    """Where to listen, and the files of TLS."""

    host: str = "127.0.0.1"
    port: int = 8000
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{self.port}"


class Protocol(HttpToolsProtocol):
    """uvicorn's own, which waits forever for the head of a request."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._stop_waiting()
        self._waiting = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


class Runner(Server):
    """A server that ends with success when it is told to end."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn would raise the signal once more at the end, as if it had not been handled.
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


def make_server(
    service: Service, address: Address, on_failure: Callable[[Exception], None] | None = None
) -> Runner:
    """A server that does not run yet. on_failure: is told why the service could not start."""
    config = Config(
        create_app(service, on_failure=on_failure),
        http=Protocol,
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
        ssl_keyfile_password=address.key_password,
    )
    return Runner(config)


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
        on_reload: Is called at SIGHUP, before bundles are loaded: to read the tokens again.
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
    failures: list[Exception] = []

    def fail(error: Exception) -> None:
        failures.append(error)
        server.should_exit = True

    server = make_server(service, address, fail)
    listening = _listen(address)
    try:
        host, port = listening.getsockname()[:2]
        if on_listening is not None:
            on_listening(Address(host, port, address.certificate).url)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(server, listening, service, on_reload))
    finally:
        listening.close()
    if failures:
        raise failures[0]


async def _serve(
    server: Server,
    listening: socket.socket,
    service: Service,
    on_reload: Callable[[Service], None] | None,
) -> None:
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[Any]]()

    def reload() -> None:
        try:
            if on_reload is not None:
                on_reload(service)
        except (IknowError, OSError) as error:
            log.error("the tokens stay as they are: %s", error)
        task = asyncio.create_task(service.reload())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    if hasattr(signal, "SIGHUP"):
        loop.add_signal_handler(signal.SIGHUP, reload)
    await server.serve([listening])


def _listen(address: Address) -> socket.socket:
    """A socket that listens; bound here, so that a busy port is told in one line."""
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((address.host, address.port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise InputError(f"cannot listen on {address.host}:{address.port}: {error}") from error


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        from uvloop import new_event_loop
    except ImportError:  # there is none for Windows
        return None
    return new_event_loop
