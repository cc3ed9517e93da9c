"""A radius for each class, for imbalanced data.

The objective is the mean of the classes' coverages, so that a rare class counts as much as a common
one. With all radii but one fixed, each sample is IK for an interval of that one, and a sweep finds
its best value exactly. Sweeping one radius after the other until nothing improves, or time is up,
ends in a local optimum, and the method's name says so.
"""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.contrast import quorum_of
from iknow.core.evidence import Evidence
from iknow.core.neighborhood import Neighborhood, axes_of, make_rule
from iknow.errors import InputError, SelectionError
from iknow.rules import RULES, Ball
from iknow.selection.coverage import check_validation, select
from iknow.selection.exact.deadline import Deadline, check_time_limit
from iknow.selection.exact.depth import deepest_point
from iknow.selection.selection import Selection, ValidationEvidence, record_selection


def select_per_class(
    evidence: ValidationEvidence,
    belief: Ints,
    y_true: Ints,
    rule: type[Neighborhood] = Ball,
    *,
    time_limit: float = 60.0,
) -> Selection:
    """Choose a radius per class and layer: a local optimum of the mean class coverage.

    The search starts from the best common radii, so the result is never worse than those.

    Args:
        evidence: Evidence about n validation samples, by layer.
        belief: What the model believes, as class codes of shape (n,).
        y_true: The truth, as class codes of shape (n,).
        rule: One that takes a radius per class, such as `Ball`.
        time_limit: Seconds that the search may take.

    Examples:
        >>> print(f"{select_per_class(evidence, belief, y_true).coverage:.2f}")
        0.88
    """
    data = evidence, belief, y_true
    check_validation(*data)
    if not (rule.takes_radius_per_class and axes_of(rule) == ("radius",)):
        able = ", ".join(name for name, each in RULES.items() if each.takes_radius_per_class)
        raise SelectionError(f"only {able} can have a radius per class; got {rule.__name__}")
    whole = {name: each for name, each in evidence.items() if isinstance(each, Evidence)}
    if len(whole) < len(evidence):
        raise InputError("a radius per class needs evidence about every class; got contrasts")
    check_time_limit(time_limit)
    deadline = Deadline(time_limit)
    common = select(*data, rule, time_limit=time_limit)
    distances = np.stack([layer.class_distances for layer in whole.values()])
    n_classes = distances.shape[2]
    radii = np.array(
        [[float(np.max(common.neighborhoods[layer].radius))] * n_classes for layer in evidence]  # type: ignore[attr-defined]
    )
    weights = class_weights(y_true, n_classes)
    best = float(weights[_known(distances, radii, belief)].sum())
    improved = True
    while improved and not deadline.is_over:
        improved = False
        for layer, code in np.ndindex(radii.shape):
            if deadline.is_over:
                break
            trial = radii.copy()
            trial[layer, code] = _best_radius(distances, radii, belief, weights, layer, code)
            value = float(weights[_known(distances, trial, belief)].sum())
            if value > best * (1 + 1e-12):
                radii, best, improved = trial, value, True
    neighborhoods = {
        layer: make_rule(rule, None, quorum_of(evidence), radius=tuple(row))
        for layer, row in zip(evidence, radii.tolist(), strict=True)
    }
    return record_selection(*data, neighborhoods, method="per-class (local optimum)")


def class_weights(y_true: Ints, n_classes: int) -> Floats:
    """Weights that make a sum over IK samples the mean over classes of their coverages."""
    counts = np.bincount(y_true, minlength=n_classes)
    return 1.0 / (np.count_nonzero(counts) * counts[y_true])


def _fits(distances: Floats, radii: Floats, belief: Ints) -> Bools:
    """Where a class is within reach if and only if it is believed, of the shape of `distances`.

    distances: of shape (n_layers, n, n_classes). radii: of shape (n_layers, n_classes).
    """
    wanted = np.arange(distances.shape[2]) == belief[:, None]
    fits: Bools = (distances <= radii[:, None, :]) == wanted
    return fits


def _known(distances: Floats, radii: Floats, belief: Ints) -> Bools:
    """Which samples are IK, of shape (n,)."""
    known: Bools = np.all(_fits(distances, radii, belief), axis=(0, 2))
    return known


def _best_radius(
    distances: Floats, radii: Floats, belief: Ints, weights: Floats, layer: int, code: int
) -> float:
    """The best radius of one class in one layer while all others stay.

    A sample believed to be of the class must be within the radius, any other one outside, and all
    other radii must fit already.
    """
    fits = _fits(distances, radii, belief)
    fits[layer, :, code] = True
    able = np.all(fits, axis=(0, 2))
    if not able.any():
        return float(radii[layer, code])
    distance, own = distances[layer, able, code], belief[able] == code
    low, high = np.where(own, distance, 0.0)[:, None], np.where(own, np.inf, distance)[:, None]
    return float(deepest_point(low, high, weights[able]).point[0])
