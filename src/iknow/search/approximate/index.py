"""ApproximateIndex: proposals, and what is done with them in each mode."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from iknow.core.arrays import Bools, Floats32, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.decision import Decision
from iknow.core.evidence import Evidence
from iknow.core.neighborhood import Neighborhood
from iknow.core.quorum import ONE
from iknow.core.support import find_support
from iknow.core.text import shown
from iknow.errors import InputError
from iknow.locking import cached_property
from iknow.rules import RelativeBall
from iknow.search.approximate.clearing import UNCLEAR, can_clear, clearing_radii, own_needed
from iknow.search.approximate.proposing import MakeProposer, Proposals
from iknow.search.cpu.cell_index import CellIndex
from iknow.search.index import check_k, check_per_class
from iknow.search.stored import StoredRows

NONE = -1  # proven: no class contradicts

Mode = Literal["exact", "verified", "fast"]
"""What may differ from exact search: nothing; assertions, but no IK is false; anything."""


class ApproximateIndex(StoredRows):
    """Activations of one layer with their class codes, searched by proposals.

    Args:
        activations: Of shape (n_rows, n_features).
        labels: Class codes of shape (n_rows,).
        n_classes: Number of classes.
        rows: Numbers that identify the rows, of shape (n_rows,). Default: their positions.
        make: Makes a `Proposer` of the rows of one class, of shape (n, n_features).
        mode: "exact": all answers are those of exact search. "verified": supports for a given
            belief may differ, but where one holds the belief alone, so does the exact one; evidence
            and decisions are exact. "fast": all answers may differ.
    """

    def __init__(
        self,
        activations: Any,
        labels: Any,
        n_classes: int,
        rows: Ints | None = None,
        *,
        make: MakeProposer,
        mode: Mode = "verified",
    ) -> None:
        super().__init__(activations, labels, n_classes, rows)
        if mode not in get_args(Mode):
            raise InputError(f"mode must be one of {get_args(Mode)}; got {shown(mode)}")
        self.mode: Mode = mode
        self._make = make

    def __repr__(self) -> str:
        return f"{type(self).__name__}(mode={self.mode!r})"

    def gather(self, queries: Any, k: int = 0, per_class: int = 1) -> Evidence:
        """Evidence about `queries`, (n_queries, n_features); upper bounds in the mode "fast"."""
        if self.mode != "fast":
            return self.exact.gather(queries, k, per_class)
        points = self._check(queries)
        sizes = check_k(k, self.n_rows), check_per_class(per_class)
        return self._proposals.gather(points, *sizes)

    def find_support(
        self, queries: Any, neighborhood: Neighborhood, belief: Ints | None = None
    ) -> Bools:
        """Find the classes in `neighborhood`: a mask (n_queries, n_classes) for `queries`.

        `belief`: class codes of shape (n_queries,); without it, only the mode "fast" is not exact.
        """
        if belief is None or not self.finds_support(neighborhood):
            index: Any = super() if self.mode == "fast" else self.exact
            found: Bools = index.find_support(queries, neighborhood, belief)
            return found
        points, codes = self._check(queries), np.asarray(belief)
        neighborhood.check_classes(self.n_classes)
        support, near = self._find_proven(points, neighborhood, codes)
        rest = ~support.any(axis=1)
        if self.mode != "exact" and type(neighborhood) is RelativeBall:
            rest &= near  # nothing is in reach of a belief that seems too far away
        # Where a proof was tried there is a contradiction, nearly always, for exact search to find.
        believes = {"exact": rest & False, "verified": rest & ~near, "fast": rest}[self.mode]
        for find, asked in (
            (self._find_proposed, np.flatnonzero(believes)),
            (self._find_exactly, np.flatnonzero(rest & ~believes)),
        ):
            if len(asked):
                support[asked] = find(points[asked], neighborhood, codes[asked])
        return support

    @property
    def approximation(self) -> str | None:
        """The index in words if its answers may differ from those of exact search; else None."""
        return None if self.mode == "exact" else repr(self)

    def finds_support(self, neighborhood: Neighborhood) -> bool:
        """Whether `find_support` is the fastest way to a support by a `neighborhood`."""
        if not can_clear(neighborhood) or self.n_rows == 0:
            return False
        # Exact search for a single sample within a fixed radius walks down the same tree.
        walks = neighborhood.decided_within is not None and neighborhood.quorum == ONE
        return not walks and neighborhood.n_neighbors <= self.n_rows

    def decides(self, neighborhood: Neighborhood) -> bool:
        """Whether `decide` is faster than `gather` for a `neighborhood`, as far as it is known."""
        return self.mode != "fast" and self.exact.decides(neighborhood)

    def decide(self, queries: Any, neighborhood: Neighborhood, belief: Ints) -> Decision:
        """Decide by a `neighborhood` about `queries`, (n, n_features), and their `belief`, (n,)."""
        if self.mode == "fast":
            return super().decide(queries, neighborhood, belief)
        return self.exact.decide(queries, neighborhood, belief)

    def find_exact_support(self, queries: Any, neighborhood: Neighborhood, belief: Ints) -> Bools:
        """What `find_support` finds about `queries` by a `neighborhood` and `belief`, if exact."""
        return self._find_exactly(self._check(queries), neighborhood, belief)

    def warm_up(self) -> None:
        """Build the proposers, and prepare and compile the search that the mode needs."""
        if self.n_rows == 0:
            return
        query, belief = self._check(self.points[:1]), self.labels[:1]
        self._proposals.rank_own(query, belief, 1)
        self.exact.warm_up()
        self.exact.find_contradictions(query, belief, np.zeros(1), 1)

    @cached_property
    def exact(self) -> CellIndex:
        """Exact search for the same rows, prepared when it is first asked."""
        return CellIndex(self.points, self.labels, self.n_classes, self.rows)

    @cached_property
    def _proposals(self) -> Proposals:
        return Proposals(self, self._make)

    def _find_proven(
        self, points: Floats32, rule: Neighborhood, belief: Ints
    ) -> tuple[Bools, Bools]:
        """The supports that are proven to be the belief alone, and where a proof was tried.

        The supports of other queries are empty; in the mode "fast" that of a contradicted belief
        holds the class that contradicts it, too, found within an upper bound of the reach.
        """
        support: Bools = np.zeros((len(points), self.n_classes), dtype=np.bool_)
        tried: Bools = np.zeros(len(points), dtype=np.bool_)
        asked = np.flatnonzero(belief != NO_BELIEF)
        codes = belief[asked]
        own = self._proposals.rank_own(points[asked], codes, own_needed(rule))
        radii = clearing_radii(rule, own, codes)
        found = self.exact.find_contradictions(points[asked], codes, radii, rule.quorum[1])
        settled = found == NONE
        if self.mode == "fast":
            contradicted = np.flatnonzero(found >= 0)
            support[asked[contradicted], found[contradicted]] = True
            settled |= found >= 0
        support[asked[settled], codes[settled]] = True
        tried[asked] = radii != UNCLEAR
        return support, tried

    def _find_proposed(self, points: Floats32, rule: Neighborhood, belief: Ints) -> Bools:
        """The supports that proposals find, with every IK confirmed unless the mode is "fast"."""
        evidence = self._proposals.gather(points, rule.n_neighbors, max(rule.quorum))
        support = find_support(evidence, rule, belief)
        if self.mode == "fast":
            return support
        believed = support[np.arange(len(belief)), belief] & (belief != NO_BELIEF)
        alone = np.flatnonzero(believed & (support.sum(axis=1) == 1))
        support[alone] = self._find_exactly(points[alone], rule, belief[alone])
        return support

    def _find_exactly(self, points: Floats32, rule: Neighborhood, belief: Ints) -> Bools:
        """The supports that exact search finds, by distances or without."""
        if self.exact.decides(rule):
            return self.exact.decide(points, rule, belief).support
        return self.exact.find_support(points, rule, belief)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only what cannot be derived."""
        derived = ("exact", "_proposals", "_making", "class_starts")
        return {name: value for name, value in vars(self).items() if name not in derived}
