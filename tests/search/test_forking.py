"""A child that is forked while another thread searches for the first time searches too."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("numba")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

FORK = """
import os, signal, sys, threading
import numpy as np

def fork_and(act):
    # Whether `act` is true in a child; one that hangs is killed.
    child = os.fork()
    if child == 0:
        signal.alarm(80)
        os._exit(0 if act() else 1)
    return os.waitpid(child, 0)[1]
"""

WHILE_COMPILING = """
import numba.core.event as event
from iknow.search.kernels.numba.products import measure

began = threading.Event()

class Listener(event.Listener):
    def on_start(self, event): began.set()
    def on_end(self, event): pass

def use():
    points = np.array([[3, 4]], dtype=np.float32)
    return measure(np.zeros((1, 2), dtype=np.float32), 0, points, 0) == 5

event.register("numba:compile", Listener())
thread = threading.Thread(target=use)
thread.start()
began.wait()
"""

WHILE_IMPORTING = """
from iknow import Ball
from iknow.metrics import Euclidean
from iknow.search.layer import LayerIndex

points = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32)
index = LayerIndex(points, np.arange(60) // 20, 3, np.arange(60), Euclidean)

def use():
    distances = index.gather(points).class_distances
    belief = np.zeros(60, dtype=np.int64)
    decision = index.decide(points, Ball(0.0), belief)
    return (distances.min(axis=1) == 0).all() and decision.support.any()

thread = threading.Thread(target=use)
thread.start()
while "numba" not in sys.modules:
    pass
"""

WHILE_LIMITED = """
from threadpoolctl import OpenBLASController, threadpool_info, threadpool_limits
from iknow.search.threads import single_threaded_blas

def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

threadpool_limits(2, user_api="blas")
if hasattr(OpenBLASController, "clear_controlling_thread"):
    OpenBLASController.clear_controlling_thread(force=True)
inside, done = threading.Event(), threading.Event()

def hold():
    with single_threaded_blas():
        inside.set()
        done.wait(50)

def use():
    with single_threaded_blas():
        one = blas_threads() == {1}
    done.set()
    return one and blas_threads() == {2}

thread = threading.Thread(target=hold)
thread.start()
inside.wait()
"""

END = """
status = fork_and(use)
if "done" in globals(): done.set()
thread.join()
print(status, bool(use()))
"""


@pytest.mark.parametrize(
    "first_use",
    [WHILE_COMPILING, WHILE_IMPORTING, WHILE_LIMITED],
    ids=["compile", "import", "blas"],
)
def test_a_child_forked_meanwhile_searches_too(first_use, tmp_path):
    fresh = {"XDG_CACHE_HOME": str(tmp_path)} if first_use == WHILE_COMPILING else {}
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK + first_use + END],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, **fresh},
        check=True,
    )
    assert found.stdout.split() == ["0", "True"], found.stderr
