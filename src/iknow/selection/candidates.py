"""Candidates: settings worth certifying, found and ranked on the samples set aside for that.
Nothing here sees the samples that certify; the promise depends on it (`guarantee`).
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
"""How many right answers an error costs: from coverage alone to almost no errors."""

CAUTION = (0.01, 0.03, 0.1, 0.2, 0.35, 0.6, 1.0)
"""Limits on the p-values of the classes to take, from only the sure ones to all."""


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
    """A setting and the codes of the classes to certify one by one; None for all at once."""

    neighborhoods: Mapping[str, Neighborhood]
    classes: tuple[int, ...] | None = None

    def count(self, part: Part) -> tuple[Ints, Ints]:
        """IK samples and errors among them: of all, or of each class; of shape (1,) or (m,)."""
        known = find_known(part.evidence, part.belief, self.neighborhoods, self.classes)
        wrong = known & (part.belief != part.y_true)
        if self.classes is None:
            return np.array([known.sum()]), np.array([wrong.sum()])
        group, size = np.searchsorted(self.classes, part.belief), len(self.classes)
        return np.bincount(group[known], minlength=size), np.bincount(group[wrong], minlength=size)


def find_candidates(
    part: Part, rule: type[Neighborhood], k: int | None, time_limit: float
) -> tuple[list[Mapping[str, Neighborhood]], bool]:
    """The best setting for each price of an error, and whether all are proven to be the best."""
    objective = make_objective(part.evidence, part.belief, part.y_true, rule, k)
    found: dict[tuple[float, ...], Mapping[str, Neighborhood]] = {}
    deadline, proven = Deadline(time_limit), True
    for position, price in enumerate(PRICES):
        weights = np.where(objective.right == 1, 1, -price)
        share = deadline.left() / (len(PRICES) - position)
        try:
            deepest = deepest_point(objective.lows, objective.highs, weights, share)
        except NothingFoundError as nothing:  # the price is too high, or the time too short
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
    """Candidates by how surely they reach the target on the samples that found them.

    eligible: codes of the classes to certify one by one; None for all at once. least_share: the
    share of IK samples that a class needs to be certified at all. A setting is a candidate with the
    classes that look sure, and again with less sure ones: the first candidate that fails ends the
    test, so sure classes must not wait for doubtful ones.
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
