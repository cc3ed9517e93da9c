"""Plan: what a fitted classifier has settled, so that assessing re-checks none of it.

`fit` compiles a plan from the parameters, checked here before the model works; `tune` and changes
of the memory make the next one. A plan is never changed: the classifier replaces it by one
assignment. An assessment that runs meanwhile has taken the plan before or after that, and so sees
the old or the new evidence in all layers, without waiting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from iknow.classifier.units import Ranges, find_ranges
from iknow.core.arrays import Floats, Labels
from iknow.core.level import Levels, are_probabilities
from iknow.core.quorum import Quorum, check_quorum
from iknow.core.rule import Rule, check_by_layer, check_k, check_takes, has_k, is_tuned, make_rule
from iknow.core.text import names, shown
from iknow.errors import InputError
from iknow.locking import cached_property
from iknow.metrics import Euclidean, Metric
from iknow.metrics.defaults import SHORT_NAMES
from iknow.models.model import Layer, Model, Role
from iknow.models.probe import Probe
from iknow.models.samples import check_several_classes
from iknow.models.views import check_views
from iknow.rules import RelativeBall
from iknow.search.layer import LayerIndex, index_type
from iknow.selection import Selection
from iknow.storage.changes import Change, Logged, stale

if TYPE_CHECKING:
    from iknow.classifier.estimator import EpistemicClassifier

KINDS_OF_RULE = (
    "a class such as Ball, one such as Ball(0.5), a dict of one per layer, or a Selection"
)


@dataclass(frozen=True, eq=False)
class Plan:
    """What a classifier asserts by: its model, its memory, and the rules that were chosen."""

    model: Model
    layers: tuple[str, ...]  # whose activations are in memory
    classes: Labels  # those that the model scores, then those that came with later samples
    indexes: Mapping[str, LayerIndex]  # the training samples of each layer
    probe: Probe | str  # what the model can be recognized by, or why it cannot
    rules: Mapping[str, Rule] | None = None  # in some layers; None until they are given or tuned
    selection: Selection | None = None  # how they were chosen, and what is promised
    # Given as the rule, perhaps another classifier's: its levels count, its promises do not.
    given: Selection | None = None
    log: tuple[Logged, ...] = ()  # what happened to the memory since `fit`
    bundled: Mapping[str, Any] = field(default_factory=dict)  # path and sha256 it was loaded from
    # Changes that the bundle it was loaded from does not have; None if they were folded in.
    uncommitted: tuple[Change, ...] | None = None

    @property
    def index(self) -> LayerIndex:
        """Any layer's index: all hold the same samples."""
        return self.indexes[self.layers[0]]

    @property
    def levels(self) -> Levels | None:
        """The path that the rules lie on, if they do."""
        selection = self.selection or self.given
        return None if selection is None else selection.levels

    @cached_property
    def n_scored(self) -> int:
        """How many classes the model scores: the others came later."""
        return len(self.classes) - sum(len(change.classes) for change in self.log)

    @cached_property
    def searched(self) -> Mapping[str, LayerIndex]:
        """The indexes of the layers that have a rule: none before tuning."""
        return {layer: self.indexes[layer] for layer in self.rules or ()}

    @cached_property
    def need(self) -> tuple[int, int, int]:
        """How many neighbors the rules ask for, how many of these there are at most, and how many
        samples of each class they ask for.
        """
        rules = (self.rules or {}).values()
        asked = max(rule.n_neighbors for rule in rules)
        return asked, min(asked, self.index.n_rows), max(rule.per_class for rule in rules)

    @cached_property
    def ranges(self) -> tuple[str, Ranges] | None:
        """The layer of what enters the model, with the ranges of its columns; None if unknown."""
        given = [name for name in self.layers if self.model.role(name) in ("input", "table")]
        found = find_ranges(self.indexes[given[0]]) if given else None
        return None if found is None else (given[0], found)

    def gives_probabilities(self, scores: Floats) -> bool:
        """Whether the model's scores are probabilities; those given decide if nothing else does.

        It is decided once, by the scores of the training samples in the probe, or of those that
        tuned: not by the samples asked about, as two logits may happen to sum to 1.
        """
        if isinstance(self.probe, Probe):
            return are_probabilities(self.probe.observed.scores)
        if self.selection is not None and self.selection.levels is not None:
            return bool(self.selection.levels.from_probabilities)
        return are_probabilities(scores)

    def chosen(self, selection: Selection, n_changes: int) -> Plan:
        """The plan with a selection, chosen on the evidence after so many changes."""
        rules = dict(selection.neighborhoods)
        return replace(self, selection=stale(selection, self.log[n_changes:]), rules=rules)


