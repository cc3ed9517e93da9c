"""EpistemicClassifier: a model that says how well each of its answers is justified.

A thin shell around a `Plan`: `fit` compiles it, `tune` chooses its rules, `assess` observes samples
with it. Probabilities, decisions, routing and output containers are the wrapped model's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import estimator_html_repr, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from iknow.cards import paragraphs
from iknow.classifier import fitting, observe
from iknow.classifier.memory import Memory, as_bundled, extend
from iknow.classifier.movement import Mover
from iknow.classifier.plan import Plan, is_fixed
from iknow.classifier.units import FEWEST_VALUES, warn_of_units
from iknow.core.arrays import Floats, Labels
from iknow.core.level import softmax
from iknow.core.quorum import Quorum
from iknow.core.rule import Rule
from iknow.core.text import as_flag, as_whole
from iknow.errors import InputError
from iknow.explain.assessment import Assessment
from iknow.explain.later import Later
from iknow.metrics import Metric
from iknow.models import PrecomputedModel
from iknow.models.adapt import is_estimator
from iknow.models.inputs import own_copy
from iknow.models.model import Model
from iknow.models.probe import Probe
from iknow.rules import Ball, RelativeBall
from iknow.search.layer import LayerIndex, Search
from iknow.selection import Goal, Selection, check_unseen, make_watch
from iknow.selection.validation import check_not_tuned
from iknow.storage.saving import load_classifier, save_classifier


def _is_trained(classifier: Any) -> bool:
    """Whether a classifier's model is used as it is: parts of the data cannot train one."""
    model = classifier.model
    fitted = isinstance(model, FrozenEstimator) or hasattr(model, "classes_")
    return fitted or not is_estimator(model)


def _has(method: str, *, others: bool = False) -> Callable[[Any], bool]:
    """Whether the wrapped scikit-learn classifier has this method, and whether others have it."""
    return lambda it: hasattr(it.model, method) if is_estimator(it.model) else others


class _Unfitted:
    """The plan of a classifier that has none: an error. Once set, an attribute hides this."""

    def __get__(self, classifier: Any, kind: Any = None) -> Plan:
        return self if classifier is None else check_is_fitted(classifier)  # type: ignore  # raises


def _of_plan(name: str) -> Any:
    """An attribute that a fitted classifier has, unless its plan has None there."""

    def find_it(classifier: EpistemicClassifier) -> Any:
        found = getattr(vars(classifier).get("plan_"), name, None)
        if found is None:
            raise AttributeError(f"this {type(classifier).__name__} has no {name}_ yet")
        return found

    return property(find_it)


