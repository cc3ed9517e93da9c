"""Fitting: from training samples to one index per layer, the evidence that assessments rest on.

A trained model is taken as it is. An unfitted scikit-learn classifier is trained first, and tuned
on the part that was held out.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils.metaestimators import available_if

from iknow.classifier import gathering, parameters
from iknow.classifier.default_metrics import usual_metric
from iknow.classifier.progress import track
from iknow.classifier.routing import refuse_params, take_params
from iknow.classifier.training import seeded_clone, split_rows, train
from iknow.core.arrays import Ints, Labels
from iknow.core.neighborhood import Neighborhood
from iknow.core.quorum import Quorum
from iknow.core.scalars import as_flag
from iknow.errors import InputError, SelectionError
from iknow.geometry import Euclidean, Metric
from iknow.models.adapt import OPTIONS, as_model, is_estimator, is_to_be_trained
from iknow.models.inputs import as_dense, count_samples, take_rows
from iknow.models.labels import (
    as_labels,
    as_row_numbers,
    as_vector,
    check_several_classes,
    encode,
    find_classes,
    name_positions,
)
from iknow.models.loaders import is_loader, warn_of_shuffling
from iknow.models.model import Model, Observation, observe_all
from iknow.models.precomputed import PrecomputedModel
from iknow.models.probe import Probe, make_probe
from iknow.models.samples import Samples, as_samples
from iknow.models.scales import warn_of_layers
from iknow.rules import Ball
from iknow.search.choose import find_index_type
from iknow.search.layer import LayerIndex
from iknow.selection import Goal, tunes_for_coverage
from iknow.storage.saving import SavingMixin


def _is_trained(classifier: Any) -> bool:
    """Whether a classifier's model is used as it is: parts of the data cannot train one."""
    model = classifier.model
    fitted = isinstance(model, FrozenEstimator) or hasattr(model, "classes_")
    return fitted or not is_estimator(model)


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

    def fit(self, X: Any, y: Any = None, *, rows: Any = None, **params: Any) -> Self:
        """Collect the evidence: the activations of the training samples, with their labels.

        Args:
            X: n samples, in any form the model takes. Or a loader that yields them in batches, with
                their labels: a torch DataLoader or Dataset, a Hugging Face dataset, or an iterator.
                It is read once, one batch at a time (`iknow.models.loaders`).
            y: Labels of shape (n,), unless the loader yields them.
            rows: Numbers of shape (n,) that identify the samples. Default: their positions in X.
            **params: Passed on to the training of a scikit-learn classifier, such as
                `sample_weight` of shape (n,); with metadata routing, if the classifier requests it.
                They train the model and nothing else: as evidence all samples count alike.
        """
        with self._unchanged_by_failure():
            self.__dict__ = {name: old for name, old in vars(self).items() if name[-1] != "_"}
            at_hand = not is_loader(X)
            if at_hand and is_estimator(self.model):
                parameters.check_features(self, X, reset=True)
            # Both are as deep, so that warnings point at the line that called fit.
            trains = at_hand and is_to_be_trained(self.model, X)
            begin = self._train if trains else self._wrap
            return begin(X, y, rows, params)

    @available_if(_is_trained)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, *, rows: Any = None) -> Self:
        """Add evidence that arrives in parts, for a trained model.

        The first part decides the layers and, as they are fitted to it, the metrics: let it be
        typical of all. What `tune` chose no longer holds, and neither does what it promised: tune
        again after the last part.

        Args:
            X: n further samples, or a loader, as for `fit`.
            y: Their labels, of shape (n,), unless the loader yields them.
            rows: Numbers of shape (n,) that identify the samples, other than those before. Default:
                they count on from the highest before.

        Examples:
            >>> ec = EpistemicClassifier(FrozenEstimator(trained))
            >>> for part in (slice(0, 30), slice(30, None)):
            ...     ec = ec.partial_fit(X_train[part], y_train[part])
            >>> ec.indexes_["input"].n_rows == len(X_train)
            True
        """
        with self._unchanged_by_failure():
            if not hasattr(self, "indexes_"):
                return self._wrap(X, y, rows, {}, parts=True)
            return self._add(self._samples(X, y), rows)

    @contextmanager
    def _unchanged_by_failure(self) -> Iterator[None]:
        before = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    @abstractmethod
    def _select(
        self,
        goal: Goal,
        samples: Samples,
        what: str,
        positions: Ints | None = None,
        reference: Any = None,
    ) -> Self:
        """Choose neighborhoods for a goal on some samples; positions: see `check_valid`."""

    def _adapt(self, model: Any) -> Model:
        options = {name: getattr(self, name) for name in OPTIONS}
        return as_model(model, device=self.device, **options)

    def _samples(self, X: Any, y: Any = None) -> Samples:
        """The samples of what the user passed, as batches for the model."""

        def prepare(inputs: Any) -> Any:
            prepared = self.model_.prepare(inputs)
            table = prepared if isinstance(inputs, Mapping) else inputs
            # Other models take numbers by their places: a table's names must not change either.
            if is_estimator(self.model) or hasattr(table, "columns"):
                known = hasattr(self, "n_features_in_")
                if known or not hasattr(self, "indexes_"):
                    parameters.check_features(self, table, reset=not known)
            return prepared

        takes_pairs = isinstance(self.model_, PrecomputedModel)
        return as_samples(X, y, prepare, self.batch_size, takes_pairs=takes_pairs)

    def _labels(self, samples: Samples) -> Labels | None:
        """The labels of samples, as far as they are known; positions as the classes the user gave.

        A loader's labels are known after it was read.
        """
        labels = samples.labels
        if labels is None or self.classes is None:
            return labels
        return name_positions(labels, as_vector(self.classes, "classes"))

    def _wrap(
        self, X: Any, y: Any, rows: Any, params: Mapping[str, Any], *, parts: bool = False
    ) -> Self:
        """Take the model as it is; parts: more will come."""
        refuse_params(params)
        self.model_ = self._adapt(self.model)
        if rows is None:
            warn_of_shuffling(X)
        samples = self._samples(X, y)
        if y is None and samples.inputs is not None:  # in scikit-learn's words
            as_labels(None, 0, "y")
        return self._collect(samples, rows, parts=parts)

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
        self._collect(self._samples(seen, labels[training]), numbers[training], training)
        if not tunes:
            return self
        try:
            part = take_rows(inputs, validation)
            goal = Goal(k=self.k, model_confidence=self.confidence)
            held_out = self._samples(part, labels[validation])
            return self._select(goal, held_out, "training", validation)
        except SelectionError as error:
            warnings.warn(
                f"{error}. Until it is tuned again this classifier answers IDK for all but exact "
                "copies of training samples",
                stacklevel=3,
            )
            self.neighborhoods_ = dict.fromkeys(self.layers_, Ball(0.0))
            return self

    def _collect(
        self, samples: Samples, rows: Any, positions: Ints | None = None, *, parts: bool = False
    ) -> Self:
        """Build one index per layer; rows: as in `fit`, positions: see `check_valid`."""
        first = samples.first()
        named = parameters.as_layer_names(self.layers)
        rule = parameters.check_rule(self.rule)
        levels = rule.by_level and parameters.has_levels(self.neighborhoods)
        if samples.labels is not None and not parts:
            check_several_classes(samples.labels)
        find_layers = self.model_.level_layers if levels else self.model_.default_layers
        layers = named or find_layers(first)
        quorum = parameters.as_quorum(self.quorum, rule)
        fixed = parameters.fixed_neighborhoods(self.neighborhoods, rule, self.k, layers, quorum)
        given = parameters.as_metrics(self.metric, layers)
        for metric in given.values():  # refuse before the model does its work
            find_index_type(metric or Euclidean, self.device, self.index)

        def check_numbers(n_rows: int) -> None:
            parameters.check_neighbors(fixed, self.rule, self.k, n_rows)
            parameters.check_quorum_size(fixed, quorum, n_rows)

        if samples.n_samples is not None and not parts:
            check_numbers(samples.n_samples)
        observation, n_columns = self._run(samples, layers)
        labels, n_rows = samples.all_labels(), len(observation)
        if not parts:
            check_several_classes(labels)
            check_numbers(n_rows)
        gathering.check_valid(observation.invalid, "training", positions, layers)
        warn_of_layers(
            observation.activations, raw=not levels and named is None and self.metric is None
        )
        if self.classes is not None:
            labels = name_positions(labels, as_vector(self.classes, "classes"))
        self.classes_ = find_classes(labels, n_columns, self.model_.classes, self.classes)
        codes = encode(labels, self.classes_, "y")
        self.layers_ = layers
        shape = np.shape(first)[1:] if hasattr(first, "shape") else None
        usual = partial(usual_metric, self.model_, shape, levels)
        numbers = as_row_numbers(rows, n_rows)
        self.indexes_ = {
            layer: LayerIndex.build(
                values,
                codes,
                len(self.classes_),
                numbers,
                (given[layer] or usual(layer, values)).fit(values, codes),
                self.device,
                self.index,
            )
            for layer, values in observation.activations.items()
        }
        self.probe_ = self._probe(samples, codes)
        if fixed is not None:
            self.neighborhoods_ = fixed
        return self

    def _probe(self, samples: Samples, codes: Ints) -> Probe | str:
        """What the model can be recognized by, or why it cannot."""
        inputs = samples.inputs
        if inputs is None:
            if samples.richest is None:
                return "its loader yields inputs that cannot be kept in a bundle"
            inputs, labels = samples.richest
            codes = np.unique(labels.astype(str), return_inverse=True)[1]
        return make_probe(self.model_, inputs, codes, self.layers_, self.batch_size)

    def _run(self, samples: Samples, layers: Sequence[str]) -> tuple[Observation, int]:
        """What the model says about all samples, and the number of score columns."""
        enabled = as_flag(self.progress, "progress")
        batches = samples.read()
        shown = track(batches, samples.n_batches, "Collecting evidence", enabled=enabled)
        return observe_all(self.model_, shown, samples.n_samples, layers)

    def _add(self, samples: Samples, rows: Any) -> Self:
        """Add further samples to the index of each layer."""
        observation, n_columns = self._run(samples, self.layers_)
        gathering.check_columns(n_columns, len(self.classes_))
        gathering.check_valid(observation.invalid, "training", None, self.layers_)
        labels = samples.all_labels()
        if self.classes is not None:
            labels = name_positions(labels, as_vector(self.classes, "classes"))
        codes = encode(labels, self.classes_, "y")
        before = self.indexes_[self.layers_[0]].rows
        numbers = as_row_numbers(rows, len(codes))
        if rows is None:
            numbers = numbers + int(before.max()) + 1
        elif np.isin(numbers, before).any():
            raise InputError("rows must differ from those of the samples added before")
        self.indexes_ = {
            layer: self.indexes_[layer].extended(values, codes, numbers)
            for layer, values in observation.activations.items()
        }
        if self.neighborhoods is None:  # chosen on evidence that has changed
            for name in ("selection_", "neighborhoods_"):
                vars(self).pop(name, None)
        return self
