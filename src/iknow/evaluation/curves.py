"""Curves: what the radius of one layer decides, and how much is known however an input moves.

**Radius**: a growing ball only gains support, so two distances tell the whole story of a sample.

    IDK, until the ball reaches the believed class         justified
    IK,  until something else is within reach as well      contested
    IMK, from then on

Anything changes only at these distances, so the curve is exact between them as well. Other layers
stay as they are: a class that they support is justified as soon as the ball is not empty, and a
layer without support keeps the sample at IDK.

**Robust fractions**: no change of the input shorter than the robust radius, in the ℓ2 norm, makes
another class IK. So an adversary with a budget below r cannot turn the samples that are IK,
correct, and have a robust radius of at least r into confident mistakes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Assertion
from iknow.errors import InputError
from iknow.evaluation.metrics import Figures, read_truth
from iknow.explain.assessment import Assessment
from iknow.selection.validation import count_from


@dataclass(frozen=True, eq=False)
class RadiusCurve(Figures[Floats]):
    """The paper's figures as the radius of one layer grows, constant from each radius to the next.

    Attributes:
        layer: The layer whose radius varies.
        radii: Where something changes, ascending from 0, of shape (m,).
        counts: Number of samples by assertion (IDK, IMK, IK) and radius, of shape (3, m).
        right: Number of samples whose belief is correct, of shape (3, m).
    """

    layer: str
    radii: Floats
    counts: Ints
    right: Ints

    answered = property(lambda self: self.counts)  # one without an answer is never IK or IMK

    @property
    def best(self) -> int:
        """The position in `radii` where F_IK is largest; the first if there are several."""
        return int(np.argmax(self.counts[Assertion.IK]))

    def places(self, radii: Any) -> Ints:
        """Return the positions in `self.radii` that hold for `radii`, in the shape of those."""
        return np.searchsorted(self.radii, check_radii(radii), side="right") - 1


def radius_curve(assessment: Assessment, y_true: Any, layer: str | None = None) -> RadiusCurve:
    """Compute how assertions and their accuracy depend on the radius of a `Ball` in one layer.

    Of the `layer`'s own rule in the `assessment` only the quorum matters; those of other layers
    matter whole. `y_true`: true labels of shape (n,). Of a single layer the name is optional.

    Examples:
        >>> curve = radius_curve(a, y_true, "input")
        >>> curve.f_ik[curve.places([0.25, 0.5, 1.0])].round(2)
        array([0.37, 0.77, 0.52])
    """
    right: Bools = assessment.belief_codes == read_truth(assessment, y_true)[1]
    layer = check_layer(assessment, layer)
    distances = assessment.weighed[layer].class_distances
    others = [mask for name, mask in assessment.supports.items() if name != layer]
    empty = [~mask.any(axis=1) for mask in others]
    mute = np.logical_or.reduce([assessment.invalid, *empty])
    # A class that another layer supports is justified unless the ball is empty.
    elsewhere = np.logical_or.reduce(others, initial=False)
    reached = np.where(elsewhere, distances.min(axis=1, keepdims=True), distances)
    rows = np.arange(len(reached))
    # From these radii on each belief is justified, and contested too; inf for none.
    justified = np.where(mute, np.inf, reached[rows, assessment.belief_codes])
    reached[rows, assessment.belief_codes] = np.inf
    contested = np.where(assessment.never_known, justified, reached.min(axis=1))
    contested = np.maximum(justified, contested)
    everything = np.concatenate([[0.0], justified, contested])
    radii = np.unique(everything[np.isfinite(everything)])
    counts = _count(radii, justified, contested)
    return RadiusCurve(layer, radii, counts, _count(radii, justified[right], contested[right]))


def _count(radii: Floats, justified: Floats, contested: Floats) -> Ints:
    """How many samples get each assertion at each radius, of shape (3, m)."""
    n_justified = np.searchsorted(np.sort(justified), radii, side="right")
    n_contested = np.searchsorted(np.sort(contested), radii, side="right")
    # In the order of `Assertion`: IDK, IMK, IK.
    return np.stack([len(justified) - n_justified, n_contested, n_justified - n_contested])


def check_radii(radii: Any) -> Floats:
    """Radii as an array of their shape."""
    asked = np.asarray(radii, dtype=np.float64)
    if not (asked >= 0).all():  # NaN included
        raise InputError(f"radii must be numbers >= 0; got {radii}")
    return asked


def check_layer(assessment: Assessment, layer: str | None) -> str:
    """The named layer, or the only one."""
    layers = list(assessment.evidence)
    if layer is None and len(layers) == 1:
        return layers[0]
    if layer is None or layer not in layers:
        raise InputError(f"layer must be one of {layers}; got {layer!r}")
    return layer


def robust_fraction(assessment: Assessment, radii: Any, y_true: Any = None) -> Floats:
    """Return the fraction of all samples that are IK and robust at each of some radii.

    Of an `assessment`, for `radii` >= 0 of shape (m,). With `y_true`, true labels of shape (n,),
    only correct beliefs count.

    Examples:
        >>> robust_fraction(a, [0.0, 0.5, 1.0], y_true).round(2)
        array([0.73, 0.48, 0.35])
    """
    if len(assessment) == 0:
        raise InputError("there is nothing to certify: the assessment is empty")
    counted: Bools = assessment.assertion == Assertion.IK
    if y_true is not None:
        counted = counted & (assessment.belief_codes == read_truth(assessment, y_true)[1])
    certified = assessment.robust_radius[counted]
    return np.asarray(count_from(certified, check_radii(radii)) / len(assessment))