@dataclass(eq=False, repr=False)
class EpistemicClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
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
        layers: Names of the layers to find support in. Default: the input, the ends of the middle
            stages and the last hidden layer of a network, or what enters the classifier of a
            pipeline; for the paper's rules the last hidden layer and the output.
        rule: A class, such as `Ball`, whose parameters `tune` chooses; `RelativeBall` has levels.
            Or a fixed rule, such as `Ball(0.5)`, for all layers or in a mapping by layer. A
            `Selection`, such as another classifier's `selection_`, is fixed too, and also says
            which classes may be known.
        quorum: How many training samples a class needs within reach to count, or two numbers: how
            many the belief needs, and how many another class needs to contradict it. Default: for
            `RelativeBall` (1, 3), or a larger one that `tune` finds much better by labels; else 1.
        k: Number of neighbors, for rules that use it.
        metric: "cosine", "euclidean", "hamming", "scaled", "whitened" or a metric, for all layers
            or in a mapping. Default: by the role of a layer (`iknow.metrics.defaults`); Euclidean
            for the paper's rules and for fixed neighborhoods.
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

    model: Any
    layers: Sequence[str] | None = None
    rule: type[Rule] | Rule | Mapping[str, Rule] | Selection = RelativeBall
    _: KW_ONLY
    quorum: int | Quorum | None = None
    k: int = 5
    metric: str | Metric | Mapping[str, str | Metric] | None = None
    classes: Any = None
    search: Search = None
    validation_fraction: float = 0.25
    batch_size: int | None = None
    random_state: Any = 0
    progress: bool = True

    plan_ = _Unfitted()
    classes_: ClassVar[Labels] = _of_plan("classes")
    layers_: ClassVar[tuple[str, ...]] = _of_plan("layers")
    indexes_: ClassVar[Mapping[str, LayerIndex]] = _of_plan("indexes")
    model_: ClassVar[Model] = _of_plan("model")
    probe_: ClassVar[Probe | str] = _of_plan("probe")
    neighborhoods_: ClassVar[Mapping[str, Rule]] = _of_plan("rules")
    selection_: ClassVar[Selection] = _of_plan("selection")

    @classmethod
    def paper(cls, model: Any, **parameters: Any) -> Self:
        """The method as published: balls in the last hidden layer and the output, Euclidean.

        `model` and `parameters`, such as another of the paper's rules, as for a new classifier.

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

    def __sklearn_is_fitted__(self) -> bool:
        return "plan_" in vars(self)

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
                fit into memory; see `iknow.classifier.fitting`. The files vanish with the
                classifier: `save` keeps the evidence. Metrics are fitted to 100,000 samples.
            **params: Passed on to the training of a scikit-learn classifier, such as
                `sample_weight` of shape (n,); with metadata routing, if the classifier requests it.
                They train the model and nothing else: as evidence all samples count alike.
        """
        return self._begin(lambda: fitting.fit(self, X, y, rows, params, folder))

    def _begin(self, make_plan: Callable[[], Plan]) -> Self:
        """Begin with a plan made anew; if that fails, everything is as it was before."""
        before = self.__dict__
        try:
            self.__dict__ = {name: old for name, old in before.items() if name[-1] != "_"}
            self.plan_ = make_plan()
        except BaseException:
            self.__dict__ = before
            raise
        return self

    @available_if(_is_trained)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, *, rows: Any = None) -> Self:
        """Add evidence that arrives in parts, for a trained model.

        The first part decides the layers and, as they are fitted to it, the metrics: let it be
        typical of all. What `tune` chose no longer holds, and neither does what it promised: tune
        again after the last part. To go on asserting meanwhile, use `memory.add`.

        Args:
            X: n further samples, or a loader, as for `fit`.
            y: Their labels, of shape (n,), unless the loader yields them.
            rows: Numbers of shape (n,) that identify the samples, other than those before. Default:
                they count on from the highest before.

        Examples:
            >>> ec = EpistemicClassifier(FrozenEstimator(trained))
            >>> for part in (slice(0, 30), slice(30, None)):
            ...     ec = ec.partial_fit(X_train[part], y_train[part])
            >>> len(ec.memory) == len(X_train)
            True
        """
        if "plan_" not in vars(self):
            return self._begin(lambda: fitting.fit(self, X, y, rows, {}, parts=True))
        extend(self, X, y, rows, parts=True)
        return self

    def tune(
        self,
        X: Any,
        y: Any = None,
        *,
        accuracy: float | None = None,
        confidence: float = 0.95,
        each_class: bool = False,
        coverage: float | None = None,
        false_alarm: float | None = None,
        reference: Any = None,
        premium: float = 0.05,
        method: Literal["exact", "grid", "bayes"] = "exact",
        k: int | Sequence[int] | None = None,
        time_limit: float = 60.0,
    ) -> Self:
        """Choose the neighborhoods on validation data.

        Without a goal, choose the largest coverage on which IK is certified, with confidence, to be
        wrong ten times less often than the model. If the samples are too few for that, choose the
        level that three quarters of them reach; `selection_.note` then says how far it got. The
        paper's rules choose the largest coverage.

        Args:
            X: n samples that are not in the training data, or a loader that yields them.
            y: Their labels, of shape (n,), unless the loader yields them; a coverage or a rate of
                false alarms needs none.
            accuracy: Choose the largest coverage whose accuracy on IK is certified to be at least
                this; raises a `SelectionError` if no coverage qualifies.
            confidence: Probability, over the draw of the data, with which that guarantee holds.
            each_class: Certify the accuracy of each class by itself.
            coverage: Match this coverage instead (for `RelativeBall` and `Nearest`).
            false_alarm: Choose the strictest level at which an ordinary sample fails to be IK with
                this probability at most.
            reference: Further samples without labels, not in the training data either, that show
                what is ordinary; otherwise a part of X does.
            premium: What the training samples may cost on ordinary data as a second opinion beside
                the model's confidence, as a share of the risk of going by that alone. The more, the
                less is asserted of strange data.
            method: "grid" and "bayes" are for comparison.
            k: Number of neighbors, or several to try, for rules that use it.
            time_limit: Seconds that the search may take.

        Examples:
            >>> ec = EpistemicClassifier(trained).fit(X_train, y_train)
            >>> print(f"{ec.tune(X_val, coverage=0.8).selection_.coverage:.2f}")
            0.80
        """
        plan = self.plan_
        if is_fixed(self.rule):
            raise InputError("nothing to tune: rule=... fixes it; give a class, such as rule=Ball")
        seed = fitting.as_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        goal = Goal(
            method=method,
            accuracy=accuracy,
            confidence=confidence,
            each_class=each_class,
            coverage=coverage,
            false_alarm=false_alarm,
            premium=premium,
            k=self.k if k is None else k,
            time_limit=time_limit,
            random_state=int(seed),
        )
        return self._choose(plan, goal, X, y, reference)

    def recertify(self, X: Any, y: Any = None, *, reference: Any = None) -> Self:
        """Choose the neighborhoods again, for the goal that they were chosen for.

        Do this after changes of the evidence, which `selection_.stale` tells. It renews the
        certificate, the bound on false alarms and the watch, or raises a `SelectionError` if these
        samples certify nothing; then everything stays as it is. A watch that `watch` set is not
        renewed: call it again.

        Args:
            X: n fresh samples, as for `tune`: not in the training data, and not those that showed
                which changes to make.
            y: Their labels, of shape (n,), if the goal needs them.
            reference: As for `tune`.

        Examples:
            >>> ec = EpistemicClassifier(trained).fit(X_train, y_train).tune(X_val, coverage=0.8)
            >>> _ = ec.memory.remove([3])
            >>> ec.recertify(X_test).selection_.stale
            ''
        """
        plan = self.plan_
        if is_fixed(self.rule):
            raise InputError("nothing to recertify: rule=... fixes it, and nothing was certified")
        if plan.selection is None or plan.selection.goal is None:
            raise InputError("no selection says what it was chosen for: call tune first")
        return self._choose(plan, plan.selection.goal, X, y, reference)

    def _choose(self, plan: Plan, goal: Goal, X: Any, y: Any, reference: Any) -> Self:
        samples = observe.read(self, plan, X, y)
        chosen = fitting.select(self, plan, goal, samples, reference=reference)
        self.memory.step(lambda now: now.chosen(chosen, len(plan.log)))
        return self

    def watch(self, X: Any) -> Self:
        """Take fresh samples `X` as what is ordinary, for a `DriftAlarm` to compare with.

        They take the place of those that `tune` set apart, in `selection_.watch`, and are saved
        with the classifier: not the samples, but their levels, of at most 20,000 of them. Samples
        that trained the model or tuned the classifier are refused, as far as that shows.

        Examples:
            >>> ec = EpistemicClassifier(trained).fit(X_train, y_train).tune(X_val, coverage=0.8)
            >>> len(ec.watch(X_test).selection_.watch) == len(X_test)
            True
        """
        plan = self.plan_
        if plan.selection is None:
            raise InputError(
                "watch belongs to a tuned classifier: call tune first; with fixed neighborhoods "
                "an alarm compares the stream with its own beginning"
            )
        assessed = self.assess(X, evidence=True)
        indexes = {layer: plan.indexes[layer] for layer in assessed.evidence}
        check_unseen(assessed.evidence, indexes)
        if (path := assessed.levels) is not None:
            check_not_tuned(assessed.evidence, assessed.belief_codes, path, indexes)
        a = assessed.answers
        watch = make_watch(a.watched, a.belief, a.watched_by_layer, a.watched_layers)
        if watch is None:
            raise InputError("watch needs at least one sample; got none")
        self.memory.step(lambda now: replace(now, selection=replace(self.selection_, watch=watch)))
        return self

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
        plan = self.plan_
        if plan.rules is None:
            raise NotFittedError(
                "no neighborhoods yet: call tune(X_val, y_val), or give rule=Ball(0.5), say (fit "
                "tunes only a scikit-learn classifier that it trains itself, not a fitted one)"
            )
        gathers = evidence is not False and as_flag(evidence, "evidence")
        least = k if type(k) is int and k >= 0 else as_whole(k, "k", "be a whole number >= 0", 0)
        samples = observe.read(self, plan, X)
        seen, found, decisions, heard = observe.find(plan, samples, least, gathers, self.progress)
        selection, places = plan.selection or plan.given, np.arange(len(seen.belief))
        labels, measured = samples.labels, observe.measure(self, plan, seen)
        if plan.ranges is not None and len(places) >= FEWEST_VALUES and seen.activations:
            layer, ranges = plan.ranges
            warn_of_units(ranges, seen.activations[layer], measured.names(layer))
        return Assessment(
            classes=plan.classes,
            belief_codes=seen.belief,
            scores=seen.scores,
            evidence=found,
            neighborhoods=plan.rules,
            invalid=seen.invalid,
            knowable=None if selection is None else selection.knowable,
            decisions=decisions,
            movements=Later(tuple(plan.searched), Mover(plan, samples.sizes, seen).find, places),
            levels=plan.levels,
            over_views=heard,
            least_confidence=-np.inf if selection is None else selection.least_confidence,
            calibration=None if plan.selection is None else plan.selection.calibration,
            least_level=None if selection is None else selection.level,
            measured=measured,
            y_true=None if labels is None else observe.name_labels(labels, self.classes),
            index=X.index if hasattr(X, "iloc") else None,
        )

    def predict(self, X: Any) -> Labels:
        """Return the model's own answers for the samples `X`, as labels of shape (n,).

        Raises an `InputError` that names the rows without an answer, where `assess` says IDK.
        """
        plan, observation = observe.answer(self, X, scores=False)
        labels: Labels = plan.classes[observation.belief]
        return labels

    @available_if(_has("predict_proba", others=True))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return the model's own probabilities, of shape (n, n_classes), as `classes_` orders them.

        Scores that are no probabilities, as the logits of a network, go through a softmax. Classes
        that `add` brought later have no column, as the model does not score them. `X`: n samples.

        Examples:
            >>> ec = EpistemicClassifier(FrozenEstimator(trained)).fit(X_train, y_train)
            >>> np.array_equal(ec.predict_proba(X_val), trained.predict_proba(X_val))
            True
        """
        plan, observation = observe.answer(self, X, scores=True)
        if is_estimator(self.model) or plan.gives_probabilities(observation.scores):
            return observation.scores
        return softmax(observation.scores)

    @available_if(_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Floats:
        """Return the decision function of the wrapped classifier for `X`, as it gives it."""
        plan = self.plan_
        samples = observe.read(self, plan, X)
        estimator: Any = plan.model.estimator  # type: ignore[attr-defined]
        parts = [estimator.decision_function(own_copy(batch)) for batch in samples.read()]
        return np.concatenate(parts)

    @available_if(_has("set_output"))  # type: ignore[untyped-decorator]
    def set_output(self, *, transform: str | None = None) -> Self:
        """Set what the transformers of a wrapped pipeline return, as `Pipeline.set_output` does:
        `transform` is "default", "pandas", "polars", or None for no change.
        """
        self.model.set_output(transform=transform)
        if (trained := getattr(getattr(self, "model_", None), "estimator", None)) is not None:
            trained.set_output(transform=transform)
        return self

    def get_metadata_routing(self) -> MetadataRouter:
        """Return who gets what `fit` is passed besides X and y: the wrapped model, if it asks."""
        router, mapping = MetadataRouter(owner=self), MethodMapping()
        mapping.add(caller="fit", callee="fit")
        return router.add_self_request(self).add(model=self.model, method_mapping=mapping)

    @property
    def memory(self) -> Memory:
        """The training samples: `memory.add`, `remove`, `relabel`, `compact`, `commit`, `log`."""
        check_is_fitted(self)
        return Memory(self)

    def warm_up(self) -> Self:
        """Check, prepare and compile the search now, and ask the model once, on its probe.

        Otherwise the first request waits for this: seconds, if no process has compiled it before.
        """
        plan = self.plan_
        for index in plan.indexes.values():
            index.warm_up()
        if isinstance(plan.probe, Probe) and not isinstance(plan.model, PrecomputedModel):
            self.predict(plan.probe.inputs)
        return self

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        probe: bool = True,
        name: str | None = None,
        note: str | None = None,
        version: str | None = None,
        onnx: bool = False,
        samples: Any = None,
    ) -> None:
        """Write a bundle: evidence, neighborhoods and selection, and on request the model as ONNX.

        Changes of the evidence are folded in: nothing of a removed sample is in the bundle. To
        append changes to the bundle that a classifier was loaded from, use `commit`.

        It records the time, and with the environment variable SOURCE_DATE_EPOCH that time instead,
        so that the same classifier makes the same file.

        Args:
            path: The file to write.
            probe: Keep up to 32 training inputs, 1 MiB at most, with the model's answers, so that
                `load` can recognize the model. False keeps no inputs, and `load` accepts any model.
            name: What to call it, in one line. Default: as it was called when it was loaded.
            note: Anything else that those who find the bundle should know. Default: likewise.
            version: Its version, such as "1.3" or "2026-11-01": letters, digits, dots, hyphens and
                underscores, up to 64. Default: none.
            onnx: Put the model with its layers into the bundle as ONNX, so that `load` needs no
                model, only onnxruntime. On the inputs that the probe keeps, and on `samples`,
                belief, assertion and level must be the same, and scores and activations within the
                probe's tolerance; else nothing is written. A classifier that was loaded with the
                model of its bundle keeps it.
            samples: Further samples to compare on, in any form the model takes.

        Raises:
            ExportError: The model cannot become ONNX, or a sample is answered differently.

        Examples:
            >>> ec = EpistemicClassifier(FrozenEstimator(trained)).fit(X_train, y_train)
            >>> ec.tune(X_val, y_val).save("iris.iknow")
            >>> EpistemicClassifier.load("iris.iknow", FrozenEstimator(trained)).layers_
            ('input',)
        """
        check_is_fitted(self)
        save_classifier(self, path, probe, name, note, version, onnx, samples)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: Any = None,
        *,
        verify: bool | Literal["now"] = True,
        search: Search = None,
        check_model: bool = True,
        at: str | None = None,
    ) -> Self:
        """Read a bundle back, for the same trained model.

        Every parameter comes back, except `search`, which belongs to the machine, and a
        RandomState, which keeps changing: None takes its place.

        Args:
            path: The file to read.
            model: The model. It is read as it was saved; if that took a function, which a bundle
                cannot hold, pass it again: as_model(model, embed=...). Default: the one in the
                bundle, run by onnxruntime; if the bundle holds none, the classifier takes
                precomputed outputs, (scores, {layer: activations}).
            verify: Compare the arrays with their checksums before the first answer that depends on
                them, and again if a mapped file changes; "now" also compares at once, False never.
                Bundles larger than 256 MiB are mapped, others copied into memory.
            search: As for a new classifier, whatever was saved.
            check_model: Ask the model about the inputs in the bundle, and refuse one whose answers
                differ; False accepts any model.
            at: The sha256 that the bundle had at some time since it was compacted, such as an audit
                records it: load it without later changes.

        Raises:
            BundleError: The bundle is damaged, or was made with another model.

        If the evidence of the bundle was changed, it is loaded as it is now; see `memory.log`.
        """
        made = load_classifier(cls, Plan, path, model, verify, search, check_model, at)
        classifier, plan = made[0], made[0].plan_
        classifier.plan_ = as_bundled(plan, made[1], plan.bundled["sha256"])
        return classifier  # type: ignore[no-any-return]

    def _repr_html_inner(self) -> str:
        """What is promised, and the memory; scikit-learn's diagram, all else if unfitted, folds."""
        plan, diagram = vars(self).get("plan_"), str(estimator_html_repr(self))
        if plan is None:
            return diagram
        said = "Not tuned yet: call tune before assess"
        if plan.rules is not None:
            said = "Nothing is guaranteed: the neighborhoods were given, not tuned"
        card = paragraphs([said]) if plan.selection is None else plan.selection._repr_html_()
        memory = paragraphs([repr(self.memory)])
        return f"{card}{memory}<details><summary>parameters</summary>{diagram}</details>"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """What notebooks show, in place of scikit-learn's diagram alone."""
        shown = {"text/plain": repr(self)}
        as_diagram = get_config()["display"] == "diagram"
        return shown | ({"text/html": self._repr_html_inner()} if as_diagram else {})
