"""Processes: a server that is started, awaited, looked at and ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.service.wire import Asked, Wire

STARTING = 300.0
READY = Asked("/readyz", method="GET", kind=None)


@dataclass(frozen=True)
class Server:
    """A server process that listens on a port of loopback."""

    process: subprocess.Popen[str]
    port: int

    def await_ready(self, path: str = "/readyz") -> None:
        """Wait until its models are loaded."""
        end = time.monotonic() + STARTING
        with Wire(self.port) as wire:
            while wire.ask(Asked(path, method="GET", kind=None)).status != 200:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"the server is not ready: {self.process.poll()}")
                time.sleep(0.02)

    def end(self, how: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal, and wait until it has ended; its exit status."""
        self.process.send_signal(how)
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status

    def resident(self) -> int:
        """Bytes of memory that it holds."""
        return self._status("VmRSS") * 1024

    def threads(self) -> int:
        return self._status("Threads")

    def files(self) -> int:
        """Files and connections that it holds open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
        line = next(line for line in text.splitlines() if line.startswith(name + ":"))
        return int(line.split()[1])


def start(command: Sequence[str]) -> Server:
    """Start a server that prints its URL, or its port, on its first line."""
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise RuntimeError(f"the server ended with {process.wait()} before it listened")
    return Server(process, int(line.rpartition(":")[2]))


@contextmanager
def running(command: Sequence[str], ready: str = "/readyz") -> Iterator[Server]:
    """A server, ready, until the block ends."""
    server = start(command)
    try:
        server.await_ready(ready)
        yield server
    finally:
        server.end(signal.SIGTERM)
