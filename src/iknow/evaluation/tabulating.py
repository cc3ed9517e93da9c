"""Tabulating: from the scores of all methods to all figures of a comparison.

How far a figure would move with other samples is told by the bootstrap. Each resample draws as many
samples as there are, with replacement; what it draws is a weight for each sample, and figures take
weights. The same weights serve every method, and every perturbation of the same samples, so that
what they share cancels in their differences and does not in their means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats
from iknow.errors import MissingExtraError
from iknow.evaluation.certified import certify_by_mapie, certify_threshold
from iknow.evaluation.comparison import Comparison
from iknow.evaluation.peers import Softmax
from iknow.evaluation.risk_coverage import (
    RiskCoverage,
    Threshold,
    augrc_of_many,
    match_coverage,
    risk_coverage,
)

RESAMPLES = 200
"""Enough for the ends of a 95% interval to within a tenth of its width or so."""


def draw_weights(n_samples: int, rng: np.random.Generator, resamples: int = RESAMPLES) -> Floats:
    """How often each resample draws each sample, of shape (resamples, n_samples)."""
    drawn = rng.integers(n_samples, size=(resamples, n_samples))
    return np.stack([np.bincount(row, minlength=n_samples) for row in drawn]).astype(np.float64)


def interval(figures: Any, confidence: float) -> Floats:
    """The percentile interval of resampled figures of shape (resamples, ...): shape (..., 2)."""
    tail = (1 - confidence) / 2
    return np.moveaxis(np.quantile(figures, [tail, 1 - tail], axis=0), 0, -1)


def join(parts: Sequence[Floats]) -> Floats:
    """Weights for several sets joined, (resamples, sum of sizes): each set counts the same."""
    return np.hstack([part / part.shape[1] for part in parts])


POINTS = 201  # of a curve that is kept


@dataclass(frozen=True, eq=False)
class Scored:
    """A set as every method sees it.

    scores: of shape (n_methods, n). wrong: which answers are, of shape (n,). own: whether it is the
    test data, as it is or perturbed, sample by sample.
    """

    name: str
    scores: Floats
    wrong: Bools
    own: bool = False


@dataclass(frozen=True, eq=False)
class _Figures:
    """One set's figures, and the same resampled, with the resamples along the first axis."""

    wrong: Floats
    wrong_drawn: Floats
    asserted: Floats
    augrc: Floats
    augrc_drawn: Floats
    curves: list[RiskCoverage]


def tabulate(
    methods: tuple[str, ...],
    clean: Scored,
    scored: Sequence[Scored],
    *,
    coverages: tuple[float, ...],
    accuracy: float,
    confidence: float,
    random_state: int,
) -> Comparison:
    """All figures. clean: the validation data. scored: all sets, the test data first."""
    rng, test = np.random.default_rng(random_state), scored[0]
    limits = [[match_coverage(row, coverage) for coverage in coverages] for row in clean.scores]
    weights = draw_weights(len(test.wrong), rng)
    found = []
    for each in scored:
        drawn = weights if each.own else draw_weights(len(each.wrong), rng)
        found.append(_measure(each, drawn, test, weights, limits))
    certified, by_mapie = _certify(methods, clean, test, accuracy, confidence, random_state)
    wrong_drawn = np.stack([each.wrong_drawn for each in found], axis=2)
    augrc_drawn = np.stack([each.augrc_drawn for each in found], axis=2)
    return Comparison(
        methods=methods,
        sets=tuple(each.name for each in scored),
        coverages=coverages,
        wrong=np.stack([each.wrong for each in found], axis=1),
        wrong_between=interval(wrong_drawn, confidence),
        mean_between=interval(wrong_drawn.mean(axis=2), confidence),
        asserted=np.stack([each.asserted for each in found], axis=1),
        augrc=np.stack([each.augrc for each in found], axis=1),
        augrc_between=interval(augrc_drawn, confidence),
        augrc_mean_between=interval(augrc_drawn.mean(axis=2), confidence),
        certified=certified,
        certified_by_mapie=by_mapie,
        errors=np.array([each.wrong.mean() for each in scored]),
        sizes=tuple(len(each.wrong) for each in scored),
        accuracy=accuracy,
        confidence=confidence,
        curves={
            each.name: dict(zip(methods, figures.curves, strict=True))
            for each, figures in zip(scored, found, strict=True)
        },
    )


def _measure(
    each: Scored, drawn: Floats, test: Scored, weights: Floats, limits: list[list[Threshold]]
) -> _Figures:
    """The figures of a set. drawn, weights: of the resamples of it and of the test data."""
    n_samples = len(each.wrong)
    asserted, missed = [], []
    for line, row in zip(limits, each.scores, strict=True):
        taken = np.stack([limit.asserts(row) for limit in line])  # (n_coverages, n)
        asserted.append(taken.mean(axis=1))
        missed.append(taken * each.wrong)
    curves, areas, areas_drawn = [], [], []
    parts = [each] if each is test else [test, each]
    mass = join([np.ones((1, len(part.wrong))) for part in parts])[0]
    mass_drawn = join([drawn] if each is test else [weights, drawn])
    wrong = np.concatenate([part.wrong for part in parts])
    for method in range(len(limits)):
        scores = np.concatenate([part.scores[method] for part in parts])
        curve = risk_coverage(scores, wrong, mass)
        areas.append(curve.area)
        areas_drawn.append(augrc_of_many(scores, wrong, mass_drawn))
        curves.append(curve.thinned(POINTS))
    return _Figures(
        wrong=np.stack([line.mean(axis=1) for line in missed]),
        wrong_drawn=np.stack([drawn @ line.T / n_samples for line in missed], axis=1),
        asserted=np.stack(asserted),
        augrc=np.array(areas),
        augrc_drawn=np.stack(areas_drawn, axis=1),
        curves=curves,
    )


def _certify(
    methods: tuple[str, ...],
    clean: Scored,
    test: Scored,
    accuracy: float,
    confidence: float,
    random_state: int,
) -> tuple[Floats, float | None]:
    """The certified coverage of each method, and of softmax by MAPIE if that is installed."""
    shares = []
    for row, asked in zip(clean.scores, test.scores, strict=True):
        limit = certify_threshold(
            row, clean.wrong, accuracy=accuracy, confidence=confidence, random_state=random_state
        )
        shares.append(float((asked >= limit).mean()))
    by_mapie = None
    if Softmax.name in methods:
        place = methods.index(Softmax.name)
        try:
            limit = certify_by_mapie(
                clean.scores[place],
                clean.wrong,
                accuracy=accuracy,
                confidence=confidence,
                random_state=random_state,
            )
            by_mapie = float((test.scores[place] >= limit).mean())
        except MissingExtraError:
            pass
    return np.array(shares), by_mapie
