"""A cluster that does not answer is named soon, and Ray starts without one."""

import os
import socket
import subprocess
import sys
import threading

import pytest

from iknow.errors import ClusterError, InputError
from iknow.search import ray as starting
from iknow.search.ray import _knock


@pytest.fixture
def listening():
    """A server that says what a test wants to everybody, and the address of it."""
    servers = []

    def listen(words):
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def answer():
            try:
                while True:
                    with server.accept()[0] as connection:
                        connection.sendall(words)
                        connection.recv(1000)
            except OSError:
                pass  # the test is over

        if words:
            threading.Thread(target=answer, daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield listen
    for server in servers:
        server.close()


def test_nobody_and_somebody_else_are_no_cluster(listening, monkeypatch):
    monkeypatch.setattr(starting, "ANSWERS_WITHIN", 0.3)
    with pytest.raises(ClusterError, match=r"no Ray cluster answers at '127.0.0.1:1' \(.*refused"):
        _knock("127.0.0.1:1")
    with pytest.raises(ClusterError, match="timed out"):
        _knock(listening(b""))
    for words in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"220"):
        with pytest.raises(ClusterError, match=r"is not Ray\): start one with `ray start --head`"):
            _knock("ray://" + listening(words))
    _knock(listening(bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))))  # speaks HTTP/2


@pytest.mark.parametrize(
    "address", ["", "here", "here:", ":1", "here:one", "here:99999", "ray://", 6379]
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(InputError, match="address must be HOST:PORT"):
        _knock(address)


@pytest.mark.slow
def test_a_cluster_answers(cluster):
    _knock(cluster.address)
    assert starting.join(cluster.address) == starting.join()
    with pytest.raises(InputError, match=r"has joined the Ray cluster at .*, and not '10.0.0.1:1'"):
        starting.join("10.0.0.1:1")


@pytest.mark.slow
def test_ray_starts_by_itself_in_silence_and_reports_nothing():
    """In a fresh process, without configuration; its connection does not survive a fork."""
    code = """
import os
import numpy as np
import iknow, sys
assert "ray" not in sys.modules
from iknow.errors import ClusterError
from iknow.search.ray import RayIndex
index = RayIndex(np.arange(6.0)[:, None], [0, 0, 1, 1, 2, 2], 3)
print(index.gather([[1.2]]).exemplars, index.n_shards, os.environ["RAY_USAGE_STATS_ENABLED"])
sys.stdout.flush()
if os.fork() == 0:
    try:
        index.gather([[1.2]])
    except ClusterError as error:
        print(str(error)[:29])
    sys.stdout.flush()
    os._exit(0)
os.wait()
"""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env=plain | {"RAY_AUTH_MODE": "disabled"},
    )
    assert result.stdout == "[[1 2 4]] 2 0\nRay does not survive a fork: \n", result.stderr
    assert "usage" not in result.stderr  # what Ray says when it reports to its makers
