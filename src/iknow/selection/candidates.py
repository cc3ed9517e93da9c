"""Candidates: settings worth certifying, found and ranked on the samples set aside for that.
Nothing here sees the samples that certify; the promise depends on it (`guarantee`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.rule import Rule
from iknow.errors import InputError
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
    """Validation samples: evidence by layer, belief and truth as codes of shape (n,).

    y_true may be absent where labels are not needed. confidence: the model's, see
    `iknow.core.level.log_odds`, of shape (n,), if known; from_probabilities: as there.
    """

    evidence: ValidationEvidence
    belief: Ints
    y_true: Ints | None
    confidence: Floats | None = None
    from_probabilities: bool = False

    def __len__(self) -> int:
        return len(self.belief)

    def __getitem__(self, rows: Ints) -> Part:
        evidence = {layer: batch[rows] for layer, batch in self.evidence.items()}
        truth = None if self.y_true is None else self.y_true[rows]
        confidence = None if self.confidence is None else self.confidence[rows]
        columns = self.belief[rows], truth, confidence, self.from_probabilities
        return Part(evidence, *columns)  # type: ignore[arg-type]

    @property
    def wrong(self) -> Bools:
        """Mask of shape (n,) of the wrong beliefs."""
        if self.y_true is None:
            raise InputError("an accuracy needs labels: give y too")
        return np.asarray(self.belief != self.y_true)


@dataclass(frozen=True)
class Candidate:
    """A setting and the codes of the classes to certify one by one; None for all at once.

    least_confidence: below which the model's confidence makes a sample IMK. level: see
    `iknow.core.level`, if the setting is on a path.
    """

    neighborhoods: Mapping[str, Rule]
    classes: tuple[int, ...] | None = None
    least_confidence: float = -np.inf
    level: float | None = None

    def find_known(self, part: Part) -> Bools:
        """Which samples are IK, of shape (n,)."""
        used = {layer: part.evidence[layer] for layer in self.neighborhoods}
        known = find_known(used, part.belief, self.neighborhoods, self.classes)  # type: ignore[arg-type]
        if part.confidence is None or np.isneginf(self.least_confidence):
            return known
        return known & (part.confidence >= self.least_confidence)

    def count(self, part: Part) -> tuple[Ints, Ints]:
        """IK samples and errors among them: of all, or of each class; of shape (1,) or (m,)."""
        known = self.find_known(part)
        wrong = known & part.wrong
        if self.classes is None:
            return np.array([known.sum()]), np.array([wrong.sum()])
        group, size = np.searchsorted(self.classes, part.belief), len(self.classes)
        return np.bincount(group[known], minlength=size), np.bincount(group[wrong], minlength=size)


def find_candidates(
    part: Part, rule: type[Rule], k: int | None, time_limit: float
) -> tuple[list[Candidate], bool]:
    """The best setting for each price of an error, and whether all are proven to be the best."""
    objective = make_objective(part.evidence, part.belief, np.asarray(part.y_true), rule, k)
    found: dict[tuple[float, ...], Candidate] = {}
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
        found[tuple(deepest.point)] = Candidate(objective.neighborhoods(deepest.point))
    return list(found.values()), proven


def rank(
    settings: Sequence[Candidate],
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
        classes = None if eligible is None else tuple(eligible.tolist())
        every = replace(setting, classes=classes)
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
                sure = replace(setting, classes=tuple(eligible[taken].tolist()))
                doubts.append((float(doubt[taken].max()), sure))
    return [candidate for _, candidate in sorted(doubts, key=lambda each: each[0])]
