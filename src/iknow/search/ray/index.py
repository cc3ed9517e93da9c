"""RayIndex: the rows of a layer in shards, each in a process of its own.

Evidence of parts merges into the evidence of the whole (`core.evidence`), bit for bit, so any index
can be split. `splitting` says which rows go where, `deciding` how decisions merge, and `crew` what
happens if a shard is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import ray

from iknow.core.arrays import Floats32, Ints
from iknow.core.decision import Decision, Scope, decide, replace_decisions
from iknow.core.evidence import Evidence, merge_evidence
from iknow.core.neighborhood import Neighborhood
from iknow.core.scalars import as_real, as_whole
from iknow.errors import InputError
from iknow.geometry import Euclidean
from iknow.search.cpu.cell_index import CellIndex
from iknow.search.index import IndexFactory, RowIndex
from iknow.search.layer import index_type
from iknow.search.ray.crew import Crew, Terms
from iknow.search.ray.deciding import decide_by, merge_opinions, merges
from iknow.search.ray.splitting import split_rows
from iknow.search.ray.starting import join


class RayIndex(RowIndex):
    """An index whose rows are searched by several processes, on one machine or on many.

    Give it to a classifier as `index=RayIndex`, or with options as
    `index=partial(RayIndex, shards=4)`. Ray starts on this machine unless it runs already or an
    address is given. A shard that is lost, with its process or its node, is built anew from the
    rows that this process holds; if that fails too, the call raises a `ClusterError` and can be
    repeated.

    activations, labels, n_classes, rows: as for a `CellIndex`.

    Args:
        make: Makes the index of a shard: a type or a function, called as
            make(activations, labels, n_classes, rows=rows).
        shards: How many. Default: one for each node of the cluster, and at least two.
        address: Of a cluster, such as "10.0.0.1:6379"; see `ray.init`.
        timeout: Seconds that a call may wait for the shards, building those that are lost included.
        resources: What each shard needs, as options of Ray's actors, such as {"num_gpus": 1}.
    """

    _crew_type: Callable[..., Any] = Crew

    def __init__(
        self,
        activations: Any,
        labels: Any,
        n_classes: int,
        rows: Ints | None = None,
        *,
        make: IndexFactory = CellIndex,
        shards: int | None = None,
        address: str | None = None,
        timeout: float = 600.0,
        resources: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(activations, labels, n_classes, rows)
        wanted = None if shards is None else as_whole(shards, "shards", "be a whole number >= 1")
        if wanted is not None and wanted < 1:
            raise InputError(f"shards must be a whole number >= 1; got {wanted}")
        if not (as_real(timeout, "timeout", "be a number of seconds > 0") > 0):
            raise InputError(f"timeout must be a number of seconds > 0; got {timeout}")
        self._options: dict[str, Any] = {
            "make": make,
            "shards": wanted,
            "address": address,
            "timeout": float(timeout),
            "resources": dict(resources or {}),
        }
        made_by = index_type(Euclidean, None, make)
        join(address)
        split = split_rows(self.class_starts, wanted or max(2, len(ray.nodes())))
        self._whole, self.n_shards = split.whole, len(split.parts)
        terms = Terms(made_by, address, float(timeout), self._options["resources"])
        self._crew = type(self)._crew_type(self, split.parts, terms)

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        """Everything about `points`, (n, n_features), that `scope` may need."""
        return merge_evidence(self._crew.ask("gather", points, scope.any, scope.per_class))

    def decides(self, neighborhood: Neighborhood) -> bool:
        """Whether `decide` is faster than `gather` for a `neighborhood`, as far as it is known."""
        return merges(neighborhood, whole=self._whole) and all(
            self._crew.ask("decides", neighborhood)
        )

    def decide(self, queries: Any, neighborhood: Neighborhood, belief: Ints) -> Decision:
        """Decide by a `neighborhood` about `queries`, (n, n_features), and their `belief`, (n,)."""
        points, codes = self._check(queries), np.ascontiguousarray(belief, dtype=np.int64)
        if not len(points) or not merges(neighborhood, whole=self._whole):
            return super().decide(points, neighborhood, codes)
        opinions = self._crew.ask("judge", points, neighborhood, codes)
        asked = merge_opinions(opinions), neighborhood, codes, self.n_classes
        decision, is_open = decide_by(*asked)
        if not is_open.any():
            return decision
        rest = np.flatnonzero(is_open)
        evidence = self.gather(points[rest], per_class=max(neighborhood.quorum))
        return replace_decisions(decision, rest, decide(evidence, neighborhood, codes[rest]))

    def warm_up(self) -> None:
        """Prepare and compile everything that searching needs, in every shard."""
        self._crew.ask("warm_up")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the rows and the options; a copy starts shards of its own."""
        arrays = self.points, self.labels, self.n_classes, self.rows
        return partial(type(self), **self._options), arrays
