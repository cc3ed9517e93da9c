"""Servers that start at once: a process that has everything loaded forks one for each line.

    python -m benchmarks.service.forking '{"audit": "audit.db"}'

Each child is a whole service in a process of its own, which prints its number and its URL.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass

from benchmarks.service.process import READY
from benchmarks.service.wire import Wire


@dataclass(frozen=True)
class Forker:
    """The process that forks servers."""

    process: subprocess.Popen[str]

    @classmethod
    def start(cls, settings: dict[str, object]) -> Forker:
        command = [sys.executable, "-m", "benchmarks.service.forking", json.dumps(settings)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return cls(subprocess.Popen(command, text=True, bufsize=1, **pipes))  # type: ignore[call-overload]

    def serve(self) -> tuple[int, int]:
        """Start a server; its process and its port, when it is ready."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        number, url = self.process.stdout.readline().split()
        port = int(url.rpartition(":")[2])
        with Wire(port) as wire:
            while wire.ask(READY).status != 200:
                pass
        return int(number), port

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def main(settings: str) -> None:
    from benchmarks.service.small import digits
    from iknow.serve.served import serve_classifier
    from iknow.serve.server import run  # noqa: F401 - loaded once, for all children

    served = serve_classifier("digits", digits()[0])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead need no burial
    for _ in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _serve(served, json.loads(settings))
            os._exit(0)


def _serve(served: object, settings: dict[str, object]) -> None:
    from iknow.serve.server import Address, run
    from iknow.serve.service import Service
    from iknow.serve.settings import Settings

    service = Service([served], Settings(**settings))  # type: ignore[list-item, arg-type]
    run(service, Address(port=0), on_listening=lambda url: print(os.getpid(), url, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
