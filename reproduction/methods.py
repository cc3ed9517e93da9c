"""The methods of the paper's tables: chosen on validation data, then asked what they know.

The radii are those of the largest coverage, the exact optimum. k-NN and the threshold on softmax
are then matched to that coverage, and the hybrids H-1 and H-2 use that ε and that k. The tables
have one method more, iknow's default, which reads layers of its own: see `Default`.

The paper defines the hybrids per layer; its authors' code combines the assertions of ball and k-NN
instead. For H-2 (IK if both are IK) that is the same: a union is {g(x)} exactly when its parts are.
For H-1 (k-NN's answer if the ball says IDK) it is not, with several layers: see h1_code.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.core.assertion import Assertion
from iknow.core.rule import Rule
from iknow.explain.assessment import Assessment
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest
from iknow.selection import Goal, Validation, match_k, match_threshold, select
from iknow.selection.selection import Candidate

METHODS = ("softmax", "knn", "ball", "h1", "h2", "default", "h1_code")
FIRST_NEIGHBORS = 128


@dataclass(frozen=True)
class Chosen:
    """The parameters of the paper's methods for a set of layers, and the coverage they match."""

    radii: Mapping[str, float]
    k: int
    threshold: float
    coverage: float

    @cached_property
    def rules(self) -> dict[str, dict[str, Rule]]:
        """The neighborhoods of the methods that are rules, by layer."""
        radii, k = self.radii, self.k
        return {
            "knn": {layer: Nearest(k) for layer in radii},
            "ball": {layer: Ball(radius) for layer, radius in radii.items()},
            "h1": {layer: BallElseNearest(radius, k) for layer, radius in radii.items()},
            "h2": {layer: BallWithNearest(radius, k) for layer, radius in radii.items()},
        }


def choose(
    assess_val: Callable[[int], Assessment], y_true: Ints, layers: tuple[str, ...], n_train: int
) -> Chosen:
    """Choose on validation data, whose truth has shape (n,).

    assess_val: returns the assessment of the validation data with evidence of k neighbors. It is
    called again with a larger k as long as k-NN covers too much with the largest one.
    """
    n_neighbors = min(FIRST_NEIGHBORS, n_train)
    while True:
        assessment = assess_val(n_neighbors)
        evidence = {layer: assessment.evidence[layer] for layer in layers}
        belief = assessment.belief_codes
        validation = Validation(evidence, belief, y_true)
        selection = select(Goal(), validation, Ball)
        k = match_k(evidence, belief, selection.coverage)
        # Coverage falls with k: once it is low enough, no larger k can come nearer.
        widest = Candidate(dict.fromkeys(layers, Nearest(n_neighbors))).find_known(validation)
        if widest.mean() <= selection.coverage or n_neighbors == n_train:
            break
        n_neighbors = min(4 * n_neighbors, n_train)
    balls = {
        layer: rule for layer, rule in selection.neighborhoods.items() if isinstance(rule, Ball)
    }
    return Chosen(
        radii={layer: ball.radius for layer, ball in balls.items()},
        k=k,
        threshold=match_threshold(confidence_of(assessment.scores), selection.coverage),
        coverage=selection.coverage,
    )


def find_known(chosen: Chosen, assessment: Assessment) -> dict[str, Bools]:
    """Which samples each method of the paper knows: masks of shape (n,)."""
    layers = {layer: assessment.evidence[layer] for layer in chosen.radii}
    assertions = {
        method: replace(assessment, evidence=layers, neighborhoods=rules).assertion
        for method, rules in chosen.rules.items()
    }
    ball, nearest = assertions["ball"], assertions["knn"]
    known = {method: found == Assertion.IK for method, found in assertions.items()}
    known["softmax"] = confidence_of(assessment.scores) >= chosen.threshold
    known["h1_code"] = np.where(ball == Assertion.IDK, nearest, ball) == Assertion.IK
    return known


def confidence_of(scores: Floats) -> Floats:
    """The largest softmax value of logits of shape (n, n_classes), of shape (n,)."""
    # exp(max - max) is 1, so the largest share is 1 over the sum of all.
    confidence: Floats = 1 / np.exp(scores - scores.max(axis=1, keepdims=True)).sum(axis=1)
    return confidence


@dataclass(frozen=True)
class Default:
    """A fitted classifier, and the level at which it matches the ball in each set of layers."""

    classifier: EpistemicClassifier
    levels: Mapping[str, float]

    def find_known(self, X: Floats32) -> dict[str, Bools]:
        """Which of n samples are IK: masks of shape (n,), by the set of layers matched."""
        with warnings.catch_warnings(action="ignore"):  # that noise is large is what is asked about
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
