"""Choosing: which samples the page holds, and which of them get a picture first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Bools, Ints
from iknow.core.assertion import Assertion
from iknow.errors import InputError
from iknow.explain.assessment import Assessment

MOST_EXTRAS = 300  # wrong IKs shown although they were not drawn: as many as a person can inspect


@dataclass(frozen=True, eq=False)
class Chosen:
    """The samples in the page.

    rows: their positions in the assessment, ascending, of shape (m,). counted: mask of shape (m,);
    the others are wrong IKs outside the random draw, which are only shown. n_samples: of all.
    """

    rows: Ints
    counted: Bools
    n_samples: int

    @property
    def n_counted(self) -> int:
        return int(self.counted.sum())

    @property
    def n_extra(self) -> int:
        return len(self.rows) - self.n_counted


def choose_samples(
    assessment: Assessment, wrong: Bools | None, most: int, rng: np.random.Generator
) -> Chosen:
    """All samples, or `most` of them drawn at random, plus the wrong IKs that were not drawn.

    wrong: mask of shape (n,) of the wrong beliefs, if the truth is known.
    """
    if most < 1:
        raise InputError(f"a report must hold at least one sample; got room for {most}")
    n = len(assessment)
    if n <= most:
        return Chosen(np.arange(n), np.ones(n, dtype=bool), n)
    drawn = np.zeros(n, dtype=bool)
    drawn[rng.choice(n, most, replace=False)] = True
    extra = np.zeros(n, dtype=bool)
    if wrong is not None:
        missed = np.flatnonzero(wrong & (assessment.assertion == Assertion.IK) & ~drawn)
        if len(missed) > MOST_EXTRAS:
            missed = rng.choice(missed, MOST_EXTRAS, replace=False)
        extra[missed] = True
    rows = np.flatnonzero(drawn | extra)
    return Chosen(rows, drawn[rows], n)


def order_for_pictures(assessment: Assessment, rows: Ints, wrong: Bools | None) -> Ints:
    """Positions in `rows`, of shape (m,): wrong IKs, other wrong beliefs, then closest calls."""
    closeness = np.abs(assessment.margin[rows])
    if wrong is None:
        return np.argsort(closeness, kind="stable")
    known = assessment.assertion[rows] == Assertion.IK
    rank = np.where(wrong[rows] & known, 0, np.where(wrong[rows], 1, 2))
    order: Ints = np.lexsort((closeness, rank))
    return order
