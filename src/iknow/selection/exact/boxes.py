"""Boxes: the parameters for which a sample is IK.

With a belief g, let d_g be the distance to the nearest sample of the believed class and d_other
that to the nearest of any other. A layer is pure for a sample exactly when each parameter of the
rule lies in an interval:

    Ball               radius in [d_g, d_other)
    BallElseNearest    radius in [0, d_other) if the k nearest are all g, else in [d_g, d_other)
    BallWithNearest    radius in [d_g, d_other) if the k nearest are all g, else never
    RelativeBall       radius in [d_g, inf) and ratio in [1, d_other / d_g)

IK means pure in every layer, so each sample is a box in the space of all parameters, and the
coverage of some parameters is the number of boxes around that point: its depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.contrast import Contrast, find_contrast
from iknow.core.evidence import Evidence
from iknow.core.neighborhood import (
    Ball,
    BallElseNearest,
    BallWithNearest,
    Neighborhood,
    RelativeBall,
    has_k,
)

AXES: dict[type[Neighborhood], tuple[str, ...]] = {
    Ball: ("radius",),
    BallElseNearest: ("radius",),
    BallWithNearest: ("radius",),
    RelativeBall: ("radius", "ratio"),
}
"""The parameters of each rule that are chosen; k is given."""


def sample_boxes(
    evidence: Mapping[str, Evidence] | Mapping[str, Contrast],
    belief: Ints,
    rule: type[Neighborhood],
    k: int | None = None,
) -> tuple[Floats, Floats]:
    """Low and high corners of the samples' boxes, each of shape (n, n_layers * n_parameters).

    A box is half-open, [low, high); it is empty, low >= high, where a sample is never IK.
    """
    sides = [_layer_sides(find_contrast(layer, belief), rule, k) for layer in evidence.values()]
    lows = np.column_stack([low for layer in sides for low, _ in layer])
    highs = np.column_stack([high for layer in sides for _, high in layer])
    return lows, highs


def neighborhoods_at(
    point: Floats, layers: Iterable[str], rule: type[Neighborhood], k: int | None = None
) -> dict[str, Neighborhood]:
    """The neighborhoods that a point in the space of the boxes stands for."""
    names = AXES[rule]
    shared = {"k": k} if has_k(rule) else {}
    return {
        layer: rule(**dict(zip(names, values, strict=True)), **shared)
        for layer, values in zip(layers, point.reshape(-1, len(names)).tolist(), strict=True)
    }


def _layer_sides(
    contrast: Contrast, rule: type[Neighborhood], k: int | None
) -> list[tuple[Floats, Floats]]:
    """For each parameter of the rule in one layer, its interval for every sample."""
    own, other = contrast.own, contrast.other
    if rule is RelativeBall:
        ratio = np.where(own < other, _least_ratio(own, other), 1.0)  # equals are both in reach
        return [(own, np.full(len(own), np.inf)), (np.ones(len(own)), ratio)]
    if not has_k(rule):
        return [(own, other)]
    # Ties with the k-th neighbour count, so the k nearest are all g when none is as far as d_other.
    agree = contrast.neighbor_distance(k or 0) < other
    if rule is BallElseNearest:
        return [(np.where(agree, 0.0, own), other)]
    return [(own, np.where(agree, other, own))]


def _least_ratio(own: Floats, other: Floats) -> Floats:
    """The least number whose product with `own` reaches `other`, as the rule rounds it."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quotient = other / own
        below = np.nextafter(quotient, 0)
        least = np.where(
            below * own >= other,
            below,
            np.where(quotient * own >= other, quotient, np.nextafter(quotient, np.inf)),
        )
    ratio: Floats = np.where(np.isinf(other), np.inf, least)  # what is not there is never reached
    return ratio
