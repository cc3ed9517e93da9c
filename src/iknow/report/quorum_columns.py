"""What a quorum adds to the page's columns.

The distances in the page are those that decide. To name all samples of a quorum it needs the ones
before, and to certify robustness the distances with the sides of the quorum exchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Ints
from iknow.core.evidence import NO_EXEMPLAR, Evidence
from iknow.core.quorum import ONE, Quorum, Weighed, weigh
from iknow.core.rule import Rule

Columns = dict[str, NDArray[Any]]


def others_by_distance(evidence: Weighed) -> Ints:
    """The codes of all classes, the nearest first and the believed one last."""
    answered = np.flatnonzero(evidence.belief >= 0)
    others = evidence.class_distances.copy()
    others[answered, evidence.belief[answered]] = np.nan  # sorted to the end, behind inf
    return np.argsort(others, axis=1, kind="stable")


def nearer_columns(evidence: Evidence, quorum: Quorum, codes: Ints) -> Columns:
    """The samples of each class before the one that completes a quorum, nearest first.

    Both of shape (n, width * (the larger side - 1)), filled up with -1 and inf.
    """
    before = max(quorum) - 1
    if before == 0:
        return {}
    samples, needed = np.arange(len(codes))[:, None], np.full(codes.shape, quorum[1])
    needed[:, 0] = quorum[0]
    absent = (np.arange(before) >= needed[:, :, None] - 1) | (codes < 0)[:, :, None]
    rows = np.where(absent, NO_EXEMPLAR, evidence.ranked_exemplars()[samples, codes, :before])
    distances = np.where(absent, np.inf, evidence.ranked_distances()[samples, codes, :before])
    return {
        "nearerRows": rows.reshape(len(codes), -1).astype(np.int64),
        "nearerDistances": distances.reshape(len(codes), -1).astype(np.float32),
    }


def attack_columns(evidence: Evidence, rule: Rule, codes: Ints) -> Columns:
    """With a quorum, what `find_clearance` compares: how far each class is to those who attack.

    Another class would have to be the belief, so the sides of the quorum change places. If not all
    classes are in the page, those that come first for the attack stand for the others.
    """
    if rule.quorum == ONE:
        return {}
    attacked = weigh(evidence, rule.quorum[::-1], codes[:, 0].astype(np.int64))
    if codes.shape[1] < evidence.n_classes:
        codes = np.hstack([codes[:, :1], others_by_distance(attacked)[:, : codes.shape[1] - 1]])
    distances = attacked.class_distances[np.arange(len(codes))[:, None], codes]
    return {"attack": np.where(codes < 0, np.inf, distances)}
