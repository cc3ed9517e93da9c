"""The objective of every method of selection: coverage first, then right beliefs.

A sample weighs one more than all right beliefs together, so the total weight of the boxes around a
point ranks settings by coverage and, among equal coverages, by accuracy on IK.

Boxes hold the parameters for which a sample is IK. A layer is pure for a sample exactly when each
parameter of its rule lies in an interval, which the rule gives (`Rule.box`). IK means pure in every
layer, so each sample is a box in the space of all parameters, and the coverage at a point is the
number of boxes around it: its depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.quorum import ONE, Quorum, ValidationEvidence, find_contrast, quorum_of
from iknow.core.rule import Rule, axes_of, make_rule
from iknow.errors import SelectionError
from iknow.selection.validation import Validation


def sample_boxes(
    evidence: ValidationEvidence, belief: Ints, rule: type[Rule], k: int | None = None
) -> tuple[Floats, Floats]:
    """Low and high corners of the samples' boxes, each of shape (n, n_layers * n_parameters).

    A box is half-open, [low, high), and empty, low >= high, if a sample is never IK.
    """
    sides = [rule.box(find_contrast(layer, belief), k) for layer in evidence.values()]
    lows, highs = zip(*(side for layer in sides for side in layer), strict=True)
    return np.column_stack(lows), np.column_stack(highs)


def around(lows: NDArray[Any], highs: NDArray[Any], point: NDArray[Any]) -> Bools:
    """Which boxes hold a point, of shape (n,)."""
    inside: Bools = np.all((lows <= point) & (point < highs), axis=1)
    return inside


@dataclass(frozen=True, eq=False)
class Objective:
    """Validation samples as boxes in the space of a rule's parameters, with their weights."""

    layers: Sequence[str]
    rule: type[Rule]
    k: int | None
    lows: Floats  # of shape (n, n_axes), as are highs
    highs: Floats
    right: Ints  # whether each belief is right, of shape (n,)
    quorum: Quorum = ONE

    @property
    def weights(self) -> Ints:
        return len(self.right) + 1 + self.right

    def value(self, point: Floats) -> int:
        """The total weight of the samples that are IK at a point."""
        return int(self.weights[around(self.lows, self.highs, point)].sum())

    def coverage(self, value: float) -> float:
        """The coverage of a value, or of a bound on values."""
        n = len(self.right)
        return min(n, int(value) // (n + 1)) / n

    def neighborhoods(self, point: Floats) -> dict[str, Rule]:
        """The neighborhoods at a point."""
        names = axes_of(self.rule)
        return {
            layer: make_rule(self.rule, self.k, self.quorum, **dict(zip(names, row, strict=True)))
            for layer, row in zip(self.layers, point.reshape(-1, len(names)).tolist(), strict=True)
        }


def make_objective(validation: Validation, rule: type[Rule], k: int | None) -> Objective:
    """The objective of a rule on validation samples; an error if none can ever be IK."""
    contrasts = validation.contrasts
    lows, highs = sample_boxes(contrasts, validation.belief, rule, k)
    if not np.all(lows < highs, axis=1).any():
        raise SelectionError(
            f"no {rule.__name__} makes any of the {len(validation)} validation samples IK: in some "
            "layer the training samples near each of them are not all of its believed class. Use "
            "other layers, a better model, or more training data"
        )
    right = (~validation.wrong).astype(np.int64)
    return Objective(tuple(contrasts), rule, k, lows, highs, right, quorum_of(contrasts))
