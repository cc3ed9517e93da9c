"""Locks for threads that share a classifier, and for processes that fork.

A forked child has its parent's memory but only the thread that forked. A lock that another thread
held stays locked in the child, and any thread that waits for it there waits forever. Two remedies:

- a `Lock` is released in every child. Use it for work whose result appears in one step: the child
  finds the result, or does the work again;
- a fork waits for the locks given to `fork_waits_for`, and for `unforked` blocks. Use them for work
  that must not be left half done: changing a process-wide setting, importing, compiling.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

Value = TypeVar("Value")


class Lock:
    """A reentrant lock that is released in a forked child. Copies and pickles are new locks."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def held(self) -> AbstractContextManager[Any]:
        return self._lock  # looked up once: a child releases the lock that it acquired

    def __reduce__(self) -> tuple[Any, ...]:
        return Lock, ()


class cached_property(functools.cached_property[Value]):  # noqa: N801
    """Like functools.cached_property, but computes the value once, however many threads read it.

    In Python 3.11 functools' version holds one lock for all instances, which stays locked in a
    child forked meanwhile; later versions hold none, and every thread that reads it computes it.
    """

    if not TYPE_CHECKING:  # the types are functools'

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            values = vars(instance)
            lock = values.get("_making") or values.setdefault("_making", Lock())
            with lock._lock:
                if self.attrname not in values:
                    values[self.attrname] = self.func(instance)
            return values[self.attrname]


class unlocked_property(functools.cached_property[Value]):  # noqa: N801
    """Like functools.cached_property, without a lock in any version: threads that read a value at
    the same time may each compute it, which for little work takes less time than locks.
    """

    def __init__(self, func: Callable[[Any], Value]) -> None:
        super().__init__(func)
        self.lock: Any = nullcontext()  # of Python 3.11


def unforked() -> AbstractContextManager[Any]:
    """Delay forks until the block ends. Inside, do not wait for anything a forking thread holds."""
    return _unforked


def fork_waits_for(lock: Any) -> None:
    """Delay forks until nobody holds a lock. Locks are acquired in the order they are given."""
    _waited_for.append(lock)


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()
_unforked = threading.RLock()
_waited_for: list[Any] = [_unforked]
_taken: list[Any] = []


def _before_fork() -> None:
    # The import that this waits for may add locks meanwhile, so the loop reads the list as it
    # grows. It notes the acquired ones, as the list may grow again before they are released.
    taken = []
    for lock in _waited_for:
        lock.acquire()
        taken.append(lock)
    _taken[:] = taken


def _after_fork_in_parent() -> None:
    for lock in reversed(_taken):
        lock.release()


def _after_fork_in_child() -> None:
    for lock in list(_locks):
        lock._lock = threading.RLock()
    _after_fork_in_parent()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
