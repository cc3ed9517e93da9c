"""A radius for each class, for imbalanced data.

The objective is the mean over the classes of each class's coverage, so that a rare class counts as
much as a common one. With all radii but one fixed, the samples that are IK form intervals of that
one, and a sweep finds its best value exactly. Sweeping one radius after the other until nothing
improves, or time is up, ends in a local optimum, and is named so.
"""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
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
    check_validation(evidence, belief, y_true)
    if not (rule.takes_radius_per_class and axes_of(rule) == ("radius",)):
        able = ", ".join(name for name, each in RULES.items() if each.takes_radius_per_class)
        raise SelectionError(f"only {able} can have a radius per class; got {rule.__name__}")
    whole = {name: each for name, each in evidence.items() if isinstance(each, Evidence)}
    if len(whole) < len(evidence):
        raise InputError("a radius per class needs evidence about every class; got contrasts")
    check_time_limit(time_limit)
    deadline = Deadline(time_limit)
    common = select(evidence, belief, y_true, rule, time_limit=time_limit)
    n_classes = next(iter(whole.values())).n_classes
    distances = np.stack([layer.class_distances for layer in whole.values()])
    radii = np.array(
        [[float(np.max(common.neighborhoods[layer].radius))] * n_classes for layer in evidence]  # type: ignore[attr-defined]
    )
    weights = class_weights(y_true, n_classes)
    best = float(weights[_known(distances, radii, belief)].sum())
    improved = True
    while improved:
        improved = False
        for layer, code in np.ndindex(radii.shape):
            if deadline.is_over:
                improved = False
                break
            radius = _best_radius(distances, radii, belief, weights, layer, code)
            trial = radii.copy()
            trial[layer, code] = radius
            value = float(weights[_known(distances, trial, belief)].sum())
            if value > best * (1 + 1e-12):
                radii, best, improved = trial, value, True
    neighborhoods = {
        layer: make_rule(rule, None, radius=tuple(row))
        for layer, row in zip(evidence, radii.tolist(), strict=True)
    }
    return record_selection(
        evidence, belief, y_true, neighborhoods, method="per-class (local optimum)"
    )


def class_weights(y_true: Ints, n_classes: int) -> Floats:
    """Weights that make a sum over IK samples the mean over classes of their coverages."""
    counts = np.bincount(y_true, minlength=n_classes)
    present = int((counts > 0).sum())
    weights: Floats = 1.0 / (present * counts[y_true])
    return weights


def _known(distances: Floats, radii: Floats, belief: Ints) -> Bools:
    """Which samples are IK: (n_layers, n, n_classes) distances, (n_layers, n_classes) radii."""
    within = distances <= radii[:, None, :]
    wanted = np.arange(distances.shape[2]) == belief[:, None]
    known: Bools = np.all(within == wanted, axis=(0, 2))
    return known


def _best_radius(
    distances: Floats, radii: Floats, belief: Ints, weights: Floats, layer: int, code: int
) -> float:
    """The best radius of one class in one layer while all others stay.

    A sample believed to be of the class needs its distance within the radius; any other needs it
    outside; and both need all other radii to fit already.
    """
    within = distances <= radii[:, None, :]
    wanted = np.arange(distances.shape[2]) == belief[:, None]
    fits = within == wanted
    fits[layer, :, code] = True
    able = np.all(fits, axis=(0, 2))
    if not able.any():
        return float(radii[layer, code])
    distance, own = distances[layer, able, code], belief[able] == code
    low = np.where(own, distance, 0.0)
    high = np.where(own, np.inf, distance)
    return float(deepest_point(low[:, None], high[:, None], weights[able]).point[0])
