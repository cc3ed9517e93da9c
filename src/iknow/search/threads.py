"""Running numpy work on all cores: one Python thread per core, one BLAS thread in each.

Many small matrix products that stay in a core's cache beat one large product on all cores, but only
if BLAS does not start threads of its own in each of them.
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
Result = TypeVar("Result")

_users: dict[object, int] = {}  # the callers inside `single_threaded_blas`, with their threads
_limiter: Any = None  # remembers the limit that the first of them found


@cache
def n_cores() -> int:
    """Cores this process may use."""
    return max(1, int(cpu_count()))


def for_each(work: Callable[[Task], Result], tasks: Iterable[Task]) -> list[Result]:
    """The results of `work` on every task, on all cores, with BLAS kept to one thread."""
    with single_threaded_blas():
        return share(work, list(tasks))


def share(work: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
    """The results of `work` on every task, on all cores; the first error stops the rest."""
    if len(tasks) <= 1:  # a pool may cost more than the task
        return [work(task) for task in tasks]
    with ThreadPoolExecutor(n_cores()) as pool:
        return list(pool.map(work, tasks))  # an error cancels the rest


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep BLAS to one thread while any caller is inside.

    The limit belongs to the process, so we count callers: the first sets it and the last restores
    it, perhaps in another thread, so each gives up the right to set it.
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

    The next user restores the limit. Restoring it here would start threads that may never be used.
    """
    for user in [user for user, thread in _users.items() if thread != threading.get_ident()]:
        del _users[user]


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _give_up_control() -> None:
    """Let any thread set OpenBLAS's limit, which threadpoolctl reserves for the first to do so."""
    if hasattr(OpenBLASController, "clear_controlling_thread"):
        OpenBLASController.clear_controlling_thread()


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> ThreadpoolController:
    """Limits the libraries loaded so far; each import may add another BLAS."""
    return ThreadpoolController()
