"""Processes to be killed, and a count of what they acknowledged.

A `Nursery` is a process that has imported what is needed once, and forks a child whenever it is
asked to: an import takes seconds, a fork milliseconds. A child says in lines on the pipe that all
share what it has acknowledged. After its end the nursery says so on the same pipe, so that nothing
of what the child said can still be under way.

As a script it is the nursery itself: `python -m tests.serve.audit.crashing MODULE:FUNCTION`; the
function is what a child runs, with the words that the test gave and with a function that says a
line. For another victim, such as a service, name another function. If the module has a function
`prepare`, the nursery calls it before the first child.
"""

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
FAILURE = "! "
"""How a line begins that is no acknowledgement."""


class Nursery:
    """Starts children and kills them. work: what they run, as `module:function`.

    code: the exit code of the child that ended last by itself, or killed itself.
    """

    def __init__(self, work, **environment):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.serve.audit.crashing", work],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment},
        )
        self.said, self.failures = [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def start(self, *words):
        """Fork a child; it runs at once."""
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        kind, pid = self._line()
        assert kind == "born"
        self.pid = int(pid)

    def wait_for(self, count):
        """Wait until the child has acknowledged so much; returns whether it lives."""
        while count > 0:
            kind, text = self._line()
            if kind == "dead":
                self.code = int(text)
                return False
            count -= self._hear(text)
        return True

    def _hear(self, text):
        """Take note of a line; returns whether it is an acknowledgement, and no failure."""
        failed = text.startswith(FAILURE)
        (self.failures if failed else self.said).append(text)
        return not failed

    def kill(self):
        """Kill the child, and read what it said until then; returns its exit code."""
        os.kill(self.pid, signal.SIGKILL)
        while (line := self._line())[0] != "dead":
            self._hear(line[1])
        return int(line[1])

    def _line(self):
        line = self._process.stdout.readline()
        assert line, "the nursery itself has ended"
        kind, _, text = line.rstrip("\n").partition(" ")
        return kind, text


def run_nursery(work):
    """Fork a child for each line of standard input."""
    module, _, function = work.partition(":")
    imported = importlib.import_module(module)
    run = getattr(imported, function)
    getattr(imported, "prepare", lambda: None)()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                os.write(1, f"born {os.getpid()}\n".encode())  # before it says anything
                run(lambda text: os.write(1, f"said {text}\n".encode()), *line.rstrip().split("\t"))
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        os.write(1, f"dead {os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    run_nursery(sys.argv[1])
