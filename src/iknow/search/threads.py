"""Running numpy work on all cores: one Python thread per core, one BLAS thread in each.

Many small matrix products that stay in a core's cache beat one large product shared by all cores,
but only if BLAS does not start threads of its own inside each of them.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, TypeVar

from joblib import cpu_count
from threadpoolctl import OpenBLASController, ThreadpoolController

from iknow.locking import unforked

Task = TypeVar("Task")

_users: dict[object, int] = {}
"""Who is inside `single_threaded_blas`, and in which thread."""
_limiter: Any = None
"""What knows the limit that the first of them found."""


@cache
def n_cores() -> int:
    """Cores this process may use."""
    return max(1, int(cpu_count()))


def for_each(work: Callable[[Task], None], tasks: Iterable[Task]) -> None:
    """Run `work` on every task, on all cores, with BLAS kept to one thread."""
    with single_threaded_blas():
        share(work, list(tasks))


def share(work: Callable[[Task], None], tasks: Sequence[Task]) -> None:
    """Run `work` on every task, on all cores; the first error stops the rest and is raised."""
    if len(tasks) <= 1:  # a pool would cost more than many a single task
        for task in tasks:
            work(task)
        return
    with ThreadPoolExecutor(n_cores()) as pool:
        futures = [pool.submit(work, task) for task in tasks]
        try:
            for future in futures:
                future.result()
        except BaseException:
            for future in futures:
                future.cancel()
            raise


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep BLAS to one thread while any caller is inside.

    The limit is a setting of the process. Counting the callers means that the last one out restores
    what the first one found; limits that overlap would otherwise restore each other's. The two need
    not be the same thread, so the right to set the limit is given back each time.
    """
    global _limiter
    user = object()
    with unforked():
        if _limiter is None:
            _limiter = _controller(len(sys.modules)).limit(limits=1, user_api="blas")
            _give_up_control()
        _users[user] = threading.get_ident()
    try:
        yield
    finally:
        with unforked():
            del _users[user]
            if not _users:
                _limiter.restore_original_limits()
                _limiter = None
                _give_up_control()


def _after_fork_in_child() -> None:
    """Forget the users whose threads are not in the child.

    BLAS stays at one thread until the next user is out, who restores what the first one found. To
    restore it here would start threads in a child that may never need them.
    """
    for user in [user for user, thread in _users.items() if thread != threading.get_ident()]:
        del _users[user]


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _give_up_control() -> None:
    """Let any thread set OpenBLAS's limit: threadpoolctl reserves that to the first to do it."""
    if hasattr(OpenBLASController, "clear_controlling_thread"):
        OpenBLASController.clear_controlling_thread()


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> ThreadpoolController:
    """What limits the libraries loaded by now: each import may have brought another BLAS."""
    return ThreadpoolController()
