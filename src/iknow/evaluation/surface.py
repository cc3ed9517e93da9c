"""The coverage surface: F_IK over the radii of two layers, with its true maximum.

A sample is IK for the radii in a box (`iknow.selection.exact`), if the other layers know it too. A
box covers a rectangle of a grid: marks at its four corners, summed along both axes, count the boxes
around all grid points at once. The optimum comes from the boxes themselves, not from the grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Assertion, make_assertions
from iknow.core.justification import justify
from iknow.core.neighborhood import axes_of
from iknow.errors import InputError
from iknow.explain.assessment import Assessment
from iknow.rules import Ball
from iknow.selection.exact.boxes import sample_boxes
from iknow.selection.exact.depth import deepest_point

Pair = tuple[float, float]


@dataclass(frozen=True, eq=False)
class CoverageSurface:
    """Number of IK samples at pairs of radii; `coverage_surface` makes it.

    Attributes:
        layers: The two layers whose radii vary.
        x: Radii of the first layer, ascending, of shape (w,).
        y: Radii of the second layer, ascending, of shape (h,).
        counts: Number of IK samples, of shape (h, w).
        n_samples: Number of all samples.
        best: The radii with the largest count of all, not only on the grid; None if no sample is
            ever IK.
        best_count: That count.
        chosen: The radii in the assessment; None if a layer's rule has not exactly one to choose.
    """

    layers: tuple[str, str]
    x: Floats
    y: Floats
    counts: Ints
    n_samples: int
    best: Pair | None
    best_count: int
    chosen: Pair | None

    @property
    def f_ik(self) -> Floats:
        """Fraction of IK, of shape (h, w)."""
        fractions: Floats = self.counts / self.n_samples
        return fractions

    @property
    def best_f_ik(self) -> float:
        return self.best_count / self.n_samples


def coverage_surface(
    assessment: Assessment,
    layers: Sequence[str] | None = None,
    radii: tuple[Any, Any] | None = None,
    resolution: int = 200,
) -> CoverageSurface:
    """Compute F_IK over the radii of two layers, with the neighborhoods of all others fixed.

    Args:
        assessment: What `assess` returned.
        layers: Two names; optional if there are only two. A layer whose rule has only a radius to
            choose keeps its rule, k and quorum; for any other layer the radius is that of a `Ball`
            with its quorum.
        radii: Two ascending arrays, of shape (w,) and (h,). Default: `resolution` values each, over
            all radii where coverage changes much.
        resolution: Number of radii per layer, if `radii` is not given.

    Examples:
        >>> surface = coverage_surface(a, resolution=20)
        >>> surface.counts.shape, surface.best_count
        ((20, 20), 62)
    """
    first, second = _check_layers(assessment, layers)
    if len(assessment) == 0:
        raise InputError("there is nothing to cover: the assessment is empty")
    sides = [_interval(assessment, layer) for layer in (first, second)]
    lows, highs = (np.column_stack([side[end] for side in sides]) for end in (0, 1))
    possible = _known_elsewhere(assessment, (first, second)) & (lows < highs).all(axis=1)
    lows, highs = lows[possible], highs[possible]
    if radii is None:
        x, y = (_worth_seeing(lows[:, i], highs[:, i], resolution) for i in (0, 1))
    else:
        x, y = (_check_radii(each) for each in radii)
    best, best_count = _optimum(lows, highs)
    return CoverageSurface(
        layers=(first, second),
        x=x,
        y=y,
        counts=_count(lows, highs, x, y),
        n_samples=len(assessment),
        best=best,
        best_count=best_count,
        chosen=_chosen(assessment, first, second),
    )


def _interval(assessment: Assessment, layer: str) -> tuple[Floats, Floats]:
    """The radii [low, high) at which the layer is pure for each sample, of shape (n,)."""
    own = assessment.neighborhoods[layer]
    rule = type(own) if axes_of(type(own)) == ("radius",) else Ball
    evidence = {layer: assessment.weighed[layer]}
    low, high = sample_boxes(evidence, assessment.belief_codes, rule, own.n_neighbors)
    return low[:, 0], high[:, 0]


def _known_elsewhere(assessment: Assessment, layers: tuple[str, str]) -> Bools:
    """The valid samples that all other layers know."""
    others = [mask for name, mask in assessment.supports.items() if name not in layers]
    known: Bools = ~assessment.never_known
    if others:
        known &= make_assertions(assessment.belief_codes, justify(others)) == Assertion.IK
    return known


def _count(lows: Floats, highs: Floats, x: Floats, y: Floats) -> Ints:
    """The number of boxes [low, high) around each grid point, of shape (h, w)."""
    marks = np.zeros((len(y) + 1, len(x) + 1), dtype=np.int64)
    # The first grid point inside a box, and the first past it: low is inside, high is not.
    left, right = (np.searchsorted(x, places[:, 0], side="left") for places in (lows, highs))
    below, above = (np.searchsorted(y, places[:, 1], side="left") for places in (lows, highs))
    np.add.at(marks, (below, left), 1)
    np.add.at(marks, (above, right), 1)
    np.add.at(marks, (below, right), -1)
    np.add.at(marks, (above, left), -1)
    counts: Ints = marks.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]
    return counts


def _optimum(lows: Floats, highs: Floats) -> tuple[Pair | None, int]:
    if len(lows) == 0:
        return None, 0
    deepest = deepest_point(lows, highs, np.ones(len(lows)))
    x, y = deepest.point.tolist()
    return (x, y), int(deepest.value)


def _chosen(assessment: Assessment, first: str, second: str) -> Pair | None:
    rules = [assessment.neighborhoods[name] for name in (first, second)]
    if any(axes_of(type(rule)) != ("radius",) for rule in rules):
        return None  # with more than a radius, the point would not have the coverage shown there
    x, y = (getattr(rule, "radius", None) for rule in rules)
    return (x, y) if isinstance(x, float) and isinstance(y, float) else None


def _worth_seeing(low: Floats, high: Floats, resolution: int) -> Floats:
    """Radii over which samples become and cease to be IK, in even steps, or ratios if far apart."""
    begins = low[low > 0]
    begin = float(np.quantile(begins, 0.01)) if len(begins) else 0.0
    ends = np.where(np.isfinite(high), high, low)  # those that never cease: where they begin
    end = (float(np.quantile(ends, 0.99)) if len(ends) else 0.0) or 1.0
    if 0 < begin < end / 100:
        return np.geomspace(begin, end, resolution)
    return np.linspace(0, end, resolution)


def _check_radii(radii: Any) -> Floats:
    places = np.asarray(radii, dtype=np.float64)
    valid = places.ndim == 1 and len(places) > 0 and bool(np.isfinite(places).all())
    if not valid or places[0] < 0 or (np.diff(places) <= 0).any():
        raise InputError(f"radii must be finite numbers >= 0 in ascending order; got {radii}")
    return places


def _check_layers(assessment: Assessment, layers: Sequence[str] | None) -> tuple[str, str]:
    names = list(assessment.evidence)
    asked = names if layers is None else list(layers)
    if len(asked) != 2 or asked[0] == asked[1] or not set(asked) <= set(names):
        raise InputError(
            f"layers must name the two whose radii vary, out of {names}; "
            f"got {'none' if layers is None else asked}"
        )
    return asked[0], asked[1]
