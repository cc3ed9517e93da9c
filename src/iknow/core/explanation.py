"""Explanation: one assertion with the training samples it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Labels
from iknow.core.assertion import Assertion, Reason
from iknow.core.evidence import NO_EXEMPLAR, Evidence
from iknow.core.neighborhood import NO_REACH, Neighborhood
from iknow.core.support import find_support

SENTENCES = {
    Reason.KNOWN: "in every layer all training samples within reach have the believed class",
    Reason.OVERLAP: "samples of several classes lie within reach in at least one layer",
    Reason.DISAGREEMENT: "each layer finds a single class within reach, but not the same one",
    Reason.EXTRAPOLATION: "at least one layer has no training sample within reach",
    Reason.CONTRADICTION: "samples lie within reach, but none of the believed class",
    Reason.INVALID: "the input, or an activation it causes, is not finite",
}


@dataclass(frozen=True)
class Exemplar:
    """The nearest training sample of one class: its row in the training set and its distance."""

    row: int
    label: Any
    distance: float

    def __str__(self) -> str:
        return f"#{self.row} ({self.label}) at {self.distance:.4g}"


@dataclass(frozen=True)
class LayerExplanation:
    """What one layer says: the nearest samples for and against the belief, reach and support."""

    layer: str
    nearest_for: Exemplar | None
    nearest_against: Exemplar | None
    reach: float | None
    support: tuple[Any, ...]


@dataclass(frozen=True)
class Explanation:
    """Why one sample got its assertion."""

    index: int
    belief: Any
    assertion: Assertion
    reason: Reason
    layers: tuple[LayerExplanation, ...]

    def __str__(self) -> str:
        lines = [
            f"sample {self.index}: {self.assertion.name}, belief {self.belief}",
            f"  {self.reason.name}: {SENTENCES[self.reason]}",
        ]
        for layer in self.layers:
            reach = "none" if layer.reach is None else f"{layer.reach:.4g}"
            support = ", ".join(map(str, layer.support)) or "nothing"
            lines += [
                f"  {layer.layer}: reach {reach}, support {{{support}}}",
                f"    for      {layer.nearest_for or 'no sample'}",
                f"    against  {layer.nearest_against or 'no sample'}",
            ]
        return "\n".join(lines)


def explain(
    i: int,
    *,
    classes: Labels,
    belief: int,
    assertion: int,
    reason: int,
    evidence: Mapping[str, Evidence],
    neighborhoods: Mapping[str, Neighborhood],
) -> Explanation:
    """Collect the explanation of sample `i` from the evidence about it alone, by layer."""
    return Explanation(
        index=i,
        belief=classes.tolist()[belief],
        assertion=Assertion(assertion),
        reason=Reason(reason),
        layers=tuple(
            _explain_layer(layer, about_it, neighborhoods[layer], belief, classes.tolist())
            for layer, about_it in evidence.items()
        ),
    )


def _explain_layer(
    layer: str, evidence: Evidence, neighborhood: Neighborhood, belief: int, classes: list[Any]
) -> LayerExplanation:
    """Explain the one sample that `evidence` is about."""
    distances = evidence.class_distances[0]
    others = np.where(np.arange(len(classes)) == belief, np.inf, distances)
    # A rule with a radius for each class reaches as far as that of the believed one.
    reach = float(np.broadcast_to(neighborhood.reach(evidence)[0], len(classes))[belief])

    def exemplar(candidates: Floats, code: int) -> Exemplar | None:
        row = int(evidence.exemplars[0, code])
        if row == NO_EXEMPLAR or np.isinf(candidates[code]):
            return None
        return Exemplar(row, classes[code], float(candidates[code]))

    return LayerExplanation(
        layer=layer,
        nearest_for=exemplar(distances, belief),
        nearest_against=exemplar(others, int(others.argmin())),
        reach=None if reach == NO_REACH else reach,
        support=tuple(
            classes[code] for code in np.flatnonzero(find_support(evidence, neighborhood))
        ),
    )
