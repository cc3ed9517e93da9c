"""RayIndex: the rows of a layer in shards, each in a process of its own, on one machine or many.

Evidence of parts merges into the evidence of the whole (`core.evidence`), bit for bit, so any index
can be split: shard i of n has every n-th row from the i-th on, and so its share of every class.

**When a shard is lost**, with its process, with its node, or because it does not answer in time,
its rows are not: this process has them, in memory or in the mapped file of a bundle. A call that
finds a shard lost drops it; the next call builds it anew, on any node that is left, and asks it
alone again. A call that loses shards `ATTEMPTS` times fails with a `ClusterError`, and the next
call begins by building what is missing. An answer is only ever merged from one answer of every
shard. Nothing waits without a limit: all waiting of one call ends by its deadline.

**Starting.** A program that has called `ray.init` itself keeps what it chose. Else an address is
joined, the one given or RAY_ADDRESS; without one Ray starts here, for this process alone, without
its dashboard and without its logs. Nothing is reported to Ray's makers, unless
RAY_USAGE_STATS_ENABLED asks for it.
"""

from __future__ import annotations

import os
import socket
import time
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np

from iknow.core.arrays import Floats32
from iknow.core.decision import Scope
from iknow.core.evidence import Evidence, merge_evidence
from iknow.core.text import as_real, as_whole, shown
from iknow.errors import ClusterError, InputError, MissingExtraError
from iknow.locking import Lock, unforked
from iknow.metrics import Euclidean
from iknow.search.cells import CpuIndex
from iknow.search.index import IndexFactory, RowIndex
from iknow.search.layer import index_type
from iknow.search.union import Make

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when Ray starts
try:
    with unforked():
        import ray
        from ray.exceptions import GetTimeoutError, RayError, RayTaskError
except ImportError as error:
    if error.name != "ray":
        raise
    raise MissingExtraError("searching with Ray", "ray") from error

ATTEMPTS = 3
SHARED_FROM = 1 << 16  # bytes from which an array is put into Ray's store once
ANSWERS_WITHIN = 10.0  # seconds in which a cluster must answer
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
SETTINGS = bytes((4,))  # the type of a frame, its fourth byte
CLIENT = "ray://"


