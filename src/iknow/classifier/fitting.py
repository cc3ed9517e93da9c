"""Fitting: from samples to a plan. `fit` collects evidence, and `tune` chooses the rules.

A trained model is taken as it is. An unfitted scikit-learn classifier is cloned and trained on all
but a part of the samples, which tunes the rules. `fit` passes on what that training asks for, such
as weights. With scikit-learn's metadata routing the wrapped classifier gets what it requests, as
`LogisticRegression().set_fit_request(sample_weight=True)` does. Without it, its `fit` gets all.

With a folder, activations go straight to disk, for evidence that does not fit into memory. The
samples are read once, and their activations written to scratch files in the order in which they
come, as nobody knows the classes yet. When all have come, the labels are counted, each layer's
metric is fitted, and the activations are read once more, transformed, and written where they belong
in the order of the classes. In memory are the labels, the row numbers and one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn import get_config
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import process_routing

from iknow.classifier.observe import (
    check_features,
    check_valid,
    name_labels,
    observe,
    read,
    search_all,
)
from iknow.classifier.plan import CheckedParameters, Plan, as_quorums, kind_of
from iknow.core.arrays import Floats, Floats32, Ints, Labels
from iknow.core.evidence import stack_evidence
from iknow.core.level import are_probabilities
from iknow.core.quorum import Contrast, Quorum, find_contrast, weigh
from iknow.core.text import as_flag, as_real, names, shown
from iknow.errors import InputError, RefusedError, SelectionError, warn
from iknow.metrics.defaults import default_metric, warn_of_layers
from iknow.models.adapt import as_model, is_estimator, is_to_be_trained
from iknow.models.inputs import ORDINARY, as_dense, count_samples, find_kinds, own_copy, take_rows
from iknow.models.model import (
    Model,
    Observation,
    check_width,
    is_refusal,
    observe_all,
    without_scores,
)
from iknow.models.probe import Probe, make_probe
from iknow.models.samples import (
    Samples,
    as_labels,
    as_row_numbers,
    check_count,
    check_several_classes,
    check_trained,
    encode,
    find_classes,
    is_loader,
    track,
    warn_of_shuffling,
)
from iknow.models.unchanged import Unchanged
from iknow.models.views import LEAST_AGREEMENT, Heard
from iknow.rules import Ball
from iknow.search.layer import LayerIndex
from iknow.search.scratch import Folder, Spool, as_folder
from iknow.selection import Goal, Selection, check_unseen, choose
from iknow.selection.agreement import find_slip
from iknow.selection.levels import choose_quorum
from iknow.selection.method import warn_if_uncertain
from iknow.selection.repeats import find_cases, sketch, warn_of_conflicts
from iknow.selection.selection import View
from iknow.selection.validation import Validation, warn_of_strangers
from iknow.selection.validation import split_rows as split_at_random

if TYPE_CHECKING:
    from iknow.classifier.estimator import EpistemicClassifier

# On disk a metric is fitted to so many samples, drawn evenly: to all of them if there are no more,
# so that a small training set gives the same classifier on disk as in memory.
MOST_ROWS = 100_000
MOST_BYTES = 1 << 28  # of the activations that a metric is fitted to


def fit(
    classifier: EpistemicClassifier,
    X: Any,
    y: Any,
    rows: Any,
    params: Mapping[str, Any],
    folder: Any = None,
    *,
    parts: bool = False,
) -> Plan:
    """The plan of a classifier, by training samples; the arguments are those of its `fit`.

    parts: whether more samples will come, for a model that is used as it is.
    """
    if isinstance(classifier.search, str) and folder is not None:
        raise InputError(
            "with folder=..., the evidence stays on disk: search must be no device; got "
            f"{classifier.search!r}"
        )
    stored = None if folder is None else as_folder(folder)
    if not parts and is_estimator(classifier.model) and not is_loader(X):
        check_features(classifier, classifier.model, X, None)
        if is_to_be_trained(classifier.model, X):
            return train(classifier, X, y, rows, params, stored)
    if params:
        raise InputError(
            f"fit got {names(params)}, but nothing is trained: the model is used as it is, and all "
            "samples count alike as evidence. Leave it out, or pass an unfitted classifier"
        )
    model = adapt(classifier, classifier.model)
    if rows is None:
        warn_of_shuffling(X)
    samples = read(classifier, model, X, y)
    if y is None and samples.inputs is not None:  # in scikit-learn's words
        as_labels(None, 0, "y")
    return collect(classifier, model, samples, rows, parts=parts, folder=stored)


def collect(
    classifier: EpistemicClassifier,
    model: Model,
    samples: Samples,
    rows: Any,
    positions: Ints | None = None,
    *,
    parts: bool = False,
    folder: Folder = None,
) -> Plan:
    """The plan of a classifier, with an index for each layer of its model.

    rows: as in `fit`. positions: see `check_valid`. parts: whether more samples will come. folder:
    where to keep the activations; None for memory.
    """
    settings = CheckedParameters(classifier, model, first := samples.first())
    if (known := samples.labels) is not None and not parts:  # else they come with the samples
        settings.check_labels(known)
    layers = tuple(settings.roles)
    enabled = as_flag(classifier.progress, "progress")
    read_all = samples.read(labeled=True)
    batches = track(read_all, samples.n_batches, "Collecting evidence", enabled=enabled)
    spool, widths = Spool(folder, samples.n_expected), dict[str, int]()

    def keep(part: Observation) -> Observation:
        """The observation without its activations, which are in files from now on."""
        for layer, values in part.activations.items():
            check_width(layer, values, widths.setdefault(layer, values.shape[1]))
        spool.take(part.activations)
        return replace(part, activations={})

    asked = model, batches, samples.n_samples, layers
    observation, n_columns = observe_all(*asked) if folder is None else observe_all(*asked, keep)
    found = observation.activations if folder is None else spool.rows()
    labels = name_labels(samples.all_labels(), classifier.classes)
    if known is None and not parts:
        settings.check_labels(labels)
    check_valid(observation.invalid, "training", positions, layers, model)
    some = slice(None) if folder is None else choose_rows(found)
    typical = {layer: values[some] for layer, values in found.items()}
    warn_of_layers(typical, raw=not settings.levels and not settings.named)
    classes = find_classes(labels, n_columns, model.classes, classifier.classes)
    codes, numbers = encode(labels, classes, "y"), as_row_numbers(rows, len(labels))
    if positions is None:  # otherwise the model was just trained on these labels
        slip = find_slip(observation.belief, codes, classes, "training", model.classes is not None)
        if slip is not None:
            raise InputError(slip)
    shape = np.shape(first)[1:] if hasattr(first, "shape") else None
    indexes = {}
    for layer, values in found.items():
        metric = settings.metrics[layer] or default_metric(
            settings.roles[layer], typical[layer], shape, settings.levels
        )
        metric = metric.fit(typical[layer], codes[some])
        arrays = values, codes, len(classes), numbers, metric
        indexes[layer] = LayerIndex.build(*arrays, classifier.search, folder)
    if (measured := first_measured(indexes)) is not None:
        warn_of_conflicts(indexes[measured].points, indexes[measured].labels)
    probe: Probe | str = "its loader yields inputs that cannot be kept in a bundle"
    inputs = samples.inputs
    if inputs is None and samples.richest is not None:
        inputs, of_some, places = samples.richest
        numbers, codes = numbers[places], np.unique(of_some.astype(str), return_inverse=True)[1]
    if inputs is not None:
        probe = make_probe(model, inputs, codes, layers, numbers, classifier.batch_size)
    given = classifier.rule if isinstance(classifier.rule, Selection) else None
    unchanged = Unchanged(classifier.batch_size)
    return Plan(model, layers, classes, indexes, probe, unchanged, settings.fixed, given=given)


def choose_rows(activations: Mapping[str, Floats32]) -> Ints:
    """The samples that metrics are fitted to, ascending; all of them if they are few."""
    n = min(len(values) for values in activations.values())
    widest = max(values.shape[1] for values in activations.values())
    most = max(1, min(MOST_ROWS, MOST_BYTES // (4 * widest)))
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.int64)


def train(
    classifier: EpistemicClassifier,
    X: Any,
    y: Any,
    rows: Any,
    params: Mapping[str, Any],
    folder: Folder,
) -> Plan:
    """The plan around a trained clone of the estimator, tuned on a held-out part if it can be."""
    inputs = as_dense(X)
    labels = as_labels(y, count_samples(inputs), "y")
    check_several_classes(labels)
    numbers, training = as_row_numbers(rows, len(labels)), np.arange(len(labels))
    rule = kind_of(classifier.rule)
    tunes = rule is classifier.rule and (rule.by_level or rule.why_not_for_coverage() is None)
    if tunes:
        share = classifier.validation_fraction
        training, validation = split_rows(labels, share, classifier.random_state)
    seen = take_rows(inputs, training)
    estimator = seeded_clone(classifier.model, classifier.random_state)
    taken = take_params(classifier, params, training, len(labels))
    model = adapt(classifier, _train(estimator, seen, labels[training], training, taken))
    known = read(classifier, model, seen, labels[training])
    plan = collect(classifier, model, known, numbers[training], training, folder=folder)
    if not tunes:
        return plan
    held_out = read(classifier, model, take_rows(inputs, validation), labels[validation])
    try:
        goal = Goal(k=classifier.k)
        return plan.chosen(select(classifier, plan, goal, held_out, validation), 0)
    except SelectionError as error:
        warn(
            f"{error}. Until it is tuned again this classifier answers IDK for all but exact "
            "copies of training samples"
        )
        return replace(plan, rules=dict.fromkeys(plan.layers, Ball(0.0)))


def select(
    classifier: EpistemicClassifier,
    plan: Plan,
    goal: Goal,
    samples: Samples,
    positions: Ints | None = None,
    reference: Any = None,
) -> Selection:
    """The rules for a goal, chosen on some samples; positions: see `check_valid`."""
    codes_of(plan, samples, classifier.classes)  # before the model works, if they are at hand
    rule = kind_of(classifier.rule)
    quorums = as_quorums(classifier.quorum, rule)
    what = "validation" if positions is None else "training"
    if reference is not None or (samples.inputs is not None and samples.labels is None):
        quorums = quorums[:1]  # the path is laid without labels, which would choose
    k = goal.neighbors_needed(rule, plan.index.n_rows, quorums[0])
    looked, heard, rows = look(plan, samples, k, quorums, what, positions, classifier.progress)
    y_true = codes_of(plan, samples, classifier.classes)
    if y_true is not None:
        told = looked[0].belief, y_true, plan.classes, "validation", plan.model.classes is not None
        if (slip := find_slip(*told)) is not None:
            warn(slip)
    looked = [replace(each, y_true=y_true) for each in looked]
    if rows is not None:
        looked, heard = [each[rows] for each in looked], None if heard is None else heard[rows]
    # Labels or levels promise something about the others, so they must not choose.
    n = len(looked[0])
    chooses = np.arange(n) if goal.coverage else split_at_random(n, goal.random_state)[0]
    seen = choose_quorum(looked, chooses)
    others = heard_of_others = None
    if reference is not None:
        further = read(classifier, plan, reference)
        (others,), heard_of_others, _ = look(
            plan, further, k, quorums, "reference", None, classifier.progress
        )
        if others.from_probabilities != seen.from_probabilities:
            # The scores look like probabilities in one set alone, so they rank in neither.
            seen, others = replace(seen, confidence=None), replace(others, confidence=None)
    views: tuple[View, ...] = ()
    if heard is not None and seen.confidence is not None:
        views = try_views(heard[chooses] if heard_of_others is None else heard_of_others)
        kinds = tuple(each.kind for each in views if each.is_used)
        seen = replace(seen, confidence=heard.confidence(kinds), views=kinds)
        if others is not None and heard_of_others is not None:
            others = replace(others, confidence=heard_of_others.confidence(kinds), views=kinds)
    chosen = choose(goal, seen, rule, plan.classes, reference=others)
    if goal.coverage is not None:
        warn_if_uncertain(chosen)
    return replace(chosen, goal=goal, views=() if chosen.levels is None else views)


def try_views(heard: Heard) -> tuple[View, ...]:
    """The kinds of views, and which of them are harmless; warns of the others."""
    tried = []
    for kind, (passes, agreement) in heard.agreement().items():
        tried.append(View(kind, passes, agreement, agreement >= LEAST_AGREEMENT))
        if not tried[-1].is_used:
            warn(
                f"the view {kind!r} is left out: of the samples that the model is surest of it "
                f"answers {1 - agreement:.1%} otherwise in this view"
            )
    return tuple(tried)


def first_measured(indexes: Mapping[str, LayerIndex]) -> str | None:
    """The first layer that tells samples apart: many share all leaves of trees."""
    return next((layer for layer, index in indexes.items() if index.metric.p != 0), None)


def codes_of(plan: Plan, samples: Samples, classes: Any) -> Ints | None:
    """The classes of samples, as far as their labels are known, of shape (n,)."""
    if samples.labels is None:
        return None
    labels = name_labels(samples.labels, classes)
    if samples.n_samples is not None:
        check_count(labels, samples.n_samples)
    codes = encode(labels, plan.classes, "y")
    check_trained(codes, plan.index.labels, plan.classes)
    return codes


def look(
    plan: Plan,
    samples: Samples,
    k: int,
    quorums: Sequence[Quorum],
    what: str,
    positions: Ints | None,
    progress: bool,
) -> tuple[list[Validation], Heard | None, Ints | None]:
    """What tuning needs to know about samples that `fit` has not seen, for each quorum, and what is
    heard in views of them, if the model has any; and those that are cases of their own, ascending,
    None for all.
    """
    odds: list[list[Heard]] = []
    normalized: list[bool] = []
    sketches: list[Floats] = []
    measured = first_measured(plan.indexes)
    weighed: dict[str, list[list[Contrast]]] = {layer: [] for layer in plan.layers}

    def contrast(layer: str, seen: Observation) -> Contrast:
        found = plan.indexes[layer].gather(seen.activations[layer], k, max(map(max, quorums)))
        if layer == measured:
            sketches.append(sketch(plan.indexes[layer].transform(seen.activations[layer])))
        pairs = (weigh(found, quorum, seen.belief) for quorum in quorums)
        weighed[layer].append([find_contrast(each, seen.belief) for each in pairs])
        return weighed[layer][-1][0]

    def heard() -> Iterator[Observation]:
        views = plan.model.views
        for seen in observe(plan, samples, plan.layers, progress=progress, views=views):
            normalized.append(are_probabilities(seen.scores))
            odds.append([Heard.of(seen, each) for each in (False, True)])
            yield replace(without_scores(seen), views={})

    whole, evidence = search_all(heard(), plan.layers, contrast, None, keeps=False)
    check_valid(whole.invalid, what, positions, plan.layers, plan.model)
    rows = None
    if positions is None:  # otherwise fit held them out itself
        check_unseen(evidence, plan.indexes)
        if measured is not None and len(whole):
            ours, index = np.concatenate(sketches), plan.indexes[measured]
            training = sketch(index.points)
            rows = find_cases(ours, training) if what == "validation" else None
            if plan.model.role(measured) in ("input", "table"):
                warn_of_strangers(index, evidence[measured], ours, training, what)
    from_probabilities = all(normalized)
    of_all = Heard.joined([each[from_probabilities] for each in odds])
    found = (
        {layer: stack_evidence([part[i] for part in parts]) for layer, parts in weighed.items()}
        for i in range(len(quorums))
    )
    known = (whole.belief, None, of_all.odds[0], from_probabilities)
    return [Validation(each, *known) for each in found], of_all if of_all.kinds else None, rows


def _train(
    estimator: Any, inputs: Any, labels: Labels, positions: Ints, params: Mapping[str, Any]
) -> Any:
    """Train on a copy; an error about a non-finite value names its row in X, by `positions`."""
    try:
        # A copy, because scalers and imputers with copy=False write to their input.
        return estimator.fit(own_copy(inputs), labels.copy(), **params)
    except Exception as error:
        if not is_refusal(error):
            raise
        check_valid(find_kinds(inputs) != ORDINARY, "training", positions)
        if isinstance(error, TypeError):  # scikit-learn's checks expect a TypeError
            raise
        raise RefusedError(f"{type(estimator).__name__} could not be trained: {error}") from error


def adapt(classifier: EpistemicClassifier, model: Any) -> Model:
    """A model as iknow reads it, on the device that searches, if that is one."""
    search = classifier.search
    return as_model(model, device=search if isinstance(search, str) else None)


def seeded_clone(estimator: Any, random_state: Any) -> Any:
    """An unfitted clone; every random_state that is None gets a seed drawn from ours."""
    copy = clone(estimator)
    rng = as_random_state(random_state)
    seeds = {
        name: int(rng.randint(np.iinfo(np.int32).max))
        for name, value in sorted(copy.get_params(deep=True).items())
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    }
    return copy.set_params(**seeds) if seeds else copy


def as_random_state(random_state: Any) -> Any:
    """A RandomState from whatever scikit-learn accepts: a seed, a RandomState, or None."""
    try:
        return check_random_state(random_state)
    except Exception as error:  # it compares any object, which may fail in any way
        raise InputError(
            "random_state must be a whole number from 0 to 2**32 - 1, a numpy RandomState or None; "
            f"got {shown(random_state)}"
        ) from error


def split_rows(labels: Labels, fraction: float, random_state: Any) -> tuple[Ints, Ints]:
    """Rows to train on and rows to hold out, both ascending.

    Each class holds out this fraction of its samples, rounded down, and keeps at least one to train
    on. If that holds out nothing, the largest class holds out one.
    """
    share = as_real(fraction, "validation_fraction", "lie between 0 and 1", lambda x: 0 < x < 1)
    rng = as_random_state(random_state)
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    quota = np.floor(share * counts).astype(np.int64)
    if quota.sum() == 0:
        quota[counts.argmax()] = 1
    quota = np.minimum(quota, counts - 1)
    if quota.sum() == 0:
        raise InputError(
            f"{len(labels)} samples of {len(counts)} classes are too few to hold any out for "
            "tuning: add a second sample for each class, or fix the rule, as rule=Ball(0.5)"
        )
    held_out = np.zeros(len(labels), dtype=bool)
    for code, n_held in enumerate(quota):
        held_out[rng.permutation(np.flatnonzero(codes == code))[:n_held]] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def take_params(classifier: Any, params: Mapping[str, Any], rows: Ints, n: int) -> dict[str, Any]:
    """The arguments for the wrapped classifier's `fit`, which is trained on some of n rows.

    Whatever has n entries is about the samples, and only those of the rows are passed on.
    """
    routed = dict(params)
    if params and get_config()["enable_metadata_routing"]:
        routed = process_routing(classifier, "fit", **params).model.fit
    return {name: _take(value, rows, n) for name, value in routed.items()}


def _take(value: Any, rows: Ints, n: int) -> Any:
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__") or len(value) != n:
        return value
    return take_rows(value if hasattr(value, "iloc") else np.asarray(value), rows)
