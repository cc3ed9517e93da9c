"""iknow's default beside the paper's methods: what a reader gets without choosing anything.

`EpistemicClassifier(network)` chooses its own layers and metrics. It is tuned on validation data,
without labels, to the coverage that the ball reached there in each of the paper's sets of layers,
so that the rows of a table cover alike where nothing is perturbed. All these settings lie on one
path of levels, which the validation samples alone fix: a sample is IK where its level reaches the
one chosen, and one search answers for all sets of layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.arrays import Bools, Floats32


@dataclass(frozen=True)
class Default:
    """A fitted classifier, and the level at which it matches the ball in each set of layers."""

    classifier: EpistemicClassifier
    levels: Mapping[str, float]

    def find_known(self, X: Floats32) -> dict[str, Bools]:
        """Which of n samples are IK: masks of shape (n,), by the set of layers matched."""
        found = self.classifier.assess(X, evidence=True).level
        return {layers: found >= level for layers, level in self.levels.items()}


def tune_default(
    classifier: EpistemicClassifier, X_val: Any, coverages: Mapping[str, float]
) -> Default:
    """Tune a fitted classifier to the coverages, by set of layers, on validation samples X_val."""
    levels = {}
    for layers, coverage in coverages.items():
        selection = classifier.tune(X_val, coverage=coverage).selection_
        assert selection.level is not None  # the default rule has levels
        levels[layers] = selection.level
    return Default(classifier, levels)
