"""Boxes: the parameters for which a sample is IK.

A layer is pure for a sample exactly when each parameter of its rule lies in an interval, which the
rule gives (`Rule.box`). IK means pure in every layer, so each sample is a box in the space
of all parameters, and the coverage at a point is the number of boxes around it: its depth.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.quorum import ONE, Quorum, ValidationEvidence, find_contrast
from iknow.core.rule import Rule, axes_of, make_rule


def sample_boxes(
    evidence: ValidationEvidence, belief: Ints, rule: type[Rule], k: int | None = None
) -> tuple[Floats, Floats]:
    """Low and high corners of the samples' boxes, each of shape (n, n_layers * n_parameters).

    A box is half-open, [low, high), and empty, low >= high, if a sample is never IK.
    """
    sides = [rule.box(find_contrast(layer, belief), k) for layer in evidence.values()]
    lows, highs = zip(*(side for layer in sides for side in layer), strict=True)
    return np.column_stack(lows), np.column_stack(highs)


def neighborhoods_at(
    point: Floats,
    layers: Iterable[str],
    rule: type[Rule],
    k: int | None = None,
    quorum: Quorum = ONE,
) -> dict[str, Rule]:
    """The neighborhoods at a point in the space of the boxes."""
    names = axes_of(rule)
    return {
        layer: make_rule(rule, k, quorum, **dict(zip(names, values, strict=True)))
        for layer, values in zip(layers, point.reshape(-1, len(names)).tolist(), strict=True)
    }
