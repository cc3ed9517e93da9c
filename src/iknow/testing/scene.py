"""Scenes: small training sets in the plane whose every change can be tried out.

A rule says what happens to an IK if samples are removed, relabeled or added. On a dozen samples
we can simply do it, for every set of samples, and gather the evidence again by every distance.
"""

from __future__ import annotations

from itertools import combinations, combinations_with_replacement, product
from typing import Any, NamedTuple

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Assertion, make_assertions
from iknow.core.evidence import NO_EXEMPLAR, Evidence
from iknow.core.rule import Rule
from iknow.core.support import find_support, justify

N_CLASSES = 3
LARGEST_K = 5
ALL = 99  # more than any scene has samples


class Change(NamedTuple):
    """One change of a training set, as seen from a query."""

    row: int  # the number of rows: a new one
    distance: float  # inf: removed
    code: int


class Scene:
    """A training set of a few samples in the plane, queries among them, and beliefs about these."""

    def __init__(self, seed: int, n_rows: int = 12, n_queries: int = 8) -> None:
        rng = np.random.default_rng(seed)
        places = np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]])
        # Every fifth time a class has no sample at all.
        self.labels: Ints = rng.integers(0, N_CLASSES - (seed % 5 == 4), n_rows)
        self.train: Floats = places[self.labels] + rng.normal(0, 0.5, (n_rows, 2))
        truth = rng.integers(0, N_CLASSES, n_queries)
        self.queries: Floats = places[truth] + rng.normal(0, 0.5, (n_queries, 2))
        if seed % 2:  # ties everywhere
            self.train, self.queries = np.rint(2 * self.train) / 2, np.rint(2 * self.queries) / 2
        self.belief: Ints = np.where(rng.random(n_queries) < 0.8, truth, rng.integers(0, N_CLASSES))

    def look(self, queries: Any = None, k: int = ALL, per_class: int = LARGEST_K) -> Evidence:
        """The evidence about places in the plane, by every distance."""
        places = self.queries if queries is None else queries
        distances = np.sqrt(np.square(places[:, None, :] - self.train).sum(axis=2))
        return gather_all(distances, self.labels, k, per_class)

    def look_without(self, i: int) -> tuple[Evidence, Ints]:
        """The evidence about one query without every set of samples, and their sizes."""
        removed = np.array(list(product([False, True], repeat=len(self.labels))))
        rest = np.where(removed, np.inf, self.distances_to(i))
        return gather_all(rest, self.labels), removed.sum(axis=1)

    def look_changed(self, i: int, n_changes: int) -> Evidence:
        """The evidence about one query after every set of changes of this size."""
        return change_all(self.distances_to(i), self.labels, n_changes)

    def distances_to(self, i: int) -> Floats:
        """Distances from one query to every sample, of shape (n_rows,)."""
        distances: Floats = np.sqrt(np.square(self.queries[i] - self.train).sum(axis=1))
        return distances


def change_all(distances: Floats, labels: Ints, n_changes: int) -> Evidence:
    """The evidence about one query after every set of changes of this size.

    A sample may be removed or get another label; one may be added, of any class, at the query
    itself, at the distance of any other, or beyond all of them. distances, labels: of shape
    (n_rows,).
    """
    n_rows = len(labels)
    places = sorted({0.0, *distances.tolist(), 2 * distances.max() + 1})
    old = [Change(row, np.inf, 0) for row in range(n_rows)]
    old += [
        Change(row, distances[row], code)
        for row in range(n_rows)
        for code in range(N_CLASSES)
        if code != labels[row]
    ]
    new = [Change(n_rows, place, code) for place in places for code in range(N_CLASSES)]
    sets = [
        [*some, *added]
        for n_new in range(n_changes + 1)
        for some in combinations(old, n_changes - n_new)
        if len({change.row for change in some}) == len(some)
        for added in combinations_with_replacement(new, n_new)
    ]
    table = np.full((len(sets), n_rows + n_changes), np.inf)
    codes = np.zeros(table.shape, dtype=np.int64)
    table[:, :n_rows], codes[:, :n_rows] = distances, labels
    for at, changes in enumerate(sets):
        for n, (row, distance, code) in enumerate(changes):
            where = row + n if row == n_rows else row
            table[at, where], codes[at, where] = distance, code
    return gather_all(table, codes)


def gather_all(
    distances: Floats, labels: Ints, k: int = ALL, per_class: int = LARGEST_K
) -> Evidence:
    """Evidence from a table of distances, of shape (n, n_rows); inf where there is no sample.

    labels: class codes of shape (n_rows,), or (n, n_rows) if they differ between queries.
    """
    labels = np.broadcast_to(labels, distances.shape)
    of_class = labels[:, None, :] == np.arange(N_CLASSES)[:, None]
    behind = (0, 0), (0, max(LARGEST_K, per_class))
    ranked = np.sort(np.where(of_class, distances[:, None, :], np.inf), axis=2)
    ranked = np.pad(ranked, ((0, 0), *behind), constant_values=np.inf)[:, :, :per_class]
    neighbors = np.pad(np.sort(distances), behind, constant_values=np.inf)[:, :k]
    return Evidence(ranked, neighbors, np.where(np.isinf(ranked), NO_EXEMPLAR, 0))


def is_known(evidence: Evidence, rule: Rule, belief: Any) -> Bools:
    """Which beliefs the rule makes IK, by applying it."""
    codes = np.broadcast_to(np.asarray(belief), len(evidence))
    support = find_support(evidence, rule, codes)
    known: Bools = make_assertions(codes, justify([support])) == Assertion.IK
    return known
