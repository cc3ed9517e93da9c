"""Locks that a fork leaves open, and what a fork waits for."""

import copy
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from iknow.locking import Lock, cached_property

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def run_program(code, **environment):
    """Run a program that forks in a process of its own; it is killed if its child hangs."""
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **environment},
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.split()


FORK = """
import os, signal, threading

def fork_and(act):
    # What `act` prints in a child; a child that hangs is killed, and prints nothing.
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os.write(writer, str(act()).encode())
        os._exit(0)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    return os.read(reader, 1000).decode() if status == 0 else f"hung or failed: {status}"
"""


class Slow:
    """Makes a value while others wait for leave to go on."""

    def __init__(self):
        self.began, self.go_on, self.made = threading.Event(), threading.Event(), []

    @cached_property
    def value(self):
        """What it is."""
        self.began.set()
        self.go_on.wait(30)
        self.made.append(1)
        return 7


def test_a_value_is_made_once_however_many_threads_ask_first():
    slow = Slow()
    with ThreadPoolExecutor(8) as pool:
        values = [pool.submit(lambda: slow.value) for _ in range(8)]
        slow.began.wait(30)
        slow.go_on.set()
        assert [value.result() for value in values] == [7] * 8
    assert slow.made == [1]
    assert Slow.value.__doc__ == "What it is."


def test_one_instance_does_not_wait_for_another():
    slow, quick = Slow(), Slow()
    quick.go_on.set()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: slow.value)
        slow.began.wait(30)
        assert quick.value == 7
        slow.go_on.set()
        assert waiting.result() == 7


def test_a_value_may_need_another_of_the_same_instance():
    class Chained:
        @cached_property
        def one(self):
            return self.two + 1

        @cached_property
        def two(self):
            return 2

    assert Chained().one == 3


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_a_copy_of_a_lock_that_is_held_is_open(duplicate):
    lock = Lock()
    with lock.held():
        other = duplicate(lock)
    with ThreadPoolExecutor(1) as pool, lock.held():
        assert pool.submit(lambda: other._lock.acquire(timeout=10)).result()


@needs_fork
def test_a_lock_that_another_thread_holds_is_open_in_the_child():
    assert run_program(
        FORK
        + """
from iknow.locking import Lock, cached_property

lock, held, done = Lock(), threading.Event(), threading.Event()

class Value:
    @cached_property
    def value(self):
        if threading.current_thread() is not threading.main_thread():
            held.set()
            done.wait(50)
        return 7

shared = Value()

def hold():
    with lock.held():
        shared.value

def use():
    with lock.held():
        return shared.value

thread = threading.Thread(target=hold)
thread.start()
held.wait()
print(fork_and(use))
done.set()
thread.join()
print(use())
"""
    ) == ["7", "7"]


@needs_fork
def test_a_fork_within_a_held_lock_leaves_both_processes_in_order():
    assert run_program(
        FORK
        + """
from iknow.locking import Lock, unforked
lock = Lock()
with lock.held(), unforked():
    print(fork_and(lambda: 1))
def use():
    with lock.held(), unforked():
        return 2
print(fork_and(use), use())
"""
    ) == ["1", "2", "2"]


@needs_fork
def test_a_fork_waits_until_what_must_not_be_cut_in_half_is_over():
    found = run_program(
        FORK
        + """
from iknow.locking import unforked
steps, inside = [], threading.Event()

def two_steps():
    with unforked():
        steps.append("one")
        inside.set()
        threading.Event().wait(0.5)  # long enough for the fork to be asked for
        steps.append("two")

thread = threading.Thread(target=two_steps)
thread.start()
inside.wait()
print(fork_and(lambda: len(steps)))
thread.join()
"""
    )
    assert found == ["2"]


@needs_fork
def test_a_fork_also_waits_for_what_is_named_while_it_waits():
    # As by an import that names the lock of a compiler, which is then used at once.
    found = run_program(
        FORK
        + """
from iknow.locking import fork_waits_for, unforked
compiler, inside = threading.RLock(), threading.Event()
steps = []

def load_and_compile():
    with unforked():
        inside.set()
        threading.Event().wait(0.5)  # long enough for the fork to be asked for
        fork_waits_for(compiler)
        compiler.acquire()
    threading.Event().wait(0.5)
    steps.append("compiled")
    compiler.release()

thread = threading.Thread(target=load_and_compile)
thread.start()
inside.wait()
print(fork_and(lambda: len(steps)))
thread.join()
"""
    )
    assert found == ["1"]