class RayIndex(RowIndex):
    """An index whose rows are searched by several processes, on one machine or on many.

    Give it to a classifier as `search=RayIndex`, or with options as
    `search=partial(RayIndex, shards=4)`. Ray starts on this machine unless it runs already or an
    address is given. If a lost shard cannot be built anew, a call raises a `ClusterError` and can
    be repeated.

    Args:
        make: Makes the index of a shard: a type or a function, called as
            make(activations, labels, n_classes, rows=rows).
        shards: How many. Default: one for each node of the cluster, and at least two.
        address: Of a cluster, such as "10.0.0.1:6379"; see `ray.init`.
        timeout: Seconds that a call may wait for the shards, building those that are lost included.
        resources: What each shard needs, as options of Ray's actors, such as {"num_gpus": 1}.
    """

    def __init__(
        self,
        *arrays: Any,
        make: IndexFactory = CpuIndex,
        shards: int | None = None,
        address: str | None = None,
        timeout: float = 600.0,
        resources: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> None:
        super().__init__(*arrays, **named)
        if shards is not None:
            as_whole(shards, "shards", "be a whole number >= 1", 1)
        self._timeout = as_real(timeout, "timeout", "be a number of seconds > 0", lambda t: t > 0)
        self._address, self._resources = address, dict(resources or {})
        self._like_this = partial(
            type(self), make=make, shards=shards, address=address, timeout=timeout,
            resources=resources,
        )  # fmt: skip
        self._make = index_type(Euclidean, make)
        join(address)
        self.n_shards = max(1, min(shards or max(2, len(ray.nodes())), self.n_rows))
        self._processes: dict[int, ShardProcess] = {}
        self._connection, self._key = "", uuid4().hex
        self._lock = Lock()
        weakref.finalize(self, _forget, self._key, self._processes)
        self._ask()

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        return merge_evidence(self._ask("search_part", points, scope.in_full()))

    def warm_up(self) -> None:
        self._ask("warm_up")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the rows and the options; a copy starts shards of its own."""
        return self._like_this, self.arrays()

    def _ask(self, method: str = "", *arguments: Any) -> list[Any]:
        """The answers of all shards, in order. Without a method, build what is missing."""
        answers: dict[int, Any] = {}
        deadline = time.monotonic() + self._timeout
        for _ in range(ATTEMPTS):
            processes, lost = self._ready(deadline)
            rest = {at: each for at, each in processes.items() if method and at not in answers}
            try:
                sent = self._key, method, *map(_share, arguments)
                asked = {at: each.actor.ask.remote(*sent) for at, each in rest.items()}
            except RayError as error:  # Ray's store is full, or Ray was shut down
                asked, lost = {}, dict.fromkeys(rest, error) | lost
            for at, answer in asked.items():
                try:
                    answers[at] = _get(answer, deadline)
                except RayError as error:
                    lost[at] = error
                    self._drop(at, rest[at])
            if not lost:
                return [answers[at] for at in sorted(answers)]
            if time.monotonic() >= deadline:
                break
        at, why = next(iter(lost.items()))
        reason = f"{type(why).__name__}: {(str(why).strip() or 'it was lost').splitlines()[0]}"
        if isinstance(why, GetTimeoutError):
            reason = f"no answer within {self._timeout:g} s"
        raise ClusterError(
            f"{len(lost)} of {self.n_shards} shards could not be {'asked' if method else 'built'}; "
            f"shard {at}: {reason}. No row is lost: call again, and they are built anew"
        ) from why

    def _ready(self, deadline: float) -> tuple[dict[int, ShardProcess], dict[int, RayError]]:
        """The processes of all shards, after those missing were built; and why some were lost."""
        with self._lock.held():  # other threads need the same ones
            connection = join(self._address)
            if connection != self._connection:  # Ray was shut down, and all shards with it
                self._processes.clear()
                self._connection = connection
            begun, lost = {}, dict[int, RayError]()
            for at in sorted(set(range(self.n_shards)) - self._processes.keys()):
                try:
                    begun[at] = self._begin(at)
                except RayError as error:
                    lost[at] = error
            for at, (process, sizes) in begun.items():
                try:
                    found, wanted = _get(sizes, deadline), self.points[at :: self.n_shards].shape
                except RayError as error:
                    lost[at] = error
                    end_process(process)
                    continue
                if found != (*wanted, self.n_classes):
                    raise InputError(
                        f"shard {at} must hold {wanted[0]} rows of {wanted[1]} features and "
                        f"{self.n_classes} classes, as all shards do; its index reports {found}"
                    )
                self._processes[at] = process
            return dict(self._processes), lost

    def _begin(self, at: int) -> tuple[ShardProcess, Any]:
        """Begin to build a shard: its process, and its sizes to come."""
        key = self._connection, at, self.n_shards, repr(sorted(self._resources.items()))
        with _changing.held():
            process = _processes.get(key)
            if process is None:
                cores = int(ray.cluster_resources().get("CPU", 1)) // self.n_shards
                process = _processes[key] = ShardProcess(max(1, cores), self._resources)
        part = ray.put([np.array(each) for each in self.arrays(slice(at, None, self.n_shards))])
        forgotten = [process.forgotten.popleft() for _ in range(len(process.forgotten))]
        try:
            return process, process.actor.build.remote(self._key, self._make, part, forgotten)
        except TypeError as error:
            raise InputError(f"make cannot be sent to another process: {error}") from error

    def _drop(self, at: int, process: ShardProcess) -> None:
        """Give up a shard, unless another thread has replaced it already."""
        with self._lock.held():
            if self._processes.get(at) is process:
                del self._processes[at]
        end_process(process)


class Shards:
    """What runs in a process: one shard of each layer, built from rows, by its key.

    A classifier of many layers takes no more processes than one of a single layer. threads: how
    many this process may use, all if not given.
    """

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None:  # read by joblib when the first search asks for it
            os.environ["LOKY_MAX_CPU_COUNT"] = str(threads)
        self._indexes: dict[str, RowIndex] = {}

    def build(
        self, key: str, make: Make, arrays: Sequence[Any], forgotten: Iterable[str] = ()
    ) -> tuple[int, int, int]:
        """Make the index of some rows, see `RowIndex.arrays`; its n_rows, n_features, n_classes.

        forgotten: keys not in use.
        """
        for each in forgotten:
            self._indexes.pop(each, None)
        # Ray's own arrays are read-only, and stay in its store as long as anything holds them.
        points, labels, n_classes, rows = map(np.array, arrays)
        self._indexes[key] = made = make(points, labels, int(n_classes), rows=rows)
        return made.n_rows, made.n_features, made.n_classes

    def ask(self, key: str, method: str, *arguments: Any) -> Any:
        """What a method of an index answers."""
        return getattr(self._indexes[key], method)(*arguments)


class ShardProcess:
    """A process of Ray's. forgotten: keys of shards that are no longer used."""

    def __init__(self, threads: int, resources: Mapping[str, Any]) -> None:
        # A shard need not wait for a free core: a cluster with few would let it wait forever.
        options = {"num_cpus": 0, "scheduling_strategy": "SPREAD", **resources}
        try:
            actor: Any = ray.remote(Shards).options(**options)
        except (ValueError, TypeError) as error:
            raise InputError(f"resources must be options of Ray's actors: {error}") from error
        self.actor = actor.remote(threads)
        self.forgotten: deque[str] = deque()


# Layers with as many shards on the same terms share their processes: the first starts them, and
# they end with the last. One that is lost is forgotten at once, so that the next layer that asks
# for it starts another one.
_processes: weakref.WeakValueDictionary[tuple[Any, ...], ShardProcess]
_processes = weakref.WeakValueDictionary()
_changing, _joining = Lock(), Lock()
_joined: dict[str, int] = {}  # by connection, the process that made it


def end_process(process: ShardProcess) -> None:
    """End a process that is lost, or that does not answer, so that it is not asked again."""
    with _changing.held():
        for key in [key for key, each in _processes.items() if each is process]:
            del _processes[key]
    with suppress(Exception):  # it has ended, or Ray itself
        ray.kill(process.actor)


def _forget(key: str, processes: dict[int, ShardProcess]) -> None:
    """Let the processes of a pool that is gone drop its shards when they build others."""
    for process in processes.values():
        process.forgotten.append(key)


def _share(argument: Any) -> Any:
    is_large = isinstance(argument, np.ndarray) and argument.nbytes >= SHARED_FROM
    return ray.put(argument) if is_large else argument


def _get(reference: Any, deadline: float) -> Any:
    """An answer; a `RayError` if the shard is lost, the shard's own error if it has raised one."""
    try:
        return ray.get(reference, timeout=max(0.0, deadline - time.monotonic()))
    except RayTaskError as error:
        raise error.cause from (error if isinstance(error.cause, RayError) else None)


def join(address: str | None = None) -> str:
    """Join a cluster, or start one; what identifies the connection.

    address: HOST:PORT, ray://HOST:PORT, "auto" for one that runs here, or "local" for a new one.
    """
    with _joining.held():
        if not ray.is_initialized():
            _start(address)
        elif address is not None and address not in ("auto", "local"):
            _check_same(address)
        connection = str(ray.get_runtime_context().get_worker_id())
    if _joined.setdefault(connection, os.getpid()) != os.getpid():
        raise ClusterError(
            "Ray does not survive a fork: make or load the classifier in the process that uses it"
        )
    return connection


def _check_same(address: str) -> None:
    """Refuse the address of another cluster than the one that was joined: there can be one only."""
    joined = str(ray.get_runtime_context().gcs_address)
    host, port = _split(address)
    is_same = f"{host}:{port}" == joined or (
        host in ("localhost", "127.0.0.1") and joined.endswith(f":{port}")
    )
    if not is_same and not address.startswith(CLIENT):  # whose port is another one
        raise InputError(
            f"this process has joined the Ray cluster at {joined}, and not {shown(address)}: leave "
            "out the address, or call ray.shutdown() first"
        )


def _start(address: str | None) -> None:
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if where == "local":
        quiet["include_dashboard"] = False
    elif where != "auto":
        _knock(where)
    try:
        ray.init(address=where, **quiet)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
        with suppress(Exception):
            ray.shutdown()
        raise ClusterError(f"Ray could not be reached at {shown(where)}: {error}") from error


def _knock(address: str) -> None:
    """Raise an error unless a server of the right kind answers.

    `ray.init` waits for minutes for a cluster that does not answer, and cannot be interrupted. Its
    control service speaks gRPC, that is HTTP/2, where both sides begin with their settings.
    """
    host, port = _split(address)
    problem = "what answers there is not Ray"
    try:
        with socket.create_connection((host, port), ANSWERS_WITHIN) as server:
            if os.environ.get("RAY_USE_TLS", "0") in ("1", "true"):
                return  # it says nothing before the certificates are checked
            server.settimeout(ANSWERS_WITHIN)
            server.sendall(HELLO)
            head = b""
            while len(head) < 4 and (more := server.recv(4 - len(head))):
                head += more
            if head[3:] == SETTINGS:
                return
    except OSError as error:
        problem = str(error)
    raise ClusterError(
        f"no Ray cluster answers at {shown(address)} ({problem}): start one with `ray start "
        "--head`, or leave out the address to start Ray on this machine"
    )


def _split(address: Any) -> tuple[str, int]:
    """The host and the port of an address."""
    text = address if isinstance(address, str) else ""
    host, _, port = text.removeprefix(CLIENT).rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(
            f"address must be HOST:PORT, ray://HOST:PORT, auto or local; got {shown(address)}"
        )
    return host.strip("[]"), int(port)
