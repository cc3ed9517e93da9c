"""Matching: the parameter whose coverage is nearest to a target.

Methods are compared fairly at equal coverage: k for `Nearest`, radius and ratio for `RelativeBall`,
a threshold for the highest score.
"""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.contrast import find_contrast
from iknow.core.neighborhood import Nearest, Neighborhood, RelativeBall
from iknow.errors import InputError, SelectionError
from iknow.selection.coverage import check_validation
from iknow.selection.exact.boxes import sample_boxes
from iknow.selection.selection import Selection, ValidationEvidence, record_selection

RATIOS = 256


def match_coverage(
    evidence: ValidationEvidence,
    belief: Ints,
    y_true: Ints,
    rule: type[Neighborhood],
    coverage: float,
) -> Selection:
    """Choose the setting of `Nearest` or `RelativeBall` whose coverage is closest to a target.

    Among the settings of a `RelativeBall` that match, it takes the most accurate on IK.

    Args:
        evidence: Evidence about n validation samples, by layer.
        belief: What the model believes, as class codes of shape (n,).
        y_true: The truth, as class codes of shape (n,).
        rule: `Nearest` or `RelativeBall`.
        coverage: The fraction of IK to match, in (0, 1].

    Examples:
        >>> match_coverage(evidence, belief, y_true, RelativeBall, 0.8).coverage
        0.8
    """
    check_validation(evidence, belief, y_true)
    if not 0 < coverage <= 1:
        raise InputError(f"a coverage to match must lie in (0, 1]; got {coverage}")
    neighborhoods: dict[str, Neighborhood]
    if rule is Nearest:
        k = match_k(evidence, belief, coverage)
        neighborhoods = {layer: Nearest(k) for layer in evidence}
    elif rule is RelativeBall:
        neighborhoods = _match_relative(evidence, belief, y_true, coverage)
    else:
        raise SelectionError(
            f"a coverage can be matched by Nearest and RelativeBall; {rule.__name__} has one "
            "radius per layer, which tune() chooses for the largest coverage"
        )
    return record_selection(evidence, belief, y_true, neighborhoods, method="matched")


def match_k(evidence: ValidationEvidence, belief: Ints, coverage: float) -> int:
    """Return the k for which `Nearest(k)` in every layer comes closest to a coverage.

    Ties go to the smallest k. The neighbor distances that the evidence holds limit how large k may
    get.

    Args:
        evidence: Evidence about n validation samples, by layer.
        belief: What the model believes, as class codes of shape (n,).
        coverage: The fraction of IK to match.

    Examples:
        >>> match_k(evidence, belief, 0.8)
        6
    """
    largest = min(layer.n_neighbors for layer in evidence.values())
    if largest < 1:
        raise InputError("matching k needs evidence with neighbour distances: gather it with k > 0")
    known_up_to = largest_known_k(evidence, belief)
    coverages = np.array([(known_up_to >= k).mean() for k in range(1, largest + 1)])
    return int(np.abs(coverages - coverage).argmin()) + 1


def largest_known_k(evidence: ValidationEvidence, belief: Ints) -> Ints:
    """The largest k for which `Nearest(k)` in every layer makes each sample IK, of shape (n,).

    A sample is IK for every k up to the number of its neighbours nearer than any other class, in
    the layer where that number is smallest; the evidence has no more than it was gathered with.
    """
    nearer: Ints = np.min(
        [
            (layer.neighbor_distances < find_contrast(layer, belief).other[:, None]).sum(1)
            for layer in evidence.values()
        ],
        axis=0,
    )
    return nearer


def match_threshold(confidence: Floats, coverage: float) -> float:
    """Return the threshold t for which the fraction of `confidence >= t` is closest to a coverage.

    Args:
        confidence: Confidences such as the highest scores, of shape (n,).
        coverage: The fraction to match.

    Examples:
        >>> match_threshold(np.array([0.5, 0.7, 0.8, 0.9]), 0.5)
        0.8
    """
    candidates = np.append(np.unique(confidence), np.inf)
    fractions = 1 - np.searchsorted(np.sort(confidence), candidates) / len(confidence)
    return float(candidates[np.abs(fractions - coverage).argmin()])


def _match_relative(
    evidence: ValidationEvidence, belief: Ints, y_true: Ints, coverage: float
) -> dict[str, Neighborhood]:
    """One ratio for all layers, and radii at one common rank of the distances to the belief.

    For each of many ratios the rank is taken whose number of IK samples is nearest to the wanted
    one; of the nearest ratios that with the fewest errors among them, and of equals the largest.
    """
    lows, highs = sample_boxes(evidence, belief, RelativeBall)
    radii, ratios = lows[:, ::2], highs[:, 1::2].min(axis=1)
    able = np.sort(ratios[ratios > 1])
    if len(able) == 0:
        raise SelectionError(
            "no RelativeBall makes any validation sample IK: none is nearest to its believed class "
            "in every layer"
        )
    ordered = np.sort(radii, axis=0)
    # A sample is within the radii of a rank in every layer from this rank on.
    columns = zip(ordered.T, radii.T, strict=True)
    ranks = np.max([np.searchsorted(places, column) for places, column in columns], axis=0)
    limits = able[np.linspace(0, len(able) - 1, RATIOS).astype(int)]
    tries: list[tuple[float, int, float, int]] = []
    for ratio in np.unique(np.append(1.0, limits[limits < able[-1]])).tolist():
        known = _count_up_to(ranks[ratios > ratio], len(ranks))
        wrong = _count_up_to(ranks[(ratios > ratio) & (belief != y_true)], len(ranks))
        misses = np.where(known > 0, np.abs(known - coverage * len(ranks)), np.inf)
        rank = int(np.lexsort((wrong, misses))[0])
        tries.append((float(misses[rank]), int(wrong[rank]), -ratio, rank))
    *_, ratio, rank = min(tries)
    return {
        layer: RelativeBall(float(radius), -ratio)
        for layer, radius in zip(evidence, ordered[rank], strict=True)
    }


def _count_up_to(ranks: Ints, n: int) -> Ints:
    """How many of the ranks are at most 0, 1, ..., n - 1."""
    counts: Ints = np.cumsum(np.bincount(ranks, minlength=n))
    return counts
