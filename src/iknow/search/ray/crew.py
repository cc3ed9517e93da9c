"""Crew: the shards of an index, asked together, and replaced when they are lost.

A shard is lost with its process, with its node, or if it does not answer in time. Its rows are not:
this process has them, in memory or in the mapped file of a bundle. So whoever finds a shard lost
drops it; whoever asks next builds it anew, on any node that is left, and asks only it again. A call
that loses shards `ATTEMPTS` times fails with a `ClusterError`, and the next call begins by building
what is missing. An answer is only ever merged from one answer of every shard.

Nothing waits without a limit: all waiting of one call ends by its deadline.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from iknow.errors import ClusterError, InputError
from iknow.locking import Lock
from iknow.search.index import RowIndex
from iknow.search.ray.hosts import Host, end_host, find_host
from iknow.search.ray.shard import Sizes
from iknow.search.ray.splitting import Part, take
from iknow.search.ray.starting import join

ATTEMPTS = 3
SHARED_FROM = 1 << 16
"""Bytes from which an array is put into Ray's store once, and not sent to each shard."""

Lost = dict[int, RayError]
"""Why shards were lost, by their numbers."""


@dataclass(frozen=True)
class Terms:
    """How shards run.

    make: makes the index of a shard. address: of the cluster. timeout: seconds that a call may
    wait. resources: what each shard needs, as Ray's actors take it, such as {"num_gpus": 1}.
    """

    make: Callable[..., RowIndex]
    address: str | None = None
    timeout: float = 600.0
    resources: Mapping[str, Any] = field(default_factory=dict)


class Crew:
    """The shards of some rows. parts: the rows of each, of the arrays that `stored` holds."""

    def __init__(self, stored: RowIndex, parts: Sequence[Part], terms: Terms) -> None:
        self._stored, self._parts, self._terms = stored, parts, terms
        self._hosts: dict[int, Host] = {}
        self._connection, self._key = "", uuid4().hex
        self._lock = Lock()
        weakref.finalize(self, _forget, self._key, self._hosts)
        self._attempt(lambda deadline: self._ready(deadline)[1], "built")

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """The answers of all shards, in order."""
        answers: dict[int, Any] = {}

        def ask_the_rest(deadline: float) -> Lost:
            hosts, lost = self._ready(deadline)
            rest = {at: host for at, host in hosts.items() if at not in answers}
            try:
                sent = self._key, *map(_share, arguments)
                asked = {at: getattr(host.actor, method).remote(*sent) for at, host in rest.items()}
            except RayError as error:  # Ray's store is full, or Ray was shut down
                return dict.fromkeys(rest, error) | lost
            for at, answer in asked.items():
                try:
                    answers[at] = _get(answer, deadline)
                except RayError as error:
                    lost[at] = error
                    self._drop(at, rest[at])
            return lost

        self._attempt(ask_the_rest, "asked")
        return [answers[at] for at in range(len(self._parts))]

    def _attempt(self, work: Callable[[float], Lost], done: str) -> None:
        """Repeat some work until it loses no shard. done: what it does to them, in errors."""
        deadline = time.monotonic() + self._terms.timeout
        for _ in range(ATTEMPTS):
            lost = work(deadline)
            if not lost:
                return
            if time.monotonic() >= deadline:
                break
        at, error = next(iter(lost.items()))
        slow = isinstance(error, GetTimeoutError)
        reason = f"no answer within {self._terms.timeout:g} s" if slow else _first_line(error)
        raise ClusterError(
            f"{len(lost)} of {len(self._parts)} shards could not be {done}; shard {at}: {reason}. "
            "No row is lost: call again, and they are built anew"
        ) from error

    def _ready(self, deadline: float) -> tuple[dict[int, Host], Lost]:
        """The hosts of all shards, after those missing were built; and why some were lost again."""
        with self._lock.held():  # other threads need the same ones
            connection = join(self._terms.address)
            if connection != self._connection:  # Ray was shut down, and all shards with it
                self._hosts.clear()
                self._connection = connection
            missing = [at for at in range(len(self._parts)) if at not in self._hosts]
            begun, lost = {}, Lost()
            for at in missing:
                try:
                    begun[at] = self._begin(at)
                except RayError as error:
                    lost[at] = error
            for at, (host, sizes) in begun.items():
                try:
                    self._check(at, _get(sizes, deadline))
                except RayError as error:
                    lost[at] = error
                    end_host(host)
                else:
                    self._hosts[at] = host
            return dict(self._hosts), lost

    def _begin(self, at: int) -> tuple[Host, Any]:
        """Begin to build a shard: its host, and its sizes to come."""
        host = find_host(self._connection, at, len(self._parts), self._terms.resources)
        arrays = self._stored.points, self._stored.labels, self._stored.rows
        rows = ray.put(tuple(take(array, self._parts[at]) for array in arrays))
        try:
            return host, host.build(self._key, self._terms.make, rows, self._stored.n_classes)
        except TypeError as error:
            raise InputError(f"make cannot be sent to another process: {error}") from error

    def _check(self, at: int, sizes: Sizes) -> None:
        """Refuse an index that is not of the rows it was given."""
        n_rows = sum(len(range(*part.indices(self._stored.n_rows))) for part in self._parts[at])
        expected = Sizes(n_rows, self._stored.n_features, self._stored.n_classes)
        if sizes != expected:
            raise InputError(
                f"shard {at} must hold {expected.n_rows} rows of {expected.n_features} features "
                f"and {expected.n_classes} classes, as all shards together do; its index reports "
                f"{tuple(sizes)}"
            )

    def _drop(self, at: int, host: Host) -> None:
        """Give up a shard, unless another thread has replaced it already."""
        with self._lock.held():
            if self._hosts.get(at) is host:
                del self._hosts[at]
        end_host(host)


def _forget(key: str, hosts: dict[int, Host]) -> None:
    """Let the hosts of a crew that is gone drop its shards when they build others."""
    for host in hosts.values():
        host.forgotten.append(key)


def _share(argument: Any) -> Any:
    is_large = isinstance(argument, np.ndarray) and argument.nbytes >= SHARED_FROM
    return ray.put(argument) if is_large else argument


def _get(reference: Any, deadline: float) -> Any:
    """An answer; a `RayError` if the shard is lost, the shard's own error if it has raised one."""
    try:
        return ray.get(reference, timeout=max(0.0, deadline - time.monotonic()))
    except RayTaskError as error:
        if isinstance(error.cause, RayError):
            raise error.cause from error
        raise error.cause from None


def _first_line(error: RayError) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'it was lost'}"
