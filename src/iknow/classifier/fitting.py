"""Fitting: from training samples to one index per layer, the evidence that assessments rest on.

A trained model is taken as it is. An unfitted scikit-learn classifier is trained first, and tuned
on the part that was held out.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np

from iknow.classifier import gathering, parameters
from iknow.classifier.default_metrics import usual_metric
from iknow.classifier.progress import track
from iknow.classifier.routing import refuse_params, take_params
from iknow.classifier.training import seeded_clone, split_rows, train
from iknow.core.arrays import Ints, Labels
from iknow.core.neighborhood import Neighborhood
from iknow.core.quorum import Quorum
from iknow.core.scalars import as_flag
from iknow.errors import SelectionError
from iknow.geometry import Euclidean, Metric
from iknow.models.adapt import OPTIONS, as_model, is_estimator, is_to_be_trained
from iknow.models.inputs import as_dense, count_samples, cut_batches, take_rows
from iknow.models.labels import (
    as_labels,
    as_row_numbers,
    check_several_classes,
    encode,
    find_classes,
)
from iknow.models.model import Model, observe_all
from iknow.models.probe import make_probe
from iknow.models.scales import warn_of_layers
from iknow.rules import Ball
from iknow.search.choose import find_index_type
from iknow.search.layer import LayerIndex
from iknow.selection import Goal, tunes_for_coverage
from iknow.storage.saving import SavingMixin


class FittingMixin(SavingMixin):
    """`fit`, for a classifier with these parameters."""

    model: Any
    layers: Sequence[str] | None
    rule: type[Neighborhood]
    quorum: int | Quorum | None
    confidence: bool | None
    k: int
    metric: str | Metric | Mapping[str, str | Metric] | None
    classes: Any
    pool: Any
    scores: Any
    embed: Any
    validation_fraction: float
    batch_size: int | None
    random_state: Any
    progress: bool

    def fit(self, X: Any, y: Any, *, rows: Any = None, **params: Any) -> Self:
        """Collect the evidence: the activations of the training samples, with their labels.

        Args:
            X: n samples, in any form the model takes.
            y: Labels of shape (n,).
            rows: Numbers of shape (n,) that identify the samples. Default: their positions in X.
            **params: Passed on to the training of a scikit-learn classifier, such as
                `sample_weight` of shape (n,); with metadata routing, if the classifier requests it.
                They train the model and nothing else: as evidence all samples count alike.
        """
        before = self.__dict__.copy()
        try:
            self.__dict__ = {name: old for name, old in before.items() if not name.endswith("_")}
            if is_estimator(self.model):
                parameters.check_features(self, X, reset=True)
            # Both are as deep, so that warnings point at the line that called fit.
            begin = self._train if is_to_be_trained(self.model, X) else self._wrap
            return begin(X, y, rows, params)
        except BaseException:
            self.__dict__ = before  # a failed fit changes nothing
            raise

    @abstractmethod
    def _select(
        self,
        goal: Goal,
        inputs: Any,
        labels: Labels | None,
        what: str,
        positions: Ints | None = None,
        reference: Any = None,
    ) -> Self:
        """Choose neighborhoods for a goal on prepared samples; positions: see `check_valid`."""

    def _adapt(self, model: Any) -> Model:
        options = {name: getattr(self, name) for name in OPTIONS}
        return as_model(model, device=self.device, **options)

    def _wrap(self, X: Any, y: Any, rows: Any, params: Mapping[str, Any]) -> Self:
        """Take the model as it is."""
        refuse_params(params)
        self.model_ = self._adapt(self.model)
        inputs = self.model_.prepare(X)
        labels = as_labels(y, count_samples(inputs), "y")
        return self._collect(inputs, labels, as_row_numbers(rows, len(labels)))

    def _train(self, X: Any, y: Any, rows: Any, params: Mapping[str, Any]) -> Self:
        """Train a clone of the estimator; if there is a radius, tune on a held-out part."""
        inputs = as_dense(X)
        labels = as_labels(y, count_samples(inputs), "y")
        check_several_classes(labels)
        numbers = as_row_numbers(rows, len(labels))
        rule = parameters.check_rule(self.rule)
        tunes = self.neighborhoods is None and (rule.by_level or tunes_for_coverage(rule))
        training = np.arange(len(labels))
        if tunes:
            training, validation = split_rows(labels, self.validation_fraction, self.random_state)
        seen = take_rows(inputs, training)
        estimator = seeded_clone(self.model, self.random_state)
        routed = take_params(self, params, training, len(labels))
        self.model_ = self._adapt(train(estimator, seen, labels[training], training, routed))
        self._collect(seen, labels[training], numbers[training], training)
        if not tunes:
            return self
        try:
            part = take_rows(inputs, validation)
            return self._select(
                Goal(k=self.k, model_confidence=self.confidence),
                part,
                labels[validation],
                "training",
                validation,
            )
        except SelectionError as error:
            warnings.warn(
                f"{error}. Until it is tuned again this classifier answers IDK for all but exact "
                "copies of training samples",
                stacklevel=3,
            )
            self.neighborhoods_ = dict.fromkeys(self.layers_, Ball(0.0))
            return self

    def _collect(
        self, inputs: Any, labels: Labels, rows: Ints, positions: Ints | None = None
    ) -> Self:
        """Build one index per layer; rows: as in `fit`, positions: see `check_valid`."""
        batches = cut_batches(inputs, self.batch_size)
        check_several_classes(labels)
        named = parameters.as_layer_names(self.layers)
        rule = parameters.check_rule(self.rule)
        levels = rule.by_level and parameters.has_levels(self.neighborhoods)
        find_layers = self.model_.level_layers if levels else self.model_.default_layers
        layers = named or find_layers(batches[0])
        quorum = parameters.as_quorum(self.quorum, rule)
        fixed = parameters.fixed_neighborhoods(self.neighborhoods, rule, self.k, layers, quorum)
        parameters.check_neighbors(fixed, self.rule, self.k, len(labels))
        parameters.check_quorum_size(fixed, quorum, len(labels))
        given = parameters.as_metrics(self.metric, layers)
        for metric in given.values():  # refuse before the model does its work
            find_index_type(metric or Euclidean, self.device, self.index)
        shown = track(batches, "Collecting evidence", enabled=as_flag(self.progress, "progress"))
        observation, n_columns = observe_all(self.model_, shown, len(labels), layers)
        gathering.check_valid(observation.invalid, "training", positions, layers)
        warn_of_layers(
            observation.activations, raw=not levels and named is None and self.metric is None
        )
        self.classes_ = find_classes(labels, n_columns, self.model_.classes, self.classes)
        codes = encode(labels, self.classes_, "y")
        self.layers_ = layers
        shape = np.shape(batches[0])[1:] if hasattr(batches[0], "shape") else None
        usual = partial(usual_metric, self.model_, shape) if levels else (lambda *_: Euclidean)
        self.indexes_ = {
            layer: LayerIndex.build(
                values,
                codes,
                len(self.classes_),
                rows,
                (given[layer] or usual(layer, values)).fit(values, codes),
                self.device,
                self.index,
            )
            for layer, values in observation.activations.items()
        }
        self.probe_ = make_probe(self.model_, inputs, codes, layers, self.batch_size)
        if fixed is not None:
            self.neighborhoods_ = fixed
        return self
