"""Hosts: the processes that hold shards, shared by the layers of a classifier.

Layers with as many shards on the same terms share their processes: the first starts them, and they
end with the last. A host that is lost is forgotten at once, so that the next layer that asks for it
starts another one.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import ray

from iknow.errors import InputError
from iknow.locking import Lock
from iknow.search.ray.shard import Shards

_hosts: weakref.WeakValueDictionary[tuple[Any, ...], Host] = weakref.WeakValueDictionary()
_changing = Lock()


class Host:
    """A process of Ray's. forgotten: keys of shards that nobody asks any more."""

    def __init__(self, threads: int, resources: Mapping[str, Any]) -> None:
        # A shard need not wait for a free core: a cluster with few would let it wait forever.
        options = {"num_cpus": 0, "scheduling_strategy": "SPREAD", **resources}
        try:
            actor: Any = ray.remote(Shards).options(**options)
        except (ValueError, TypeError) as error:
            raise InputError(f"resources must be options of Ray's actors: {error}") from error
        self.actor = actor.remote(threads)
        self.forgotten: deque[str] = deque()

    def build(self, key: str, *arguments: Any) -> Any:
        """Begin to build a shard; its sizes to come."""
        keys = [self.forgotten.popleft() for _ in range(len(self.forgotten))]
        return self.actor.build.remote(key, *arguments, keys)


def find_host(connection: str, at: int, n_hosts: int, resources: Mapping[str, Any]) -> Host:
    """Host number `at` of `n_hosts`, which is started if it does not run yet.

    Each uses its part of the cluster's cores.
    """
    key = connection, at, n_hosts, repr(sorted(resources.items()))
    with _changing.held():
        found = _hosts.get(key)
        if found is None:
            cores = int(ray.cluster_resources().get("CPU", 1))
            found = _hosts[key] = Host(max(1, cores // n_hosts), resources)
        return found


def end_host(host: Host) -> None:
    """End a process that is lost, or that does not answer: nobody is to ask it any more."""
    with _changing.held():
        for key in [key for key, each in _hosts.items() if each is host]:
            del _hosts[key]
    with suppress(Exception):  # it has ended, or Ray itself
        ray.kill(host.actor)
