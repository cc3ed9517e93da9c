"""Candidates: settings worth certifying, found and put in order by the samples set aside for that.

Nothing here sees the samples that certify; that is what keeps the promise (`guarantee`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Ints
from iknow.core.neighborhood import Neighborhood
from iknow.selection.binomial import p_values
from iknow.selection.exact.deadline import Deadline
from iknow.selection.exact.depth import NothingFoundError, deepest_point
from iknow.selection.objective import make_objective
from iknow.selection.selection import ValidationEvidence, find_known

PRICES = (0, 1, 2, 3, 4, 6, 8, 11, 16, 22, 32, 45, 64, 100, 200, 500, 1000)
"""What an error costs in right answers: from coverage alone to almost no error at any cost."""

CAUTION = (0.01, 0.03, 0.1, 0.2, 0.35, 0.6, 1.0)
"""p-values up to which the classes of a setting are taken, from the sure ones to all of them."""


@dataclass(frozen=True, eq=False)
class Part:
    """Validation samples: evidence by layer, belief and truth as codes of shape (n,)."""

    evidence: ValidationEvidence
    belief: Ints
    y_true: Ints

    def __len__(self) -> int:
        return len(self.belief)

    def __getitem__(self, rows: Ints) -> Part:
        evidence = {layer: batch[rows] for layer, batch in self.evidence.items()}
        return Part(evidence, self.belief[rows], self.y_true[rows])  # type: ignore[arg-type]


@dataclass(frozen=True)
class Candidate:
    """A setting and the codes of the classes that may be IK, one by one; None for all at once."""

    neighborhoods: Mapping[str, Neighborhood]
    classes: tuple[int, ...] | None = None

    def count(self, part: Part) -> tuple[Ints, Ints]:
        """IK samples and errors among them: of all, or of each class; of shape (1,) or (m,)."""
        known = find_known(part.evidence, part.belief, self.neighborhoods, self.classes)
        group = np.zeros(len(part), dtype=np.int64)
        if self.classes is not None:
            group = np.searchsorted(self.classes, part.belief)
        size = 1 if self.classes is None else len(self.classes)
        wrong = known & (part.belief != part.y_true)
        return np.bincount(group[known], minlength=size), np.bincount(group[wrong], minlength=size)


def find_candidates(
    part: Part, rule: type[Neighborhood], k: int | None, time_limit: float
) -> tuple[list[Mapping[str, Neighborhood]], bool]:
    """For each price of an error the best setting, and whether all are the best by proof."""
    objective = make_objective(part.evidence, part.belief, part.y_true, rule, k)
    found: dict[tuple[float, ...], Mapping[str, Neighborhood]] = {}
    deadline, proven = Deadline(time_limit), True
    for position, price in enumerate(PRICES):
        weights = np.where(objective.right == 1, 1, -price)
        share = deadline.left() / (len(PRICES) - position)
        try:
            deepest = deepest_point(objective.lows, objective.highs, weights, share)
        except NothingFoundError as nothing:  # such a price is too high, or the time was too short
            proven &= nothing.proven
            continue
        proven &= deepest.proven
        found[tuple(deepest.point)] = objective.neighborhoods(deepest.point)
    return list(found.values()), proven


def rank(
    settings: Sequence[Mapping[str, Neighborhood]],
    part: Part,
    eligible: Ints | None,
    accuracy: float,
    least_share: float,
) -> list[Candidate]:
    """Candidates by how surely they reach the target on the samples that they were found on.

    eligible: codes of the classes to be certified one by one; None for all at once. least_share:
    the share of IK samples that a class needs to be certified at all. A setting is a candidate with
    the classes that look sure, and again with those that look less so: as the first that fails
    ends the test, what is doubtful must not stand in the way of what is not.
    """
    doubts: list[tuple[float, Candidate]] = []
    for setting in settings:
        every = Candidate(setting, None if eligible is None else tuple(eligible.tolist()))
        counts, errors = every.count(part)
        doubt = p_values(errors, counts, accuracy)
        if eligible is None:
            doubts.append((float(doubt[0]), every))
            continue
        enough = counts >= least_share * len(part)
        sizes = set()
        for limit in CAUTION:
            taken = enough & (doubt <= limit)
            if taken.any() and taken.sum() not in sizes:
                sizes.add(taken.sum())
                classes = tuple(eligible[taken].tolist())
                doubts.append((float(doubt[taken].max()), Candidate(setting, classes)))
    return [candidate for _, candidate in sorted(doubts, key=lambda each: each[0])]
