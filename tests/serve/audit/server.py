"""A real PostgreSQL server for tests, from Debian's binaries, in a folder of its own."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.conditions import is_running

REQUIRE = "IKNOW_REQUIRE_POSTGRES"
PASSWORD = "pa:ss@w/rd %40"
QUOTED = "pa%3Ass%40w%2Frd%20%2540"
SETTINGS = {"max_connections": "30", "shared_buffers": "16MB", "listen_addresses": "127.0.0.1"}


def find_binaries():
    """The folder of `initdb`, which is not on the PATH; the newest version."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    folders = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((path.parent for path in folders), key=lambda p: int(p.parent.name), default=None)


class Server:
    """A server on a free port of the loopback interface, which keeps its port when restarted."""

    def __init__(self):
        self.binaries = find_binaries()
        if self.binaries is None:
            told = "PostgreSQL is not installed: apt install postgresql"
            if os.environ.get(REQUIRE) == "1":
                pytest.fail(f"{told} ({REQUIRE} is set)")
            pytest.skip(told)
        self.folder = Path(tempfile.mkdtemp(prefix="iknow-postgres-"))
        self.user = {}
        if os.geteuid() == 0:  # the server refuses to run as root
            account = pwd.getpwnam("postgres")
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self.user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        subprocess.run(
            [self.binaries / "initdb", "-D", self.folder / "data", "-U", "iknow", "--no-sync",
             "-A", "scram-sha-256", "--pwfile", secret],
            check=True, stdout=subprocess.DEVNULL, **self.user,
        )  # fmt: skip
        secret.unlink()

    def start(self):
        """Start it, and wait until it answers."""
        settings = {**SETTINGS, "port": str(self.port), "unix_socket_directories": self.folder}
        options = [f"--{name}={value}" for name, value in settings.items()]
        command = [self.binaries / "postgres", "-D", self.folder / "data", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **self.user)
        ready = [self.binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, check=False).returncode:
            assert self.process.poll() is None, "the server did not start"

    def stop(self, how=signal.SIGINT):
        """Stop it: SIGINT in order, SIGQUIT without a checkpoint, SIGKILL without a warning."""
        children = _children_of(self.process.pid)
        self.process.send_signal(how)
        self.process.wait()
        while any(is_running(child) for child in children):
            if how == signal.SIGKILL:
                for child in filter(is_running, children):
                    os.kill(child, signal.SIGKILL)

    def remove(self):
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database="postgres", password=QUOTED):
        return f"postgresql://iknow:{password}@127.0.0.1:{self.port}/{database}"

    def connect(self):
        import psycopg

        return psycopg.connect(self.url(), autocommit=True)


def _children_of(parent):
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(status.parent.name))
    return found
