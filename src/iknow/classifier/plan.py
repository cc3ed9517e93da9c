"""The plan of a fit: layers, metrics and neighborhoods, checked before the model does its work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iknow.classifier import parameters
from iknow.core.quorum import Quorum
from iknow.core.rule import Rule
from iknow.geometry import Euclidean, Metric
from iknow.search.layer import index_type


@dataclass(frozen=True, eq=False)
class Plan:
    """What a classifier is going to collect.

    layers: their names; chosen: whether the user named them, or a metric for them. levels: whether
    levels choose the neighborhoods. metrics: by layer, those that the user gave, None for the
    others. fixed: the neighborhoods that need no tuning, None if there is something to tune.
    """

    layers: tuple[str, ...]
    chosen: bool
    levels: bool
    metrics: Mapping[str, Metric | None]
    fixed: dict[str, Rule] | None
    rule: type[Rule]
    k: int
    quorum: Quorum

    def check_size(self, n_rows: int) -> None:
        """Refuse a k, or a quorum, larger than the training set."""
        parameters.check_neighbors(self.fixed, self.rule, self.k, n_rows)
        parameters.check_quorum_size(self.fixed, self.quorum, n_rows)


def make_plan(classifier: Any, first: Any) -> Plan:
    """The plan of a classifier with its parameters and a model, by its first batch."""
    named = parameters.as_layer_names(classifier.layers)
    rule = parameters.check_rule(classifier.rule)
    levels = rule.by_level and parameters.has_levels(classifier.neighborhoods)
    model, k = classifier.model_, classifier.k
    layers = named or (model.level_layers if levels else model.default_layers)(first)
    quorum = parameters.as_quorum(classifier.quorum, rule)
    given = classifier.neighborhoods
    fixed = parameters.fixed_neighborhoods(given, rule, k, layers, quorum)
    metrics = parameters.as_metrics(classifier.metric, layers)
    for metric in metrics.values():
        index_type(metric or Euclidean, classifier.device, classifier.index)
    chosen = named is not None or classifier.metric is not None
    return Plan(layers, chosen, levels, metrics, fixed, rule, k, quorum)
