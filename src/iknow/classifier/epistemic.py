"""EpistemicClassifier: a model that says how well each of its answers is justified.

A thin shell: it cuts batches, asks the model, searches the layers, and hands the rest to `core` and
`selection`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from iknow.classifier import gathering, parameters
from iknow.classifier.copying import count_copies
from iknow.classifier.fitting import FittingMixin
from iknow.classifier.moving import movements_on_request
from iknow.classifier.progress import track
from iknow.classifier.training import as_random_state
from iknow.core.arrays import Ints, Labels
from iknow.core.neighborhood import Neighborhood
from iknow.core.scalars import as_flag, as_whole
from iknow.errors import InputError
from iknow.explain.assessment import Assessment
from iknow.geometry import Metric
from iknow.models.adapt import is_estimator
from iknow.models.inputs import count_samples, cut_batches
from iknow.models.labels import (
    as_labels,
    check_trained,
    encode,
)
from iknow.models.lengths import measure
from iknow.models.model import Observation, observe_all
from iknow.models.probe import Probe
from iknow.rules import Ball
from iknow.search.index import IndexFactory
from iknow.selection import Goal, Selection, check_unseen, choose


class EpistemicClassifier(FittingMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Wraps a classifier and asserts IK, IMK or IDK for each of its predictions.

    Args:
        model: A trained torch module, a scikit-learn classifier, or any `iknow.models.Model`. A
            trained model is used as it is: `fit` collects the evidence, then call `tune`. `fit`
            clones an unfitted scikit-learn classifier, trains it on all but `validation_fraction`
            of the data, and tunes the radii on the rest. `clone`, and so `cross_val_score` and
            `GridSearchCV`, makes a fitted classifier unfitted; a `FrozenEstimator` stays fitted.
        layers: Names of the layers to find support in. Default: the last hidden layer and the
            output of a network; otherwise "output" and "input" or a pipeline's last transformer.
        rule: The kind of neighborhood whose radii `tune` chooses.
        neighborhoods: Fixed neighborhoods, one for all layers or a mapping by layer, instead of
            tuning. A `Selection`, such as another classifier's `selection_`, also says which
            classes may be known.
        k: Number of neighbors, for rules that use it.
        metric: "cosine", "euclidean", "scaled", "whitened" or an `iknow.geometry` metric, for all
            layers or in a mapping. Default: Euclidean.
        classes: Labels of the model's score columns in order, if y does not determine them.
        validation_fraction: Share of the data that `fit` keeps for tuning when it trains the model.
        batch_size: Number of samples to ask the model about at a time. Default: as memory permits.
        random_state: Seed for all random choices.
        progress: Show a progress bar in a terminal.
        device: "cuda", "cuda:1", "mps" or "cpu" to search with torch; None searches on the CPU
            without it. The answers are the same.
        index: A Euclidean index to use instead of iknow's own: a type or function that takes
            (activations, labels, n_classes, rows=...) and passes `iknow.testing.IndexContract`.
            It excludes `device`. Both belong to the machine: `save` does not keep them.

    Examples:
        >>> ec = EpistemicClassifier(trained).fit(X_train, y_train)
        >>> ec.tune(X_val, y_val).assess(X_test)
        Assessment of 50 predictions: IK 39, IMK 6, IDK 5
    """

    def __init__(
        self,
        model: Any,
        layers: Sequence[str] | None = None,
        rule: type[Neighborhood] = Ball,
        neighborhoods: Neighborhood | Mapping[str, Neighborhood] | Selection | None = None,
        *,
        k: int = 5,
        metric: str | Metric | Mapping[str, str | Metric] | None = None,
        classes: Any = None,
        validation_fraction: float = 0.25,
        batch_size: int | None = None,
        random_state: Any = 0,
        progress: bool = True,
        device: str | None = None,
        index: IndexFactory | None = None,
    ) -> None:
        self.model = model
        self.layers = layers
        self.rule = rule
        self.neighborhoods = neighborhoods
        self.k = k
        self.metric = metric
        self.classes = classes
        self.validation_fraction = validation_fraction
        self.batch_size = batch_size
        self.random_state = random_state
        self.progress = progress
        self.device = device
        self.index = index

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # If the raw input is a layer it must be finite, whatever the model accepts.
        raw = not hasattr(self.model, "steps")
        if isinstance(self.layers, (str, list, tuple)):
            raw = "input" in self.layers
        if is_estimator(self.model) and not raw:
            tags.input_tags.allow_nan = get_tags(self.model).input_tags.allow_nan
        return tags

    def tune(
        self,
        X: Any,
        y: Any,
        *,
        accuracy: float | None = None,
        confidence: float = 0.95,
        each_class: bool = False,
        coverage: float | None = None,
        method: Literal["exact", "grid", "bayes", "per-class"] = "exact",
        k: int | Sequence[int] | None = None,
        time_limit: float = 60.0,
    ) -> Self:
        """Choose the neighborhoods on validation data; by default the exact maximum of coverage.

        Args:
            X: n samples that are not in the training data.
            y: Their labels, of shape (n,).
            accuracy: Choose the largest coverage whose accuracy on IK is certified to be at least
                this; raises a `SelectionError` if no coverage qualifies.
            confidence: Probability, over the draw of the data, with which that guarantee holds.
            each_class: Certify the accuracy of each class by itself.
            coverage: Match this coverage instead (for `Nearest` and `RelativeBall`).
            method: "per-class" chooses a radius per class; "grid" and "bayes" are for comparison.
            k: Number of neighbors, or several to try, for rules that use it.
            time_limit: Seconds that the search may take.

        Examples:
            >>> ec = EpistemicClassifier(FrozenEstimator(trained)).fit(X_train, y_train)
            >>> ec.tune(X_val, y_val).selection_.optimal
            True
        """
        check_is_fitted(self, "indexes_")
        if self.neighborhoods is not None:
            raise InputError("nothing to tune: neighborhoods=... fixes them")
        goal = Goal(
            method=method,
            accuracy=accuracy,
            confidence=confidence,
            each_class=each_class,
            coverage=coverage,
            k=self.k if k is None else k,
            time_limit=time_limit,
            random_state=int(as_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
        )
        inputs = self._prepare(X)
        return self._select(goal, inputs, as_labels(y, count_samples(inputs), "y"), "validation")

    def assess(self, X: Any, k: int = 0, *, evidence: bool = False) -> Assessment:
        """Assert IK, IMK or IDK about each prediction.

        The assessment gathers evidence and robust radii when you first ask for them, from the
        activations, which it keeps if they take less than a gigabyte. A sample with a non-finite
        activation, or without an answer, is INVALID and IDK; it does not affect the others.

        Args:
            X: n samples, in any form the model takes.
            k: Gather evidence now, with at least k neighbor distances, to try rules with another k.
            evidence: Gather the evidence now, which is faster overall if you need all of it.
        """
        check_is_fitted(self, "indexes_")
        if not hasattr(self, "neighborhoods_"):
            raise NotFittedError(
                "no neighborhoods yet: call tune(X_val, y_val), or give neighborhoods=... (fit "
                "tunes only a scikit-learn classifier that it trains itself, not a fitted one)"
            )
        gathers, least = as_flag(evidence, "evidence"), as_whole(k, "k", "be a whole number >= 0")
        inputs, rules = self._prepare(X), self.neighborhoods_
        n_samples, sizes = count_samples(inputs), measure(inputs)
        observed = self._observe(inputs)
        if gathers or least > 0:
            wanted = max(least, *(rule.n_neighbors for rule in rules.values()))
            found = gathering.gather_evidence(observed, self.indexes_, wanted, keep_of=n_samples)
        else:
            found = gathering.find_supports(observed, self.indexes_, rules, n_samples)
        return Assessment(
            classes=self.classes_,
            belief_codes=found.observation.belief,
            scores=found.observation.scores,
            evidence=found.evidence,
            neighborhoods=rules,
            invalid=found.observation.invalid,
            knowable=getattr(getattr(self, "selection_", self.neighborhoods), "knowable", None),
            found=found.supports,
            movements=movements_on_request(self.model_, self.indexes_, sizes, found),
        )

    def predict(self, X: Any) -> Labels:
        """Return the model's own answers for the samples `X`, as labels of shape (n,).

        Raises an `InputError` that names the rows without an answer, where `assess` says IDK.
        """
        check_is_fitted(self, "indexes_")
        inputs = self._prepare(X)
        batches = cut_batches(inputs, self.batch_size)
        observation, n_columns = observe_all(self.model_, batches, count_samples(inputs), ())
        gathering.check_columns(n_columns, len(self.classes_))
        gathering.check_answered(observation.belief)
        labels: Labels = self.classes_[observation.belief]
        return labels

    def warm_up(self) -> Self:
        """Check, prepare and compile the search now, and ask the model once, on its probe.

        Otherwise the first request waits for this: seconds, if no process has compiled it before.
        """
        check_is_fitted(self, "indexes_")
        for index in self.indexes_.values():
            index.warm_up()
        if isinstance(self.probe_, Probe):
            self.predict(self.probe_.inputs)
        return self

    def _select(
        self, goal: Goal, inputs: Any, labels: Labels, what: str, positions: Ints | None = None
    ) -> Self:
        """Choose neighborhoods for a goal on prepared samples; positions: see `check_valid`."""
        y_true = encode(labels, self.classes_, "y")
        index = self.indexes_[self.layers_[0]]
        check_trained(y_true, index.labels, self.classes_)
        k, whole = goal.neighbors_needed(self.rule, index.n_rows), goal.needs_every_class
        belief, invalid, evidence = gathering.gather_validation(
            self._observe(inputs), self.indexes_, k, whole=whole
        )
        gathering.check_valid(invalid, what, positions, self.layers_)
        if positions is None:  # otherwise fit held them out itself
            check_unseen(*count_copies(evidence, self.indexes_))
        self.selection_ = choose(goal, evidence, belief, y_true, self.rule, self.classes_)
        self.neighborhoods_ = dict(self.selection_.neighborhoods)
        return self

    def _prepare(self, X: Any) -> Any:
        inputs = self.model_.prepare(X)
        if hasattr(self, "n_features_in_"):
            parameters.check_features(self, X, reset=False)
        return inputs

    def _observe(self, inputs: Any) -> Iterator[Observation]:
        batches = cut_batches(inputs, self.batch_size)
        shown = track(batches, "Gathering evidence", enabled=self.progress)
        return gathering.observe_batches(self.model_, self.indexes_, shown)
