"""Locks for threads that share a classifier, and for processes that fork.

A forked child has its parent's memory but only the thread that forked. A lock that another thread
held stays shut in the child, and whoever waits for it there waits forever. There are two remedies:

- a `Lock` is open in every child. It is for work whose result appears in one step: the child finds
  the result, or does the work again;
- a fork waits for what `fork_waits_for` names, and for `unforked` blocks. They are for what would
  otherwise be left half done: a setting of the process, an import, a compiler at work.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar, overload

Value = TypeVar("Value")


class Acquirable(Protocol):
    """Anything that can be held."""

    def acquire(self) -> Any: ...

    def release(self) -> Any: ...


class Lock:
    """A lock that its holder may take again, and that is open in a forked child.

    Copies and pickles are new locks: what holds one can be copied.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock."""
        with self._lock:  # looked up once: in a child, what was taken is what is given back
            yield

    def __reduce__(self) -> tuple[Any, ...]:
        return Lock, ()


class cached_property(Generic[Value]):  # noqa: N801
    """As that of functools, but made once, however many threads ask first.

    In Python 3.11 functools' own holds one lock for all instances, shut in a child that was forked
    meanwhile; later ones hold none, and every thread that asks makes the value.
    """

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[Value]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> cached_property[Value] | Value:
        if instance is None:
            return self
        values = vars(instance)
        with values.setdefault("_making", Lock()).held():
            if self._name not in values:
                values[self._name] = self._make(instance)
        value: Value = values[self._name]
        return value


@contextmanager
def unforked() -> Iterator[None]:
    """Let a fork wait until this is over. Inside, wait for nothing that a forking thread holds."""
    with _unforked:
        yield


def fork_waits_for(lock: Acquirable) -> None:
    """Let a fork wait until nobody holds a lock; earlier ones are taken first."""
    _waited_for.append(lock)


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()
_unforked = threading.RLock()
_waited_for: list[Acquirable] = [_unforked]
_taken: list[Acquirable] = []


def _before_fork() -> None:
    # Others may be named while this waits for one, by the import that it waits for: the list is
    # read as it grows. Those taken are noted, as it may grow again before they are given back.
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
    for taken in reversed(_taken):
        taken.release()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
