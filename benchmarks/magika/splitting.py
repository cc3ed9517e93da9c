"""Splitting: projects are dealt to evidence, validation and test, so that none is in two of them.

Files of one project share authors, license headers and habits; a random split of files would let a
method recognize the project. A tenth of the types is withheld from evidence and validation: files
of these, and of types that no project of the evidence has, make up a set of their own. So do files
of types that magika has no class for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.magika.collecting import OTHER, File
from iknow.core.arrays import Ints

SHARES = (0.5, 0.25)  # of the projects: for evidence and validation; the rest is for test
WITHHELD = 0.1  # of the types


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of files by what they are for.

    Attributes:
        evidence: Files that answers are compared with.
        validation: Files that thresholds and radii are chosen on, of types in the evidence.
        test: Files of types in the evidence.
        unseen: Test files of types that magika knows, but the evidence does not.
        foreign: Test files of types that magika has no class for.
    """

    evidence: Ints
    validation: Ints
    test: Ints
    unseen: Ints
    foreign: Ints


def split(files: Sequence[File], seed: int) -> Split:
    """Deal the projects of files at random."""
    rng = np.random.default_rng(seed)
    kinds = np.array([file.kind for file in files])
    projects, project = np.unique([file.project for file in files], return_inverse=True)
    order = rng.permutation(len(projects))
    ends = np.rint(np.cumsum(SHARES) * len(projects)).astype(int)
    part = np.searchsorted(ends, np.argsort(order)[project], side="right")
    is_foreign = np.char.startswith(kinds, OTHER)
    types = np.unique(kinds[~is_foreign])
    withheld = rng.choice(types, round(WITHHELD * len(types)), replace=False)
    free = ~is_foreign & ~np.isin(kinds, withheld)
    evidence = (part == 0) & free
    covered = free & np.isin(kinds, kinds[evidence])
    return Split(
        evidence=np.flatnonzero(evidence),
        validation=np.flatnonzero((part == 1) & covered),
        test=np.flatnonzero((part == 2) & covered),
        unseen=np.flatnonzero((part == 2) & ~covered & ~is_foreign),
        foreign=np.flatnonzero((part == 2) & is_foreign),
    )
