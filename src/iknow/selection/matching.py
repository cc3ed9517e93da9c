"""Matching: the parameter whose coverage is nearest to a target.

Methods are compared fairly at equal coverage: k for `Nearest`, a threshold for the highest score.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.evidence import Evidence, distances_for_and_against
from iknow.errors import InputError


def match_k(evidence: Mapping[str, Evidence], belief: Ints, coverage: float) -> int:
    """The k for which `Nearest(k)` in every layer comes nearest to a coverage; the least of equals.

    The evidence limits how large k may get: it holds that many neighbour distances.
    """
    largest = min(layer.n_neighbors for layer in evidence.values())
    if largest < 1:
        raise InputError("matching k needs evidence with neighbour distances: gather it with k > 0")
    # A sample is IK for every k up to the number of its neighbours nearer than any other class, in
    # the layer where that number is smallest.
    known_up_to = np.min(
        [
            (layer.neighbor_distances < distances_for_and_against(layer, belief)[1][:, None]).sum(1)
            for layer in evidence.values()
        ],
        axis=0,
    )
    coverages = np.array([(known_up_to >= k).mean() for k in range(1, largest + 1)])
    return int(np.abs(coverages - coverage).argmin()) + 1


def match_threshold(confidence: Floats, coverage: float) -> float:
    """The threshold t for which the fraction of `confidence >= t`, of shape (n,), is nearest."""
    candidates = np.append(np.unique(confidence), np.inf)
    fractions = 1 - np.searchsorted(np.sort(confidence), candidates) / len(confidence)
    return float(candidates[np.abs(fractions - coverage).argmin()])
