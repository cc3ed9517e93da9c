"""Choosing the neighborhoods of the largest coverage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.arrays import Ints
from iknow.core.assertion import Assertion, make_assertions
from iknow.core.evidence import Evidence
from iknow.core.justification import justify
from iknow.core.neighborhood import (
    Neighborhood,
    has_k,
    has_radius,
    neighborhood_from_dict,
    neighborhood_to_dict,
)
from iknow.core.support import find_support
from iknow.errors import SelectionError
from iknow.selection.boxes import TUNABLE, pure_radii
from iknow.selection.depth import deepest_point


@dataclass(frozen=True)
class Selection:
    """Chosen neighborhoods and how they fare on the validation data they were chosen on.

    coverage: fraction of IK. accuracy: fraction of right beliefs among IK.
    """

    neighborhoods: Mapping[str, Neighborhood]
    coverage: float
    accuracy: float
    method: str
    optimal: bool
    n_samples: int

    def to_dict(self) -> dict[str, Any]:
        """The selection as plain values for JSON."""
        return {
            **vars(self),
            "neighborhoods": {
                layer: neighborhood_to_dict(rule) for layer, rule in self.neighborhoods.items()
            },
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Selection:
        """The selection written by `to_dict`."""
        neighborhoods = {
            layer: neighborhood_from_dict(rule) for layer, rule in record["neighborhoods"].items()
        }
        return cls(**{**record, "neighborhoods": neighborhoods})


def select(
    evidence: Mapping[str, Evidence],
    belief: Ints,
    truth: Ints,
    rule: type[Neighborhood],
    k: int | None = None,
) -> Selection:
    """The radii of the largest coverage on validation data: the true maximum, for 1 or 2 layers.

    evidence: by layer, about n validation samples. belief, truth: class codes of shape (n,). Among
    equal coverages the one with the most right beliefs is taken, then the middle of its plateau.
    """
    if has_radius(rule) and rule not in TUNABLE:
        raise SelectionError(
            f"the radii of {rule.__name__} cannot be chosen exactly: only those of "
            f"{', '.join(known.__name__ for known in TUNABLE)} can; fix it with neighborhoods=..."
        )
    if not has_radius(rule):
        raise SelectionError(
            f"{rule.__name__} has no radius, and k=1 always covers most: fix it with "
            "neighborhoods=..., or match a coverage with iknow.selection.match_k"
        )
    if len(evidence) > 2:
        raise SelectionError(
            f"the exact optimum is known for one and two layers; got {len(evidence)} "
            f"({', '.join(evidence)}): choose two of them, or fix neighborhoods=..."
        )
    boxes = [pure_radii(layer, belief, rule, k) for layer in evidence.values()]
    lows = np.column_stack([low for low, _ in boxes])
    highs = np.column_stack([high for _, high in boxes])
    if not (lows < highs).all(axis=1).any():
        raise SelectionError(
            f"no radius makes any of the {len(belief)} validation samples IK: in some layer each "
            "of them is nearer to another class than to the one believed, or has another class "
            "among its k nearest. Use other layers, a better model, or more training data"
        )
    # A sample weighs one more than all right beliefs together can add: coverage first, then they.
    weights = len(belief) + 1 + (belief == truth).astype(np.int64)
    radii = deepest_point(lows, highs, weights)
    parameters = {"k": k} if has_k(rule) else {}
    neighborhoods = {
        layer: rule(radius=float(radius), **parameters)  # type: ignore[call-arg]
        for layer, radius in zip(evidence, radii, strict=True)
    }
    return record_selection(evidence, belief, truth, neighborhoods, method="exact", optimal=True)


def record_selection(
    evidence: Mapping[str, Evidence],
    belief: Ints,
    truth: Ints,
    neighborhoods: Mapping[str, Neighborhood],
    *,
    method: str,
    optimal: bool,
) -> Selection:
    """The record of chosen neighborhoods, measured by applying them."""
    supports = [find_support(layer, neighborhoods[name]) for name, layer in evidence.items()]
    knows = make_assertions(belief, justify(supports)) == Assertion.IK
    right = (belief == truth)[knows]
    return Selection(
        neighborhoods=dict(neighborhoods),
        coverage=float(knows.mean()),
        accuracy=float(right.mean()) if len(right) else float("nan"),
        method=method,
        optimal=optimal,
        n_samples=len(belief),
    )
