"""Evidence: what the training set says about a query in one layer.

For a query x, a class c and a layer with activations h, the evidence is

    d_c = distance from h(x) to the nearest training activation of class c   (inf if none)
    r_j = distance from h(x) to the j-th nearest training activation, of any class

and, where a quorum asks for them, the distances to the second, third, ... nearest of each class.
Only label *sets* matter to the method, so these minima replace lists of neighbors: their size does
not depend on the training set, one pass finds them, and they serve every radius at once. Evidence
from parts of a training set merges into the evidence of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.codes import NO_BELIEF
from iknow.errors import InputError

NO_EXEMPLAR = -1
ERASED = {"f": np.inf, "i": NO_EXEMPLAR, "b": False}  # by kind of array


class Columns:
    """Base of dataclasses of arrays, or of such dataclasses, that have one row for each query."""

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def __getitem__(self, queries: slice | Ints | Bools) -> Self:
        return _combine([self], lambda only: only[0][queries])


About = TypeVar("About", bound=Columns)


class Ranked(Columns):
    """Base of records that hold the distances to the nearest samples of all classes."""

    neighbor_distances: Floats  # of shape (n_queries, n_neighbors), ascending

    @property
    def n_neighbors(self) -> int:
        return int(self.neighbor_distances.shape[1])

    def neighbor_distance(self, k: int) -> Floats:
        """Return the distance to the `k`-th nearest training activation, of shape (n_queries,)."""
        if k < 1:
            raise InputError(f"k must be >= 1; got {k}")
        if k > self.n_neighbors:
            raise InputError(
                f"the evidence holds {self.n_neighbors} neighbor distances, too few for k={k}: "
                f"gather it with k={k} or more"
            )
        return self.neighbor_distances[:, k - 1]


@dataclass(frozen=True, eq=False)
class Evidence(Ranked):
    """Distances from each query to the training set, in one layer.

    Attributes:
        distances: To the nearest few samples of each class, of shape (n_queries, n_classes,
            per_class), ascending; inf past the last. If it is one, (n_queries, n_classes) will do.
        neighbor_distances: Of shape (n_queries, n_neighbors), ascending; inf past the last sample.
        rows: The training rows that `distances` belong to, of the same shape, by (distance, row);
            -1 where there is none.
        complete_below: How far the lists are complete, of shape (n_queries, 3): for the believed
            class, for every other class, and for the neighbors. Every sample strictly nearer than
            this is listed, as far as its list has room. inf unless a search stopped early.

    Examples:
        >>> Evidence(np.array([[0.4, 1.5]]), np.empty((1, 0)), np.array([[0, 5]])).n_classes
        2
    """

    distances: Floats
    neighbor_distances: Floats
    rows: Ints
    complete_below: Floats = None  # type: ignore[assignment]

    quorum = (1, 1)  # how far the class distances count: to the first sample of each class

    def __post_init__(self) -> None:
        shape, neighbors = self.distances.shape, self.neighbor_distances.shape
        if len(shape) not in (2, 3) or self.rows.shape != shape:
            raise InputError(
                "distances and rows must both have shape (n_queries, n_classes) or (n_queries, "
                f"n_classes, per_class); got {shape} and {self.rows.shape}"
            )
        if len(shape) == 2:
            object.__setattr__(self, "distances", self.distances[:, :, None])
            object.__setattr__(self, "rows", self.rows[:, :, None])
        if len(neighbors) != 2 or neighbors[0] != shape[0]:
            raise InputError(
                f"neighbor_distances must have shape ({shape[0]}, n_neighbors); got {neighbors}"
            )
        if self.complete_below is None:
            object.__setattr__(self, "complete_below", np.full((shape[0], 3), np.inf))

    @property
    def n_classes(self) -> int:
        return int(self.distances.shape[1])

    @property
    def per_class(self) -> int:
        """How many of the nearest samples of each class the evidence holds."""
        return int(self.distances.shape[2])

    @property
    def class_distances(self) -> Floats:
        """The distance to each class, d_c, of shape (n_queries, n_classes)."""
        return self.distances[:, :, 0]

    @property
    def exemplars(self) -> Ints:
        """The nearest row of each class, the lowest of equals, of shape (n_queries, n_classes)."""
        return self.rows[:, :, 0]

    def nearest_distance(self) -> Floats:
        """Return the distance to the nearest training activation, of shape (n_queries,)."""
        return np.asarray(self.class_distances.min(axis=1))


def empty_evidence(
    n_queries: int, n_classes: int, n_neighbors: int, per_class: int = 1
) -> Evidence:
    """The evidence of an empty training set: the neutral element of merging."""
    shape = n_queries, n_classes, per_class
    neighbors = np.full((n_queries, n_neighbors), np.inf)
    return Evidence(np.full(shape, np.inf), neighbors, np.full(shape, NO_EXEMPLAR, dtype=np.int64))


def merge_evidence(parts: Sequence[Evidence]) -> Evidence:
    """Combine the evidence of disjoint `parts` of a training set, about the same queries.

    Exemplars must be rows of the whole training set.

    Examples:
        >>> len(merge_evidence([a.evidence["input"], a.evidence["input"]])) == len(a)
        True
    """
    if not parts:
        raise InputError("nothing to merge: expected at least one Evidence, got none")
    shapes = {(part.distances.shape, part.n_neighbors) for part in parts}
    if len(shapes) > 1:
        raise InputError(
            "all parts must cover the same queries, classes, per_class and k; got ((queries, "
            f"classes, per_class), k) = {sorted(shapes)}"
        )
    distances = np.concatenate([part.distances for part in parts], axis=2)
    rows = np.concatenate([part.rows for part in parts], axis=2)
    distances, rows = rank(distances, rows, parts[0].per_class)
    neighbors = np.sort(np.concatenate([part.neighbor_distances for part in parts], axis=1), axis=1)
    complete = np.min([part.complete_below for part in parts], axis=0)
    return Evidence(distances, neighbors[:, : parts[0].n_neighbors], rows, complete)


def rank(distances: Floats, rows: Ints, m: int) -> tuple[Floats, Ints]:
    """The first m of each list by the tie rule: by distance, then by row number.

    distances, rows: of shape (..., n), in any order, n >= m; the row of a distance of inf is -1.
    """
    order = np.lexsort((rows, distances), axis=-1)[..., :m]
    ranked = np.take_along_axis(distances, order, axis=-1)
    numbers = np.take_along_axis(rows, order, axis=-1)
    numbers[np.isinf(ranked)] = NO_EXEMPLAR
    return ranked, numbers


def pad_evidence(evidence: Evidence, n_classes: int, n_neighbors: int) -> Evidence:
    """The evidence of a part for all classes and neighbors, inf and -1 where the part has none."""
    if (evidence.n_classes, evidence.n_neighbors) == (n_classes, n_neighbors):
        return evidence
    padded = empty_evidence(len(evidence), n_classes, n_neighbors, evidence.per_class)
    for name, column in vars(evidence).items():
        getattr(padded, name)[:, : column.shape[1]] = column
    return padded


def stack_evidence(parts: Sequence[About]) -> About:
    """Join what is known about successive batches of queries."""
    return _combine(parts, np.concatenate)


def discard_evidence(evidence: About, rows: Bools) -> About:
    """Erase what is known about the queries marked by `rows`, a mask of shape (n_queries,)."""

    def erase(only: list[NDArray[Any]]) -> NDArray[Any]:
        column = only[0].copy()
        column[rows] = ERASED[column.dtype.kind]
        return column

    return _combine([evidence], erase) if rows.any() else evidence


def _combine(parts: Sequence[About], combine: Callable[[list[Any]], NDArray[Any]]) -> About:
    """One record in which `combine` makes each array from those of the parts."""
    combined = dict(vars(parts[0]))
    for name, first in combined.items():
        columns = [getattr(part, name) for part in parts]
        if isinstance(first, Columns):
            combined[name] = _combine(columns, combine)
        elif isinstance(first, np.ndarray):
            combined[name] = combine(columns)
    return type(parts[0])(**combined)


def believed(values: NDArray[Any], belief: Ints, missing: float = np.inf) -> NDArray[Any]:
    """Of values by query and class, (n, n_classes, ...), those of the believed class, (n, ...)."""
    own = values[np.arange(len(belief)), belief]
    own[belief == NO_BELIEF] = missing
    return own


def distances_for_and_against(evidence: Evidence, belief: Ints) -> tuple[Floats, Floats]:
    """Distance to the believed class, d_g, and to the nearest other class, both (n_queries,).

    Without a belief (`NO_BELIEF`) d_g is inf, and every class is another one.
    """
    rows, distances = np.flatnonzero(belief != NO_BELIEF), evidence.distances[:, :, 0]
    others = distances.copy()
    others[rows, belief[rows]] = np.inf
    return believed(distances, belief), others.min(axis=1)
