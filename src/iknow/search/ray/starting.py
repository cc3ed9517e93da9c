"""Starting Ray on this machine, or joining a cluster.

A program that has called `ray.init` itself keeps what it chose. Else an address is joined, the one
given or RAY_ADDRESS; without one Ray starts here, for this process alone, without its dashboard and
without its logs. Nothing is reported to Ray's makers, unless RAY_USAGE_STATS_ENABLED asks for it.

`ray.init` waits for minutes for a cluster that does not answer, and cannot be interrupted. So we
knock first: its control service speaks gRPC, that is HTTP/2, where both sides begin with their
settings.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any

from iknow.core.text import shown
from iknow.errors import ClusterError, InputError
from iknow.locking import Lock

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when Ray starts

import ray

ANSWERS_WITHIN = 10.0
"""Seconds in which a cluster must answer."""
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
SETTINGS = 4  # the type of a frame, its fourth byte
CLIENT = "ray://"

_joining = Lock()
_processes: dict[str, int] = {}  # by connection, the process that made it


def join(address: str | None = None) -> str:
    """Join a cluster, or start one; what identifies the connection.

    address: HOST:PORT, ray://HOST:PORT, "auto" for one that runs here, or "local" for a new one.
    """
    with _joining.held():
        if not ray.is_initialized():
            _start(address)
        elif address is not None and address not in ("auto", "local"):
            _check_same(address)
        connection = str(ray.get_runtime_context().get_worker_id())
    if _processes.setdefault(connection, os.getpid()) != os.getpid():
        raise ClusterError(
            "Ray does not survive a fork: make or load the classifier in the process that uses it"
        )
    return connection


def _check_same(address: str) -> None:
    """Refuse the address of another cluster than the one that was joined: there can be one only."""
    joined = str(ray.get_runtime_context().gcs_address)
    host, port = _split(address)
    is_same = f"{host}:{port}" == joined or (
        host in ("localhost", "127.0.0.1") and joined.endswith(f":{port}")
    )
    if not is_same and not address.startswith(CLIENT):  # whose port is another one
        raise InputError(
            f"this process has joined the Ray cluster at {joined}, and not {shown(address)}: leave "
            "out the address, or call ray.shutdown() first"
        )


def _start(address: str | None) -> None:
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if where == "local":
        quiet["include_dashboard"] = False
    elif where != "auto":
        _knock(where)
    try:
        ray.init(address=where, **quiet)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
        with suppress(Exception):
            ray.shutdown()
        raise ClusterError(f"Ray could not be reached at {shown(where)}: {error}") from error


def _knock(address: str) -> None:
    """Raise an error unless a server of the right kind answers."""
    host, port = _split(address)
    problem = "what answers there is not Ray"
    try:
        with socket.create_connection((host, port), ANSWERS_WITHIN) as server:
            if os.environ.get("RAY_USE_TLS", "0") in ("1", "true"):
                return  # it says nothing before the certificates are checked
            server.settimeout(ANSWERS_WITHIN)
            server.sendall(HELLO)
            if _reads_settings(server):
                return
    except OSError as error:
        problem = str(error)
    raise ClusterError(
        f"no Ray cluster answers at {shown(address)} ({problem}): start one with `ray start "
        "--head`, or leave out the address to start Ray on this machine"
    )


def _split(address: Any) -> tuple[str, int]:
    """The host and the port of an address."""
    text = address if isinstance(address, str) else ""
    host, _, port = text.removeprefix(CLIENT).rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(
            f"address must be HOST:PORT, ray://HOST:PORT, auto or local; got {shown(address)}"
        )
    return host.strip("[]"), int(port)


def _reads_settings(server: socket.socket) -> bool:
    """Whether the first frame from a server is that of its settings."""
    head = b""
    while len(head) < 4 and (more := server.recv(4 - len(head))):
        head += more
    return len(head) == 4 and head[3] == SETTINGS
