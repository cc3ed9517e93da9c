"""Curves and maps: records of what the settings of one layer decide, for `iknow.evaluation.plots`.

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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from iknow.core.arrays import Bools, Codes, Floats, Ints, Labels
from iknow.core.assertion import Assertion
from iknow.core.rule import Limits
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

    @property
    def answered(self) -> Ints:  # type: ignore[override]
        """Number of samples by assertion and radius: one without an answer is never IK or IMK."""
        return self.counts

    @property
    def best(self) -> int:
        """The position in `radii` where F_IK is largest; the first if there are several."""
        return int(np.argmax(self.counts[Assertion.IK]))

    def places(self, radii: Any) -> Ints:
        """Return the positions in `self.radii` that hold for `radii`, in the shape of those."""
        return _find_places(self.radii, radii, side="right") - 1


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


def _find_places(ascending: Floats, radii: Any, side: Literal["left", "right"]) -> Ints:
    """Where `radii` belong among ascending ones, in the shape of `radii`."""
    asked = np.asarray(radii, dtype=np.float64)
    if not (asked >= 0).all():  # NaN included
        raise InputError(f"radii must be numbers >= 0; got {radii}")
    return np.searchsorted(ascending, asked, side=side)


def check_layer(assessment: Assessment, layer: str | None) -> str:
    """The named layer, or the only one."""
    layers = list(assessment.evidence)
    if layer is None and len(layers) == 1:
        return layers[0]
    if layer is None or layer not in layers:
        raise InputError(f"layer must be one of {layers}; got {layer!r}")
    return layer


@dataclass(frozen=True, eq=False)
class RobustCurve:
    """How many samples have at least a given robust radius, for every radius.

    A count holds at its radius and at all radii between it and the one before.

    Attributes:
        radii: Robust radii, finite and ascending from 0, of shape (m,).
        known: Number of IK samples that are robust at each radius, and beyond, of shape (m + 1,).
        right: Number of them whose belief is correct, of shape (m + 1,); None without truth.
        n_samples: Number of all samples.
    """

    radii: Floats
    known: Ints
    right: Ints | None
    n_samples: int

    @property
    def known_fraction(self) -> Floats:
        """Fraction of all samples that are IK and robust, of shape (m + 1,)."""
        return np.asarray(self.known / self.n_samples)

    @property
    def right_fraction(self) -> Floats | None:
        """Fraction of all samples that are IK, correct and robust, of shape (m + 1,)."""
        return None if self.right is None else self.right / self.n_samples

    def places(self, radii: Any) -> Ints:
        """Return the positions in the counts that hold for `radii`, in the shape of those."""
        return _find_places(self.radii, radii, side="left")


def robust_curve(assessment: Assessment, y_true: Any = None) -> RobustCurve:
    """Compute the curve of an `assessment`'s robust fraction against the radius.

    `y_true`: true labels of shape (n,), to also count correct beliefs.

    Examples:
        >>> curve = robust_curve(a, y_true)
        >>> curve.right_fraction[curve.places([0.0, 0.5, 1.0])].round(2)
        array([0.73, 0.48, 0.35])
    """
    if len(assessment) == 0:
        raise InputError("there is nothing to certify: the assessment is empty")
    ik: Bools = assessment.assertion == Assertion.IK
    certified = assessment.robust_radius
    radii = np.unique(np.append(certified[ik & np.isfinite(certified)], 0.0))
    grid, right = np.append(radii, np.inf), None
    if y_true is not None:
        ik_right = ik & (assessment.belief_codes == read_truth(assessment, y_true)[1])
        right = count_from(certified[ik_right], grid)
    return RobustCurve(radii, count_from(certified[ik], grid), right, len(assessment))


@dataclass(frozen=True, eq=False)
class Regions:
    """Beliefs and assertions at the points of a grid; see `map_regions`.

    Attributes:
        x: Horizontal coordinates, ascending, of shape (w,).
        y: Vertical coordinates, ascending, of shape (h,).
        classes: Labels of shape (n_classes,).
        belief: Positions in `classes`, of shape (h, w).
        assertion: One `Assertion` per point, of shape (h, w).
    """

    x: Floats
    y: Floats
    classes: Labels
    belief: Ints
    assertion: Codes


def map_regions(
    assess: Callable[[Floats], Assessment],
    x_limits: Limits,
    y_limits: Limits,
    resolution: int = 300,
) -> Regions:
    """Assess the points of a grid over a plane, `resolution` of them in each direction.

    `assess`: what assesses points of shape (n, 2), such as a fitted classifier's method.
    `x_limits`, `y_limits`: smallest and largest horizontal and vertical coordinate.

    Examples:
        >>> flat = EpistemicClassifier(LogisticRegression()).fit(X[:, :2], y)
        >>> map_regions(flat.assess, (4, 8), (2, 5), resolution=50).assertion.shape
        (50, 50)
    """
    if resolution < 2:
        raise InputError(f"resolution must be at least 2 places each way; got {resolution}")
    for limits in (x_limits, y_limits):
        if not limits[0] < limits[1] or not np.isfinite(limits).all():
            raise InputError(f"limits must be two finite numbers, the lower first; got {limits}")
    x, y = (np.linspace(*limits, resolution) for limits in (x_limits, y_limits))
    plane = assess(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2))
    belief, assertion = plane.belief_codes.reshape(len(y), -1), plane.assertion.reshape(len(y), -1)
    return Regions(x, y, plane.classes, belief, assertion)
