"""Meaning: in which layers nearness says something about the class.

In raw pixels of photographs the nearest training sample is often of another class, simply because
it is as dark. Such a layer contradicts most beliefs, right or wrong, and would drag every level
down. We ask how often the samples nearest to a reference sample have its believed class, a, and how
often they would by chance, e. Cohen's kappa, (a - e) / (1 - e), is 0 for a layer that knows nothing
and 1 for one that always agrees. A layer that does not come half way is left out: its word is
closer to chance than to the model's. The truth is not asked, so the choice costs no label.

Leaves agree with the trees they are from, but beyond the training data everything falls into the
outermost ones: they cannot see how far away a sample is. So one layer besides them is always kept.
"""

from __future__ import annotations

import numpy as np

from iknow.core.quorum import find_contrast
from iknow.metrics.metric import LEAVES
from iknow.selection.candidates import Part

LEAST_KAPPA = 0.5


def find_meaningless(reference: Part) -> dict[str, str]:
    """The layers to leave out, with the reason in words.

    One is always kept, the best; it is not that of leaves if there is another.
    """
    shares = np.bincount(reference.belief) / len(reference)
    chance = float(np.square(shares).sum())
    agreements: dict[str, float] = {}
    for layer, evidence in reference.evidence.items():
        contrast = find_contrast(evidence, reference.belief)
        # A training set smaller than the quorum has no such neighbor, and supports no belief.
        nearest = contrast.neighbor_distance(min(contrast.quorum[0], contrast.n_neighbors))
        # Another class at distance 0 lets nothing be known: coarse leaves may put all in one.
        agreements[layer] = float(np.mean((contrast.own <= nearest) & (contrast.other > 0)))
    best = max(
        [name for name in agreements if name != LEAVES] or [LEAVES], key=agreements.__getitem__
    )
    least = chance + LEAST_KAPPA * (1 - chance)
    return {
        layer: f"nearness means little in it: the nearest training samples have the believed class "
        f"for {agreement:.0%} of the reference samples ({chance:.0%} by chance, {least:.0%} needed)"
        for layer, agreement in agreements.items()
        if agreement < least and layer != best
    }
