"""Assessment: everything iknow says about a set of predictions, column by column.

It holds the evidence, or a way to it, so other neighborhoods can be tried (`under`) and predictions
explained (`explain`) without asking the model again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from iknow.core.arrays import Bools, Codes, Floats, Ints, Labels
from iknow.core.assertion import Assertion, find_reasons, make_assertions
from iknow.core.evidence import Evidence
from iknow.core.explanation import Explanation, explain
from iknow.core.justification import justify
from iknow.core.neighborhood import Neighborhood
from iknow.core.on_request import evidence_about
from iknow.core.support import find_support
from iknow.errors import InputError


@dataclass(frozen=True, eq=False)
class Assessment:
    """Beliefs, what justifies them, and the assertions that follow.

    classes: labels of shape (n_classes,), in the order of all class axes below.
    belief_codes: the model's answer as positions in `classes`, of shape (n,).
    scores: the model's scores, of shape (n, n_classes).
    evidence, neighborhoods: one per layer, by name.
    invalid: mask of shape (n,) of the samples that were not finite.
    found: for each layer, the classes within reach of its neighborhood, masks of shape
        (n, n_classes), where they were found without the evidence. They must be what it gives.
    """

    classes: Labels
    belief_codes: Ints
    scores: Floats
    evidence: Mapping[str, Evidence]
    neighborhoods: Mapping[str, Neighborhood]
    invalid: Bools
    found: Mapping[str, Bools] | None = None

    def __post_init__(self) -> None:
        if set(self.evidence) != set(self.neighborhoods):
            raise InputError(
                f"neighborhoods are needed for the layers {sorted(self.evidence)}; "
                f"got them for {sorted(self.neighborhoods)}"
            )
        if self.found is not None and set(self.found) != set(self.evidence):
            raise InputError(
                f"supports are needed for the layers {sorted(self.evidence)}; "
                f"got them for {sorted(self.found)}"
            )

    def __len__(self) -> int:
        return len(self.belief_codes)

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{assertion.name} {int((self.assertion == assertion).sum())}"
            for assertion in reversed(Assertion)
        )
        return f"Assessment of {len(self)} predictions: {counts}"

    @cached_property
    def belief(self) -> Labels:
        """The model's answer as labels, of shape (n,).

        For an invalid sample it is what the model says with the non-finite values set to 0.
        """
        return self.classes[self.belief_codes]

    @cached_property
    def supports(self) -> dict[str, Bools]:
        """For each layer, the classes within reach: masks of shape (n, n_classes).

        An invalid sample has none, whatever evidence came with it: it fails closed, to IDK.
        """
        valid = ~self.invalid[:, None]
        if self.found is not None:
            return {layer: self.found[layer] & valid for layer in self.evidence}
        return {
            layer: find_support(evidence, self.neighborhoods[layer]) & valid
            for layer, evidence in self.evidence.items()
        }

    @cached_property
    def justification(self) -> Bools:
        """The justified classes, a mask of shape (n, n_classes)."""
        return justify(list(self.supports.values()))

    @cached_property
    def assertion(self) -> Codes:
        """An `Assertion` for each sample, of shape (n,)."""
        return make_assertions(self.belief_codes, self.justification)

    @cached_property
    def reason(self) -> Codes:
        """A `Reason` for each assertion, of shape (n,)."""
        return find_reasons(self.belief_codes, list(self.supports.values()), self.invalid)

    def under(self, neighborhoods: Mapping[str, Neighborhood]) -> Assessment:
        """The assessment of the same predictions by other neighborhoods, from the same evidence."""
        return Assessment(
            classes=self.classes,
            belief_codes=self.belief_codes,
            scores=self.scores,
            evidence=self.evidence,
            neighborhoods=neighborhoods,
            invalid=self.invalid,
        )

    def explain(self, i: int) -> Explanation:
        """Why sample `i` got its assertion: the training samples for and against, per layer."""
        if not -len(self) <= i < len(self):
            raise InputError(f"sample {i} does not exist: the assessment holds {len(self)} samples")
        i = int(np.arange(len(self))[i])
        return explain(
            i,
            classes=self.classes,
            belief=int(self.belief_codes[i]),
            assertion=int(self.assertion[i]),
            reason=int(self.reason[i]),
            evidence=evidence_about(self.evidence, slice(i, i + 1)),
            neighborhoods=self.neighborhoods,
        )