class CheckedParameters:
    """What the parameters of a classifier ask for, checked and completed by its model and its first
    batch of training samples.

    roles, metrics: by layer; None for a metric that the user did not give. Layers that a user
    computed have the role "hidden" and may have a telling name. named: whether the user named the
    layers, or a metric for them. levels: whether these choose the rules. fixed: rules that need no
    tuning, None if there is something to tune.
    """

    def __init__(self, classifier: EpistemicClassifier, model: Model, first: Any) -> None:
        named, given, self.k = as_layer_names(classifier.layers), classifier.rule, classifier.k
        self.rule = kind_of(given)
        self.levels = not is_fixed(given) and bool(self.rule.by_level)
        if isinstance(given, Selection):  # levels have chosen it
            self.levels = given.levels is not None
        if model.views and not self.levels:
            raise InputError(
                "views change the model's confidence, which levels alone go by: leave views= out, "
                "or tune RelativeBall, the default"
            )
        check_views(model.views, first)
        layers: dict[str, Role] = dict.fromkeys(named or (), "hidden")
        if named is None:
            chosen = choose_layers(model.layers(first), levels=self.levels)
            layers = {each.name: each.role for each in chosen}
        self.roles = {n: model.role(n) if r == "hidden" else r for n, r in layers.items()}
        self.quorum = as_quorums(classifier.quorum, self.rule)[0]
        self.fixed = fixed_rules(given, self.k, self.roles, self.quorum)
        self.metrics = as_metrics(classifier.metric, self.roles)
        for metric in self.metrics.values():
            index_type(metric or Euclidean, classifier.search)
        self.named = named is not None or classifier.metric is not None

    def check_labels(self, labels: Labels) -> None:
        """Refuse training samples of one class alone, and fewer than a k or a quorum asks for."""
        check_several_classes(labels)
        # Checked even if no rule asks for it yet: a bundle keeps it.
        n_rows, k, rules = len(labels), check_k(self.k), (self.fixed or {}).values()
        if self.fixed is not None or not has_k(self.rule):
            k = max((rule.n_neighbors for rule in rules), default=0)
        if k > n_rows:
            raise InputError(f"k={k} is more than the {n_rows} training samples: use a smaller k")
        largest = max(1, *self.quorum, *(number for rule in rules for number in rule.quorum))
        if largest > max(n_rows, *max(RelativeBall.quorums)):  # the usual ones fit any
            raise InputError(
                f"a quorum of {shown(largest)} is more than the {n_rows} training samples: use a "
                "smaller one"
            )


def choose_layers(described: Iterable[Layer], *, levels: bool) -> tuple[Layer, ...]:
    """The layers to use, of those that a model describes, by their roles.

    The paper's rules take what enters the head, and the output. Levels take the input, the middle
    stages, the last hidden layer and the leaves; the output only if there is nothing else.
    """
    by_role: defaultdict[Role, list[Layer]] = defaultdict(list)
    for layer in described:
        by_role[layer.role].append(layer)
    hidden, output = by_role["hidden"], by_role["output"]
    first = by_role["table"] or by_role["input"]
    if not levels:
        return (*(hidden or first), *output)
    return (*first, *by_role["middle"], *hidden, *by_role["leaves"]) or tuple(output)


def as_layer_names(layers: Any) -> tuple[str, ...] | None:
    """Layers as a tuple of names; a single name needs no list. None means the defaults."""
    if layers is None:
        return None
    # An iterator would be empty for the next fit, or for a clone.
    listed = isinstance(layers, Collection) and getattr(layers, "ndim", 1) == 1
    chosen = (layers,) if isinstance(layers, str) else tuple(layers) if listed else ()
    if not chosen or not all(isinstance(name, str) for name in chosen):
        raise InputError(f"layers must be the names of one or more layers; got {shown(layers)}")
    if len(set(chosen)) < len(chosen):
        raise InputError(f"layers must name each layer once; got {shown(layers)}")
    return tuple(map(str, chosen))


def is_fixed(rule: Any) -> bool:
    """Whether a rule, as the user gives it, is to be used as it is: a class is to be tuned."""
    return not isinstance(rule, type)


def kind_of(rule: Any) -> type[Rule]:
    """The kind of rule that a user wants to be tuned; of fixed ones, the default."""
    if is_fixed(rule):
        return RelativeBall
    if not issubclass(rule, Rule):
        raise InputError(f"rule must be {KINDS_OF_RULE}; got {shown(rule)}")
    kind: type[Rule] = rule
    return kind


def as_quorums(quorum: Any, rule: type[Rule]) -> tuple[Quorum, ...]:
    """The quorum that the user asks for, or those that tuning chooses from, the usual one first."""
    pairs = rule.quorums if quorum is None else (check_quorum(quorum),)
    check_takes(rule, pairs[0])
    return pairs


def fixed_rules(
    given: Any, k: int, layers: Collection[str], quorum: Quorum
) -> dict[str, Rule] | None:
    """The rules that need no tuning, by layer, or None if there is something to tune."""
    if not is_fixed(given):
        if is_tuned(given):
            return None
        given = make_rule(given, k, quorum)
    if isinstance(given, Selection):
        given = given.neighborhoods
    if isinstance(given, Rule):
        return dict.fromkeys(layers, given)
    check_by_layer(given, layers, kind=KINDS_OF_RULE)
    return {layer: given[layer] for layer in layers}


def as_metrics(metric: Any, layers: Collection[str]) -> dict[str, Metric | None]:
    """The metric of each layer: one for all, or some by layer; None where the user gives none."""
    if metric is None:
        return dict.fromkeys(layers)
    given = metric if isinstance(metric, Mapping) else dict.fromkeys(layers, metric)
    found = {}
    for layer, each in given.items():
        found[layer] = SHORT_NAMES.get(each) if isinstance(each, str) else each
        if not isinstance(found[layer], Metric):
            raise InputError(
                f"metric must be one of {names(SHORT_NAMES)}, or a metric such as Minkowski(1), "
                f"for all layers or in a dict by layer; got {shown(each)}"
            )
    if unknown := [layer for layer in given if layer not in layers]:
        raise InputError(
            f"metric names {names(unknown)}, which is not among the layers {', '.join(layers)}"
        )
    return {layer: found.get(layer) for layer in layers}
