"""Decision: what one layer adds to assertions and levels, without a distance to every class.

An assertion needs the classes within reach, and a level the distances to the believed class and to
the nearest other one. So classes further away than those need not be measured: evidence *truncated*
at any bound >= max(ρ, d_g, d_¬g), with inf in place of what lies beyond, decides alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Bools, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.contrast import Contrast, stack_contrasts
from iknow.core.evidence import NO_EXEMPLAR, Evidence, distances_for_and_against
from iknow.core.neighborhood import Neighborhood
from iknow.core.quorum import Weighed, weigh
from iknow.core.support import find_support


@dataclass(frozen=True, eq=False)
class Decision:
    """What one layer says about n queries and what is believed about them.

    Attributes:
        contrast: Distances for and against the beliefs, as the rule's quorum counts them; without
            neighbor distances.
        exemplars: The nearest training row of the believed class (the lowest of equals), of shape
            (n,); -1 where there is none.
        support: The classes within reach, a mask of shape (n, n_classes).
    """

    contrast: Contrast
    exemplars: Ints
    support: Bools

    def __len__(self) -> int:
        return len(self.exemplars)

    def __getitem__(self, queries: slice | Ints | Bools) -> Decision:
        return Decision(self.contrast[queries], self.exemplars[queries], self.support[queries])


def decide(evidence: Evidence, neighborhood: Neighborhood, belief: Ints) -> Decision:
    """What evidence decides about queries with a belief, class codes of shape (n,).

    Examples:
        >>> from iknow import Ball
        >>> decide(a.evidence["input"], Ball(0.5), a.belief_codes).support.shape
        (75, 3)
    """
    exemplars = evidence.exemplars[np.arange(len(belief)), belief]
    exemplars = np.where(belief == NO_BELIEF, NO_EXEMPLAR, exemplars)
    return decide_weighed(weigh(evidence, neighborhood.quorum, belief), neighborhood, exemplars)


def decide_weighed(weighed: Weighed, neighborhood: Neighborhood, exemplars: Ints) -> Decision:
    """What weighed evidence decides, perhaps truncated. exemplars: as in `Decision`."""
    own, other = distances_for_and_against(weighed, weighed.belief)
    contrast = Contrast(own, other, np.empty((len(own), 0)), neighborhood.quorum)
    return Decision(contrast, exemplars, find_support(weighed, neighborhood))


def stack_decisions(parts: Sequence[Decision]) -> Decision:
    """Join the decisions about successive batches of queries."""
    if len(parts) == 1:
        return parts[0]
    return Decision(
        stack_contrasts([part.contrast for part in parts]),
        np.concatenate([part.exemplars for part in parts]),
        np.concatenate([part.support for part in parts]),
    )


def replace_decisions(decision: Decision, rows: Ints, by: Decision) -> Decision:
    """A decision with those about the queries at positions `rows` replaced by others."""
    columns = decision.contrast.own, decision.contrast.other, decision.exemplars, decision.support
    others = by.contrast.own, by.contrast.other, by.exemplars, by.support
    own, other, exemplars, support = (column.copy() for column in columns)
    for column, new in zip((own, other, exemplars, support), others, strict=True):
        column[rows] = new
    contrast = Contrast(own, other, decision.contrast.neighbor_distances, decision.contrast.quorum)
    return Decision(contrast, exemplars, support)


def discard_decisions(decision: Decision, rows: Bools) -> Decision:
    """Erase what is decided about the queries marked by `rows`, a mask of shape (n,)."""
    if not rows.any():
        return decision
    contrast = decision.contrast
    own, other = (np.where(rows, np.inf, each) for each in (contrast.own, contrast.other))
    return Decision(
        Contrast(own, other, contrast.neighbor_distances, contrast.quorum),
        np.where(rows, NO_EXEMPLAR, decision.exemplars),
        decision.support & ~rows[:, None],
    )
