"""Condensing: a classifier that takes less room and says no more than it can prove.

A few rows stay in full; each of the others becomes a short code that bounds its distance to any
sample from both sides (`iknow.search.condensed`). An assertion of the condensed classifier is the
full one's with the same neighborhoods, or IDK, for every sample (`iknow.core.surely`).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from iknow.classifier.watching import WatchingMixin
from iknow.core.arrays import Bools, Floats32, Ints
from iknow.core.assertion import Assertion, make_assertions
from iknow.core.justification import justify
from iknow.core.neighborhood import Neighborhood, has_k
from iknow.core.scalars import as_real
from iknow.core.surely import check_decides_by_bounds
from iknow.core.text import names, percent
from iknow.errors import InputError, SelectionError
from iknow.explain.assessment import Assessment
from iknow.search.condensed.condense import Axes, condense_layers, count_bytes, find_axes
from iknow.search.condensed.layer import CondensedLayer
from iknow.search.condensed.record import Condensed
from iknow.search.layer import LayerIndex

HALVINGS = 15  # of the tolerance, from the coarsest codes to the finest
TRIED = 1000  # samples that show how long codes must be; all of them confirm it


class CondensingMixin(WatchingMixin):
    """`condense`, for a classifier with neighborhoods."""

    def condense(self, X: Any, *, factor: float = 5.0, coverage_loss: float = 0.01) -> Self:
        """Return a copy with fewer rows, whose assertions are this one's, or IDK.

        One in `factor` training samples stays in full; each of the others becomes a code of a few
        numbers per layer, as short as `coverage_loss` allows. The assertion about any sample, with
        any neighborhoods, is that of the full classifier or IDK, and levels are never higher: that
        is proven. How often it is IDK is measured on `X`, and `condensed_` tells.

        The accuracy on what remains IK may differ, so what `tune` certified no longer holds: tune
        again for a certificate, which may also win back coverage. Distances in the evidence and in
        explanations are upper bounds. Stability counts no more than one sample, and a condensed
        classifier takes no further evidence.

        Args:
            X: n samples like those to come, without labels: other than training and test data.
            factor: How many times fewer rows stay in full, at least 1.
            coverage_loss: The largest loss of coverage on `X`, from 0 to 1.

        Raises:
            InputError: A layer's metric is not Euclidean, or a rule makes no promise about bounds.
            SelectionError: Even the longest codes lose more coverage.

        Examples:
            >>> ec = EpistemicClassifier(trained).fit(X_train, y_train).tune(X_val, y_val)
            >>> small = ec.condense(X_val, factor=5, coverage_loss=0.05)
            >>> small.condensed_.rows, small.condensed_.rows_before
            (10, 50)
        """
        check_is_fitted(self, "indexes_")
        times = as_real(factor, "factor", "be a number >= 1", lambda number: number >= 1)
        allowed = as_real(
            coverage_loss, "coverage_loss", "lie between 0 and 1", lambda number: 0 <= number <= 1
        )
        self._check_condensable()
        rules = self.neighborhoods_
        assessed: Assessment = self.assess(X)  # type: ignore[attr-defined]
        known = np.flatnonzero(assessed.assertion == Assertion.IK)
        if len(known) == 0:
            raise SelectionError("none of the samples is IK, so there is no coverage to keep")
        samples, layers = self._samples(X), tuple(rules)
        observation, _ = self._run(samples, layers)
        queries = {layer: observation.activations[layer][known] for layer in layers}
        trial = _Trial(self.indexes_, rules, queries, assessed.belief_codes[known], len(assessed))
        n_rows = self.indexes_[self.layers_[0]].n_rows
        needed = max(max(rule.n_neighbors, *rule.quorum) for rule in rules.values())
        n_kept = min(n_rows, max(int(n_rows / times), needed, 1))
        indexes, lost = trial.shortest(n_kept, allowed)
        small = copy(self)
        small.indexes_ = dict(indexes)
        coverage = len(known) / len(assessed)
        small.condensed_ = Condensed(
            rows_before=n_rows,
            rows=n_kept,
            directions={name: each.codes.directions.shape[1] for name, each in indexes.items()},
            features={name: each.n_features for name, each in indexes.items()},
            bytes_before=count_bytes(self.indexes_),
            bytes=count_bytes(indexes),
            coverage_before=coverage,
            coverage=coverage - lost,
            n_samples=len(assessed),
        )
        small._forget_promises()
        return small

    def _check_condensable(self) -> None:
        if hasattr(self, "condensed_"):
            raise InputError("this classifier is condensed already: condense the full one")
        if not hasattr(self, "neighborhoods_"):
            raise InputError("condensing is measured by assertions: call tune first")
        others = [layer for layer, index in self.indexes_.items() if index.metric.p != 2]
        if others:
            raise InputError(
                f"condensing takes Euclidean metrics, p=2; the layers {names(others)} have others: "
                "choose other layers or metrics"
            )
        for rule in self.neighborhoods_.values():
            check_decides_by_bounds(rule)

    def _forget_promises(self) -> None:
        """Drop what was promised of the full classifier: fewer samples are IK by now."""
        if hasattr(self, "selection_"):
            self.selection_ = replace(
                self.selection_,
                coverage=self.condensed_.coverage,
                accuracy=float("nan"),
                accuracy_outside=float("nan"),
                optimal=False,
                best_possible=1.0,
                n_samples=self.condensed_.n_samples,
                certificate=None,
                false_alarm=None,
                watch=None,
                curves={},
                note="the classifier was condensed after it was tuned: tune it again",
            )

    def _select(self, *arguments: Any, **named: Any) -> Self:
        if hasattr(self, "condensed_") and has_k(self.rule):
            raise InputError(
                f"a condensed classifier knows its neighbors up to bounds, which cannot choose a "
                f"{self.rule.__name__}: tune the full one, and condense it again"
            )
        return super()._select(*arguments, **named)


class _Trial:
    """Condensed layers, tried on the queries that the full ones know.

    indexes: all layers. rules: by layer, of those in use. queries: their activations, each of shape
    (n, n_features). belief: of shape (n,). n_samples: of all, known or not.
    """

    def __init__(
        self,
        indexes: Mapping[str, LayerIndex],
        rules: Mapping[str, Neighborhood],
        queries: Mapping[str, Floats32],
        belief: Ints,
        n_samples: int,
    ) -> None:
        self.indexes, self.rules, self.queries, self.belief = indexes, rules, queries, belief
        self.n_samples = n_samples
        self.axes: dict[str, Axes] = {layer: find_axes(each) for layer, each in indexes.items()}
        self.some = np.arange(0, len(belief), -(-len(belief) // TRIED))
        self.scales = {layer: self._scale(layer) for layer in indexes}

    def shortest(self, n_kept: int, allowed: float) -> tuple[dict[str, CondensedLayer], float]:
        """The layers with the shortest codes that lose at most so much coverage, and the loss."""
        low, high = 0, HALVINGS
        while low < high:  # the coarsest tolerance that is fine enough for some of the samples
            middle = (low + high) // 2
            layers = self._condense(middle, n_kept)
            lost = ~self._known(layers, self.some)
            fine = lost.mean() * len(self.belief) / self.n_samples <= allowed
            low, high = (low, middle) if fine else (middle + 1, high)
        for halvings in range(low, HALVINGS + 1):  # and for all of them
            layers = self._condense(halvings, n_kept)
            lost = ~self._known(layers, np.arange(len(self.belief)))
            loss = float(lost.sum()) / self.n_samples
            if loss <= allowed:
                return layers, loss
        raise SelectionError(
            f"even the longest codes lose {percent(loss)} of coverage, more than {percent(allowed)}"
            ": allow more, or keep more rows in full with a smaller factor"
        )

    def _condense(self, halvings: int, n_kept: int) -> dict[str, CondensedLayer]:
        finest = halvings == HALVINGS
        counts = {
            layer: each.count(-1.0 if finest else 0.5**halvings * self.scales[layer])
            for layer, each in self.axes.items()
        }
        return condense_layers(self.indexes, self.axes, counts, n_kept)

    def _known(self, layers: Mapping[str, CondensedLayer], places: Ints) -> Bools:
        """Which of some queries remain IK."""
        belief = self.belief[places]
        supports = [
            layers[layer].find_support(self.queries[layer][places], rule, belief)
            for layer, rule in self.rules.items()
        ]
        return np.asarray(make_assertions(belief, justify(supports)) == Assertion.IK)

    def _scale(self, layer: str) -> float:
        """The squared distance at which queries find their support in a layer."""
        if layer not in self.rules:  # left out: as much as there is
            return float(self.axes[layer].left[0])
        queries, belief = self.queries[layer][self.some], self.belief[self.some]
        own = self.indexes[layer].decide(queries, self.rules[layer], belief).contrast.own
        return float(np.square(own).mean())
