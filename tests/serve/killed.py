"""A service that is killed while it changes a bundle: before or after a certain call.

A child serves a bundle, changes it once, and counts what reaches the disk meanwhile: each write,
fsync and truncation of the bundle, and each commit of the journal. At the call that it is told, it
is killed. If the power fails too, what was written to the bundle since the last fsync is lost.
"""

import asyncio
import errno
import itertools
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np

from iknow import Ball, EpistemicClassifier
from iknow.errors import IknowError
from iknow.models import PrecomputedModel
from iknow.serve.audit import Call
from iknow.serve.schema import ChangeRequest, Relabel
from iknow.serve.served import serve_classifier
from iknow.serve.service import Service
from iknow.serve.settings import Settings

CHANGE = ChangeRequest(remove=[3, 5], relabel=[Relabel(7, 1)], why="drift")
CALLS = ("write", "fsync", "ftruncate")


def make_classifier():
    """A small classifier whose bundle needs no model."""
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 3
    ec = EpistemicClassifier(PrecomputedModel(), rule=Ball(1.0), progress=False)
    return ec.fit((np.eye(3)[y], {"layer": X}), y)


def prepare():
    """Load and compile what every child needs."""
    serve_classifier("digits", make_classifier())


class Disk:
    """Counts calls about a file, and kills this process before or after one of them.

    at: twice the number of the call from 0, and one more for after it. power: whether what was not
    synced is lost. full: the call that fails as on a full disk.
    """

    def __init__(self, path, at, power, full):
        self.path, self.at, self.power, self.full = path, at, power, full
        self.n_calls, self.file = 0, os.stat(path)
        self.synced, self.real = path.read_bytes(), {name: getattr(os, name) for name in CALLS}

    def watch(self, journal):
        """Count from now on."""
        for name, real in self.real.items():
            setattr(os, name, self._counted(real, lambda descriptor, *_: self._is_it(descriptor)))
        journal.write = self._counted(journal.write, lambda *_: True)

    def _is_it(self, descriptor):
        return os.path.samestat(os.fstat(descriptor), self.file)

    def _counted(self, real, counts):
        def call(*arguments):
            if not counts(*arguments):
                return real(*arguments)
            number, self.n_calls = self.n_calls, self.n_calls + 1
            if 2 * number == self.at:
                self.end()
            if number == self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            result = real(*arguments)
            if real is self.real["fsync"]:
                self.synced = self.path.read_bytes()
            if 2 * number + 1 == self.at:
                self.end()
            return result

        return call

    def end(self):
        if self.power:
            descriptor = os.open(self.path, os.O_WRONLY)
            os.pwrite(descriptor, self.synced, 0)
            self.real["ftruncate"](descriptor, len(self.synced))
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()  # no thread goes on


def failing_fsync(path, which, number=errno.ENOSPC):
    """An `os.fsync` that fails for some of its calls about a file, counted from 1."""
    real, file, calls = os.fsync, os.stat(path), []

    def fsync(descriptor):
        if os.path.samestat(os.fstat(descriptor), file):
            calls.append(descriptor)
            if which(len(calls)):
                raise OSError(number, os.strerror(number))
        real(descriptor)

    return fsync


def make_service(path, audit, **settings):
    """A service of a bundle, which needs no model to remove and relabel."""
    served = serve_classifier("digits", EpistemicClassifier.load(path))
    return Service([served], Settings(audit=str(audit), **settings))


def change(say, path, audit, at, power, full):
    """Change a bundle; say `made SHA256` or `refused STATUS` if nobody killed us meanwhile."""
    disk = Disk(Path(path), int(at), power == "True", int(full))

    async def work():
        service = make_service(path, audit)
        await service.start()
        disk.watch(service.audit.journal)
        try:
            done = await service.change("digits", CHANGE, Call("Ada", "r1"))
            say(f"made {done.bundle}")
        except IknowError as error:
            say(f"refused {error.status}")
        time.sleep(600)

    asyncio.run(work())


def change_forever(say, path, audit):
    """Change a bundle again and again, and say the sha256 after each change."""

    async def work():
        service = make_service(path, audit)
        await service.start()
        for i in itertools.count():
            # Unlike any other, as two that say the same in one second cannot be told apart.
            why = f"{os.getpid()} {i}"
            label = ChangeRequest(relabel=[Relabel(1 + i % 30, i % 3)], why=why)
            done = await service.change("digits", label, Call("Ada", f"r{i}"))
            say(done.bundle)

    asyncio.run(work())
