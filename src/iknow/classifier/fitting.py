"""Fitting: from training samples to one index per layer, the evidence that assessments rest on.

A trained model is taken as it is. An unfitted scikit-learn classifier is trained first, and tuned
on the part that was held out. A `Plan` checks layers, metrics and rules before the model works.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from iknow.classifier import gathering, parameters
from iknow.classifier.reading import ReadingMixin
from iknow.classifier.streaming import build_on_disk, check_folder, choose_rows
from iknow.classifier.training import refuse_params, seeded_clone, split_rows, take_params, train
from iknow.core.arrays import Ints
from iknow.core.quorum import Quorum
from iknow.core.rule import Rule
from iknow.errors import SelectionError
from iknow.metrics import Euclidean, Metric
from iknow.metrics.defaults import default_metric, warn_of_layers
from iknow.models.adapt import is_estimator, is_to_be_trained
from iknow.models.inputs import count_samples, take_rows
from iknow.models.labels import (
    as_labels,
    as_row_numbers,
    check_several_classes,
    encode,
    find_classes,
)
from iknow.models.model import Layer, Model, Role
from iknow.models.numbers import as_dense
from iknow.models.probe import Probe, make_probe
from iknow.models.samples import Samples, is_loader, warn_of_shuffling
from iknow.rules import Ball
from iknow.search.layer import LayerIndex, index_type
from iknow.search.scratch import Folder
from iknow.selection import Goal, tunes_for_coverage


@dataclass(frozen=True, eq=False)
class Plan:
    """What a classifier is going to collect.

    roles: by layer. chosen: whether the user named them, or a metric for them. levels: whether
    levels choose the neighborhoods. metrics: by layer, those that the user gave, None for the
    others. fixed: the neighborhoods that need no tuning, None if there is something to tune.
    """

    roles: Mapping[str, Role]
    chosen: bool
    levels: bool
    metrics: Mapping[str, Metric | None]
    fixed: dict[str, Rule] | None
    rule: type[Rule]
    k: int
    quorum: Quorum

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(self.roles)

    def check_size(self, n_rows: int) -> None:
        """Refuse a k, or a quorum, larger than the training set."""
        parameters.check_neighbors(self.fixed, self.rule, self.k, n_rows)
        parameters.check_quorum_size(self.fixed, self.quorum, n_rows)


def make_plan(classifier: Any, first: Any) -> Plan:
    """The plan of a classifier with its parameters and a model, by its first batch."""
    named = parameters.as_layer_names(classifier.layers)
    rule = parameters.kind_of(classifier.rule)
    levels = parameters.has_levels(classifier.rule)
    model, k = classifier.model_, classifier.k
    roles = find_roles(model, first, named, levels)
    quorum = parameters.as_quorum(classifier.quorum, rule)
    fixed = parameters.fixed_rules(classifier.rule, k, tuple(roles), quorum)
    metrics = parameters.as_metrics(classifier.metric, tuple(roles))
    for metric in metrics.values():
        index_type(metric or Euclidean, classifier.search)
    chosen = named is not None or classifier.metric is not None
    return Plan(roles, chosen, levels, metrics, fixed, rule, k, quorum)


def find_roles(
    model: Model, first: Any, named: tuple[str, ...] | None, levels: bool
) -> dict[str, Role]:
    """The roles of the layers that the user named, or of those chosen by a first batch.

    Layers that a user computed have the role "hidden" and may have a telling name.
    """
    if named is not None:
        return {name: model.role(name) for name in named}
    chosen = choose_layers(model.layers(first), levels=levels)
    return {
        each.name: model.role(each.name) if each.role == "hidden" else each.role for each in chosen
    }


def choose_layers(described: Iterable[Layer], *, levels: bool) -> tuple[Layer, ...]:
    """The layers to use, of those that a model describes, by their roles.

    The paper's rules take what enters the head, and the output. Levels take the input, the last
    hidden layer and the leaves; the output only if there is nothing else.
    """
    by_role: defaultdict[Role, list[Layer]] = defaultdict(list)
    for layer in described:
        by_role[layer.role].append(layer)
    hidden, output = by_role["hidden"], by_role["output"]
    if not levels:
        return (*(hidden or by_role["input"]), *output)
    first = by_role["table"] or by_role["input"]
    return (*first, *hidden, *by_role["leaves"]) or tuple(output)


class FittingMixin(ReadingMixin):
    """`fit`, for a classifier that reads samples."""

    def fit(
        self, X: Any, y: Any = None, *, rows: Any = None, folder: Any = None, **params: Any
    ) -> Self:
        """Collect the evidence: the activations of the training samples, with their labels.

        Args:
            X: n samples, in any form the model takes. Or a loader that yields them in batches, with
                their labels: a torch DataLoader or Dataset, a Hugging Face dataset, or an iterator.
                It is read once, one batch at a time (`iknow.models.samples`).
            y: Labels of shape (n,), unless the loader yields them.
            rows: Numbers of shape (n,) that identify the samples. Default: their positions in X.
            folder: Keep the activations on disk, in this folder, for a training set that does not
                fit into memory; see `iknow.classifier.streaming`. The files vanish with the
                classifier: `save` keeps the evidence. Metrics are fitted to 100,000 samples.
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
            stored = None if folder is None else check_folder(folder, self.search)
            return begin(X, y, rows, params, folder=stored)

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

    def _wrap(
        self,
        X: Any,
        y: Any,
        rows: Any,
        params: Mapping[str, Any],
        *,
        parts: bool = False,
        folder: Folder = None,
    ) -> Self:
        """Take the model as it is; parts: more will come."""
        refuse_params(params)
        self.model_ = self._adapt(self.model)
        if rows is None:
            warn_of_shuffling(X)
        samples = self._samples(X, y)
        if y is None and samples.inputs is not None:  # in scikit-learn's words
            as_labels(None, 0, "y")
        return self._collect(samples, rows, parts=parts, folder=folder)

    def _train(
        self, X: Any, y: Any, rows: Any, params: Mapping[str, Any], *, folder: Folder = None
    ) -> Self:
        """Train a clone of the estimator; if there is a radius, tune on a held-out part."""
        inputs = as_dense(X)
        labels = as_labels(y, count_samples(inputs), "y")
        check_several_classes(labels)
        numbers = as_row_numbers(rows, len(labels))
        rule = parameters.kind_of(self.rule)
        tunes = rule is self.rule and (rule.by_level or tunes_for_coverage(rule))
        training = np.arange(len(labels))
        if tunes:
            training, validation = split_rows(labels, self.validation_fraction, self.random_state)
        seen = take_rows(inputs, training)
        estimator = seeded_clone(self.model, self.random_state)
        routed = take_params(self, params, training, len(labels))
        self.model_ = self._adapt(train(estimator, seen, labels[training], training, routed))
        known = self._samples(seen, labels[training])
        self._collect(known, numbers[training], training, folder=folder)
        if not tunes:
            return self
        try:
            part = take_rows(inputs, validation)
            held_out = self._samples(part, labels[validation])
            return self._select(Goal(k=self.k), held_out, "training", validation)
        except SelectionError as error:
            warnings.warn(
                f"{error}. Until it is tuned again this classifier answers IDK for all but exact "
                "copies of training samples",
                stacklevel=3,
            )
            self.neighborhoods_ = dict.fromkeys(self.layers_, Ball(0.0))
            return self

    def _collect(
        self,
        samples: Samples,
        rows: Any,
        positions: Ints | None = None,
        *,
        parts: bool = False,
        folder: Folder = None,
    ) -> Self:
        """Build one index per layer; rows: as in `fit`, positions: see `check_valid`."""
        first = samples.first()
        if samples.labels is not None and not parts:
            check_several_classes(samples.labels)
        plan = make_plan(self, first)
        if samples.n_samples is not None and not parts:
            plan.check_size(samples.n_samples)
        observation, n_columns = self._run(samples, plan.layers, folder)
        labels = self._all_labels(samples)
        if not parts:  # of a loader they are known by now
            check_several_classes(labels)
            plan.check_size(len(labels))
        gathering.check_valid(observation.invalid, "training", positions, plan.layers)
        found = observation.activations
        some = choose_rows(found) if folder is not None else slice(None)
        typical = {layer: values[some] for layer, values in found.items()}
        warn_of_layers(typical, raw=not plan.levels and not plan.chosen)
        self.classes_ = find_classes(labels, n_columns, self.model_.classes, self.classes)
        self.layers_ = plan.layers
        codes = encode(labels, self.classes_, "y")
        shape = np.shape(first)[1:] if hasattr(first, "shape") else None
        numbers = as_row_numbers(rows, len(codes))
        self.indexes_ = {}
        for layer, values in found.items():
            metric = plan.metrics[layer] or default_metric(
                plan.roles[layer], typical[layer], shape, plan.levels
            )
            metric = metric.fit(typical[layer], codes[some])
            arrays = values, codes, len(self.classes_), numbers, metric
            self.indexes_[layer] = (
                LayerIndex.build(*arrays, search=self.search)
                if folder is None
                else build_on_disk(*arrays, folder, self.search)
            )
        self.probe_ = self._probe(samples, codes, numbers)
        if plan.fixed is not None:
            self.neighborhoods_ = plan.fixed
        return self

    def _probe(self, samples: Samples, codes: Ints, rows: Ints) -> Probe | str:
        """What the model can be recognized by, or why it cannot. rows: numbers of the samples."""
        inputs = samples.inputs
        if inputs is None:
            if samples.richest is None:
                return "its loader yields inputs that cannot be kept in a bundle"
            inputs, labels, places = samples.richest
            rows = rows[places]
            codes = np.unique(labels.astype(str), return_inverse=True)[1]
        return make_probe(self.model_, inputs, codes, self.layers_, rows, self.batch_size)
