"""EpistemicClassifier: a model that says how well each of its answers is justified.

A thin shell: it cuts batches, asks the model, searches the layers, and hands the rest to `core` and
`selection`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from iknow.classifier import gathering
from iknow.classifier.moving import movements_later
from iknow.classifier.watching import WatchingMixin
from iknow.core.arrays import Labels
from iknow.core.quorum import Quorum
from iknow.core.rule import Rule
from iknow.core.text import as_flag, as_whole
from iknow.explain.assessment import Assessment
from iknow.metrics import Metric
from iknow.models import PrecomputedModel
from iknow.models.adapt import is_estimator
from iknow.models.model import observe_all
from iknow.models.probe import Probe
from iknow.rules import Ball, RelativeBall
from iknow.search.layer import Search
from iknow.selection import Selection


class EpistemicClassifier(WatchingMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Wraps a classifier and asserts IK, IMK or IDK for each of its predictions.

    Args:
        model: A trained torch or Keras model, a scikit-learn, xgboost, lightgbm or catboost
            classifier, the path of an .onnx file, a function that returns scores, or any
            `iknow.models.Model`. `as_model` says how to read one: `as_model(network, pool="mean")`,
            `as_model(function, embed=...)`. A trained model is used as it is: `fit` collects the
            evidence, then call `tune`. `fit` clones an unfitted scikit-learn classifier, trains it
            on all but `validation_fraction` of the data, and tunes the radii on the rest. `clone`,
            and so `cross_val_score` and `GridSearchCV`, makes a fitted classifier unfitted; a
            `FrozenEstimator` stays fitted.
        layers: Names of the layers to find support in. Default: the input and the last hidden
            layer of a network, or what enters the classifier of a pipeline; for the paper's rules
            the last hidden layer and the output. `tune` leaves out those in which nearness means
            little, and `selection_.left_out` says why.
        rule: A class, such as `Ball`, whose parameters `tune` chooses; `RelativeBall` has levels.
            Or a fixed rule, such as `Ball(0.5)`, for all layers or in a mapping by layer. A
            `Selection`, such as another classifier's `selection_`, is fixed too, and also says
            which classes may be known.
        quorum: How many training samples a class needs within reach to count, or two numbers: how
            many the belief needs, and how many another class needs to contradict it. Default:
            (1, 3) for `RelativeBall`, so that two wrong labels nearby contradict nothing; else 1.
        k: Number of neighbors, for rules that use it.
        metric: "cosine", "euclidean", "hamming", "scaled", "whitened" or a metric, for all
            layers or in a mapping. Default: cosine in hidden layers, and features by their robust
            scales in tables (`iknow.metrics.defaults`); Euclidean for the paper's rules
            and for fixed neighborhoods.
        classes: Labels of the model's score columns in order, if y does not determine them.
        validation_fraction: Share of the data that `fit` keeps for tuning when it trains the model.
        batch_size: Number of samples to ask the model about at a time. Default: as memory permits.
        random_state: Seed for all random choices.
        progress: Show a progress bar in a terminal.
        search: "cuda", "cuda:1", "mps" or "cpu" to search with torch, on that device; an ONNX model
            runs there too. Or a Euclidean index in place of iknow's own: a type or function that
            takes (activations, labels, n_classes, rows=...) and passes
            `iknow.testing.IndexContract`. Default: on the CPU, without torch. The answers are the
            same. It belongs to the machine: `save` does not keep it.

    Examples:
        >>> ec = EpistemicClassifier(trained).fit(X_train, y_train)
        >>> ec.tune(X_val, y_val).assess(X_test)
        Assessment of 50 predictions: IK 37, IMK 6, IDK 7
    """

    def __init__(
        self,
        model: Any,
        layers: Sequence[str] | None = None,
        rule: type[Rule] | Rule | Mapping[str, Rule] | Selection = RelativeBall,
        *,
        quorum: int | Quorum | None = None,
        k: int = 5,
        metric: str | Metric | Mapping[str, str | Metric] | None = None,
        classes: Any = None,
        search: Search = None,
        validation_fraction: float = 0.25,
        batch_size: int | None = None,
        random_state: Any = 0,
        progress: bool = True,
    ) -> None:
        self.model = model
        self.layers = layers
        self.rule = rule
        self.quorum = quorum
        self.k = k
        self.metric = metric
        self.classes = classes
        self.search = search
        self.validation_fraction = validation_fraction
        self.batch_size = batch_size
        self.random_state = random_state
        self.progress = progress

    @classmethod
    def paper(cls, model: Any, **parameters: Any) -> Self:
        """The method as published: balls in the last hidden layer and the output, Euclidean.

        Args:
            model: As for a new classifier.
            **parameters: Any others, such as another of the paper's rules.

        Examples:
            >>> ec = EpistemicClassifier.paper(trained).fit(X_train, y_train)
            >>> ec.tune(X_val, y_val).selection_.optimal
            True
        """
        return cls(model, **{"rule": Ball, **parameters})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # If the raw input is a layer it must be finite, whatever the model accepts; levels choose
        # layers that take what the model takes.
        raw = not hasattr(self.model, "steps") and self.rule is not RelativeBall
        if isinstance(self.layers, (str, list, tuple)):
            raw = "input" in self.layers
        if is_estimator(self.model) and hasattr(self.model, "__sklearn_tags__"):
            takes = get_tags(self.model).input_tags
            tags.input_tags = replace(takes, allow_nan=takes.allow_nan and not raw)
        return tags

    def assess(self, X: Any, k: int = 0, *, evidence: bool = False) -> Assessment:
        """Assert IK, IMK or IDK about each prediction.

        The assessment gathers evidence and robust radii when you first ask for them, from the
        activations, which it keeps if they take less than a gigabyte. A sample with a non-finite
        activation, or without an answer, is INVALID and IDK; it does not affect the others.

        Args:
            X: n samples, in any form the model takes, or a loader that yields them in batches. Its
                labels, if it has any, go to `Assessment.y_true`.
            k: Gather evidence now, with at least k neighbor distances, to try rules with another k.
            evidence: Gather the evidence now, which is faster overall if you need all of it.
        """
        now = self._view()  # a change meanwhile must not mix old and new evidence
        if "indexes_" not in vars(now):  # asking scikit-learn every time takes longer
            check_is_fitted(now, "indexes_")
        if not hasattr(now, "neighborhoods_"):
            raise NotFittedError(
                "no neighborhoods yet: call tune(X_val, y_val), or give rule=Ball(0.5), say (fit "
                "tunes only a scikit-learn classifier that it trains itself, not a fitted one)"
            )
        gathers, least = as_flag(evidence, "evidence"), as_whole(k, "k", "be a whole number >= 0")
        samples, rules = now._samples(X), now.neighborhoods_
        indexes = {layer: now.indexes_[layer] for layer in rules}  # some may be left out
        observed = now._observe(samples, indexes, measuring=True)
        if gathers or least > 0 or now._keeps_evidence(samples.n_expected):
            wanted = max(least, *(rule.n_neighbors for rule in rules.values()))
            per_class = max(rule.per_class for rule in rules.values())
            found = gathering.gather_evidence(observed, indexes, wanted, samples, per_class)
        else:
            found = gathering.find_decisions(observed, indexes, rules, samples)
        selection = getattr(now, "selection_", now.rule)
        selection = selection if isinstance(selection, Selection) else None
        return Assessment(
            classes=now.classes_,
            belief_codes=found.observation.belief,
            scores=found.observation.scores,
            evidence=found.evidence,
            neighborhoods=rules,
            invalid=found.observation.invalid,
            knowable=None if selection is None else selection.knowable,
            found=found.supports,
            decisions=found.decisions,
            movements=movements_later(now.model_, indexes, samples.sizes, found),
            levels=None if selection is None else selection.levels,
            least_confidence=-np.inf if selection is None else selection.least_confidence,
            y_true=now._labels(samples),
            index=X.index if hasattr(X, "iloc") else None,
        )

    def _keeps_evidence(self, n_samples: int | None) -> bool:
        """Whether supports need the distances anyway, and these fit into memory."""
        if n_samples is None:  # then nothing is kept to gather them from later
            return True
        rules = self.neighborhoods_
        if all(self.indexes_[layer].decides(rule) for layer, rule in rules.items()):
            return False
        held = sum(rule.per_class for rule in rules.values()) * len(self.classes_)
        return 16 * held * n_samples <= gathering.BYTES_OF_ACTIVATIONS_KEPT

    def predict(self, X: Any) -> Labels:
        """Return the model's own answers for the samples `X`, as labels of shape (n,).

        Raises an `InputError` that names the rows without an answer, where `assess` says IDK.
        """
        check_is_fitted(self, "indexes_")
        samples = self._samples(X)
        observation, n_columns = observe_all(self.model_, samples.read(), samples.n_samples, ())
        gathering.check_columns(n_columns, self._n_columns)
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
        if isinstance(self.probe_, Probe) and not isinstance(self.model_, PrecomputedModel):
            self.predict(self.probe_.inputs)
        return self
