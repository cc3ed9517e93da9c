"""Validating: what a model and the indexes of its layers say about the samples that tuning uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from iknow.classifier.gathering import errors_that_name
from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.level import are_probabilities, log_odds
from iknow.core.quorum import Contrast, Quorum, find_contrast, stack_contrasts, weigh
from iknow.models.model import Observation
from iknow.search.index import Index
from iknow.selection.candidates import Part


@dataclass(frozen=True, eq=False)
class Validation:
    """What tuning needs to know about n samples.

    belief, invalid: of shape (n,). evidence: by layer, weighed by the quorum. confidence: the
    model's, `log_odds` of shape (n,). from_probabilities: whether its scores are probabilities.
    """

    belief: Ints
    invalid: Bools
    evidence: Mapping[str, Contrast]
    confidence: Floats
    from_probabilities: bool

    def as_part(self, y_true: Ints | None) -> Part:
        columns = self.evidence, self.belief, y_true, self.confidence, self.from_probabilities
        return Part(*columns)


def gather_validation(
    observations: Iterable[Observation],
    indexes: Mapping[str, Index],
    k: int,
    quorum: Quorum,
) -> Validation:
    """Search the layers for what tuning needs."""
    beliefs, invalid, odds, normalized = [], [], [], []
    parts: dict[str, list[Contrast]] = {layer: [] for layer in indexes}
    for observation in observations:
        belief = observation.belief
        for layer, index in indexes.items():
            with errors_that_name(layer):
                found = index.gather(observation.activations[layer], k, max(quorum))
            parts[layer].append(find_contrast(weigh(found, quorum, belief), belief))
        beliefs.append(belief)
        invalid.append(observation.invalid)
        normalized.append(are_probabilities(observation.scores))
        odds.append([log_odds(observation.scores, belief, each) for each in (False, True)])
    from_probabilities = all(normalized)
    return Validation(
        np.concatenate(beliefs),
        np.concatenate(invalid),
        {layer: stack_contrasts(found) for layer, found in parts.items()},
        np.concatenate([each[from_probabilities] for each in odds]),
        from_probabilities,
    )
