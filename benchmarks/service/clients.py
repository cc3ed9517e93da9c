"""Clients: a process that asks a server over kept connections, as fast as it answers.

It reads one JSON object for each measurement: port, request (in hexadecimal), clients, seconds; and
writes what it found: requests, seconds, and the latencies' quantiles in milliseconds.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np

LENGTH = b"content-length: "


class Clients:
    """The process, for those who measure."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "benchmarks.service.clients"]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, text=True, bufsize=1, **pipes)

    def ask(self, port: int, request: bytes, clients: int, seconds: float) -> dict[str, float]:
        asked = {"port": port, "request": request.hex(), "clients": clients, "seconds": seconds}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        found: dict[str, float] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def measure(port: int, request: bytes, clients: int, seconds: float) -> dict[str, float]:
    """Ask with several clients at a time."""
    taken: list[list[float]] = [[] for _ in range(clients)]
    failures: list[bytes] = []
    start = time.perf_counter()
    threads = [
        threading.Thread(target=_ask, args=(port, request, start + seconds, each, failures))
        for each in taken
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    passed = time.perf_counter() - start
    if failures:
        raise RuntimeError(f"the server answered {failures[0][:500]!r}")
    latencies = 1e3 * np.concatenate([np.array(each) for each in taken])
    p50, p99 = np.percentile(latencies, [50, 99]).tolist()
    return {"requests": len(latencies), "seconds": passed, "p50_ms": p50, "p99_ms": p99}


def _ask(port: int, request: bytes, end: float, taken: list[float], failures: list[bytes]) -> None:
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (start := time.perf_counter()) < end:
            connection.sendall(request)
            answer = _read(connection)
            if not answer.startswith(b"HTTP/1.1 200"):
                failures.append(answer)
                return
            taken.append(time.perf_counter() - start)


def _read(connection: socket.socket) -> bytes:
    content = connection.recv(1 << 16)
    while (end := content.find(b"\r\n\r\n")) < 0:
        content += _more(connection)
    head = content[:end].lower()
    place = head.index(LENGTH) + len(LENGTH)
    length = int(head[place:].split(b"\r\n", 1)[0])
    parts, missing = [content], end + 4 + length - len(content)
    while missing > 0:
        parts.append(_more(connection))
        missing -= len(parts[-1])
    return b"".join(parts)


def _more(connection: socket.socket) -> bytes:
    if not (part := connection.recv(1 << 16)):
        raise ConnectionError("the server closed the connection")
    return part


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        asked["request"] = bytes.fromhex(asked["request"])
        print(json.dumps(measure(**asked)), flush=True)


if __name__ == "__main__":
    main()
