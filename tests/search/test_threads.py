"""Work on all cores, with BLAS held to one thread meanwhile and let go afterwards."""

import subprocess
import sys
import threading
import time

import pytest
import threadpoolctl
from threadpoolctl import threadpool_info, threadpool_limits

from iknow.search.threads import for_each, n_cores, single_threaded_blas


def blas_threads():
    """Of each BLAS whose number is the process's; OpenMP, as in FAISS, has one per thread."""
    return [
        pool["num_threads"]
        for pool in threadpool_info()
        if pool["user_api"] == "blas" and pool.get("threading_layer") != "openmp"
    ]


def release_control():
    """threadpoolctl 3.8 lets one thread alone set OpenBLAS, until that one is released."""
    controller = getattr(threadpoolctl, "OpenBLASController", None)
    if hasattr(controller, "clear_controlling_thread"):
        controller.clear_controlling_thread(force=True)


@pytest.fixture(autouse=True)
def two_blas_threads():
    """Start from a limit that differs from one, whatever the machine."""
    limiter = threadpool_limits(2, user_api="blas")
    release_control()
    try:
        if set(blas_threads()) != {2}:
            pytest.skip("no BLAS here whose threads can be counted")
        yield
        assert set(blas_threads()) == {2}  # every test leaves the limit as it was
    finally:
        release_control()
        limiter.restore_original_limits()
        release_control()


def test_blas_has_one_thread_inside_and_its_own_number_afterwards():
    with single_threaded_blas():
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {2}


def test_nested_use_lets_go_only_at_the_outermost_end():
    with single_threaded_blas():
        with single_threaded_blas():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {2}


def test_overlapping_use_holds_until_the_last_is_out_and_restores_what_the_first_found():
    """The first thread lives on, as the worker of a service does."""
    first_is_in, second_is_in, first_is_out, all_done = (threading.Event() for _ in range(4))
    seen = {}

    def first():
        with single_threaded_blas():
            first_is_in.set()
            second_is_in.wait(10)
        first_is_out.set()
        all_done.wait(10)

    def second():
        first_is_in.wait(10)
        with single_threaded_blas():
            second_is_in.set()
            first_is_out.wait(10)
            seen["with one inside"] = set(blas_threads())
        seen["with none inside"] = set(blas_threads())
        all_done.set()

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert seen == {"with one inside": {1}, "with none inside": {2}}


def test_a_thread_that_lives_on_does_not_keep_others_from_setting_the_limit():
    seen, used, done = set(), threading.Event(), threading.Event()

    def earlier_user():
        with single_threaded_blas():
            used.set()
        done.wait(10)

    thread = threading.Thread(target=earlier_user)
    thread.start()
    used.wait(10)
    for _ in range(100):  # until the other has left
        if set(blas_threads()) == {2}:
            break
        time.sleep(0.01)
    with single_threaded_blas():
        seen = set(blas_threads())
    done.set()
    thread.join(10)
    assert seen == {1}


def test_many_concurrent_users_leave_the_limit_as_it_was():
    def work():
        for _ in range(20):
            for_each(lambda _: None, range(3))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(blas_threads()) == {2}


def test_the_limit_is_lifted_after_an_error():
    with pytest.raises(ZeroDivisionError), single_threaded_blas():
        1 / 0  # noqa: B018
    assert set(blas_threads()) == {2}


def test_every_task_is_done_once_with_blas_held():
    done, limits = [], []

    def work(task):
        done.append(task)
        limits.extend(blas_threads())

    for_each(work, range(50))
    assert sorted(done) == list(range(50))
    assert set(limits) == {1}


def test_the_error_of_a_task_comes_out_and_the_limit_is_lifted():
    def work(task):
        if task == 3:
            raise ValueError(f"task {task}")

    with pytest.raises(ValueError, match="task 3"):
        for_each(work, range(10))
    assert set(blas_threads()) == {2}


def test_an_error_keeps_tasks_that_have_not_begun_from_running():
    begun = []

    def work(task):
        begun.append(task)
        if task == 0:
            raise KeyError("first")
        time.sleep(0.01)

    with pytest.raises(KeyError, match="first"):
        for_each(work, range(100 * n_cores()))
    assert len(begun) < 50 * n_cores()


def test_no_tasks_are_no_work():
    for_each(lambda _: pytest.fail("there was a task"), [])


def test_there_is_at_least_one_core():
    assert n_cores() >= 1


def test_a_blas_that_is_loaded_later_is_held_too():
    pytest.importorskip("faiss", reason="FAISS brings a BLAS of its own")
    program = """
from threadpoolctl import threadpool_info
from iknow.search.threads import single_threaded_blas
with single_threaded_blas():
    before = len(threadpool_info())
import faiss
with single_threaded_blas():
    found = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
assert len(threadpool_info()) > before
assert len(found) > 1
print({pool["num_threads"] for pool in found})
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "{1}"
