"""Observing: what a model, and the indexes of its layers, say about samples, batch by batch.

What the user passes becomes samples for the model. The number and names of the features are
recorded at `fit`, as scikit-learn does, and compared afterwards; other models take numbers by their
places, so only a table's names must not change. A pipeline that itself takes columns by name may
get them in any order, and further ones: `fit` decides which go on.

One loop serves fitting, tuning and assessing. It asks the model about a batch and searches each
layer for what is wanted: evidence, a decision by the layer's rule, or the contrast that tuning
needs. Evidence that an assertion does not need is gathered later, on request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.utils.validation import validate_data

from iknow.classifier.plan import Plan
from iknow.core.arrays import Bools, Floats, Ints, Labels
from iknow.core.codes import NO_BELIEF
from iknow.core.decision import Decision
from iknow.core.evidence import (
    Columns,
    Evidence,
    discard_evidence,
    pad_evidence,
    stack_evidence,
)
from iknow.core.text import shown
from iknow.errors import InputError, warn
from iknow.explain.features import Measured
from iknow.explain.later import Later
from iknow.metrics.lipschitz import unwrap
from iknow.models import PrecomputedModel
from iknow.models.adapt import has_base
from iknow.models.differences import (
    compare_columns,
    find_changed_columns,
    find_differences,
    find_twice,
)
from iknow.models.inputs import as_pandas
from iknow.models.model import Model, Observation, check_width, join_whole, without_scores
from iknow.models.probe import Probe
from iknow.models.samples import Samples, as_samples, as_vector, map_ahead, name_positions, track
from iknow.models.views import Heard, ask_views
from iknow.search.layer import LayerIndex

if TYPE_CHECKING:
    from iknow.classifier.estimator import EpistemicClassifier

About = TypeVar("About", bound=Columns)

BYTES_OF_ACTIVATIONS_KEPT = 1 << 30  # over all layers, to gather evidence later
NO_TABLE = "X must be an array or a data frame: "
MOST_UNNAMED = 30  # features without names: more are hardly a table
QUERIES_AT_ONCE = 4096  # of the kept activations, so that copies of them stay small


def read(classifier: EpistemicClassifier, source: Plan | Model, X: Any, y: Any = None) -> Samples:
    """The samples of what the user passed, as batches for the model.

    source: the plan of a fitted classifier; its model while it is being fitted, which learns the
    features.
    """
    model, layers = (source, ()) if isinstance(source, Model) else (source.model, source.layers)
    by_columns = model.knows_columns and model is not classifier.model

    trained = () if source is model else _inputs_of(source)

    def prepare(inputs: Any) -> Any:
        prepared = model.prepare(inputs)
        table = prepared if isinstance(inputs, Mapping) else inputs
        known = hasattr(classifier, "n_features_in_")
        if (known or source is model) and (by_columns or hasattr(table, "columns")):
            try:
                chosen = check_features(classifier, model, table, layers if known else None)
            except InputError as error:
                raise _explained(error, model, trained, prepared) from error
            prepared = prepared if chosen is None else prepared[chosen]
        for inputs_before in trained:
            certain, probable = find_changed_columns(inputs_before, prepared)
            if certain:
                raise InputError("; ".join(certain))
            if probable:
                warn("; ".join(probable))
        return prepared

    takes_pairs = isinstance(model, PrecomputedModel)
    return as_samples(X, y, prepare, classifier.batch_size, takes_pairs=takes_pairs)


def name_labels(labels: Labels, classes: Any) -> Labels:
    """The labels of samples, of shape (n,); positions as the classes that the user gave."""
    return labels if classes is None else name_positions(labels, as_vector(classes, "classes"))


def _inputs_of(plan: Any) -> tuple[Any, ...]:
    """The training inputs that a plan keeps, if it keeps any."""
    return (plan.probe.inputs,) if isinstance(plan.probe, Probe) else ()


def _explained(error: InputError, model: Model, trained: tuple[Any, ...], given: Any) -> InputError:
    """The error, after what tells these samples from training inputs."""
    prepared = (model.prepare(known) for known in trained)  # a bundle holds them as they came
    told = [each for known in prepared for each in find_differences(known, given)]
    return type(error)(f"{'; '.join(told)} ({error})") if told else error


def check_features(
    classifier: EpistemicClassifier, model: Any, X: Any, layers: tuple[str, ...] | None
) -> list[str] | None:
    """Record the number and names of the features in a classifier, or compare with those.

    layers: those in use; None to record. Returns the columns to select, None for all as they are.
    """
    before = getattr(classifier, "feature_names_in_", None)
    is_array = isinstance(X, np.ndarray)
    table = X if is_array else as_pandas(X)
    if layers is not None:  # scikit-learn takes ten times as long to see that nothing changed
        if before is None:
            is_same = is_array and X.shape[1:] == (classifier.n_features_in_,)
        else:
            is_same = hasattr(table, "columns") and list(table.columns) == before.tolist()
        if is_same:
            return None
    columns = list(table.columns) if hasattr(table, "columns") else []
    if layers is None and (twice := find_twice(columns)):
        raise InputError(f"X has the column {shown(twice)} more than once: rename one")
    if layers is not None and before is not None and all(isinstance(c, str) for c in columns):
        remedy = "pass X[ec.feature_names_in_]"
        told = columns and compare_columns(columns, before.tolist(), remedy)
        matches = getattr(model, "matches", None)  # of a bundle's own model
        if told and _reads_by_name(model):
            if set(before).issubset(columns) and find_twice(columns) is None:
                return before.tolist()  # type: ignore[no-any-return]
            told = told if {"input", "table"}.intersection(layers) else ""
        elif told and matches is not None and matches(table):
            told = ""
        if told:
            raise InputError(told)
        if columns:
            return None
    try:
        validate_data(classifier, table, reset=layers is None, skip_check_array=True)
    except Exception as error:  # X may be any object, and fail in any way
        is_width = layers is not None and "features" in str(error)
        raise InputError(f"{'' if is_width else NO_TABLE}{error}") from error
    return None


def _reads_by_name(model: Any) -> bool:
    """Whether a model itself takes its columns by name, wherever they are, and nothing else."""
    steps, _ = unwrap(getattr(model, "estimator", None))
    first: Any = steps[0][1] if steps else None
    columns = [part[2] for part in getattr(first, "transformers", ())]
    named = all(isinstance(name, str) for each in columns for name in np.atleast_1d(each).tolist())
    # Known by its name: importing it takes long.
    return has_base(first, "ColumnTransformer", "sklearn") and first.remainder == "drop" and named


def observe(
    plan: Plan,
    samples: Samples,
    layers: Sequence[str],
    *,
    progress: bool,
    measuring: bool = False,
    scores: bool = True,
    views: Collection[str] = (),
) -> Iterator[Observation]:
    """What the model says about one batch after another, and about some kinds of views of it.
    scores: whether to keep them.

    A model on its own device computes the next batch during the search for this one; on the same
    cores the two would only take turns.
    """
    model, n_scored = plan.model, plan.n_scored

    def ask(batch: Any) -> Observation:
        try:
            observation = model.observe(batch, layers)
            if isinstance(plan.probe, Probe):
                for layer, values in observation.activations.items():
                    check_width(layer, values, plan.probe.observed.activations[layer].shape[1])
        except InputError as error:
            raise _explained(error, model, _inputs_of(plan), batch) from error
        if (n_columns := observation.scores.shape[1]) != n_scored:
            raise InputError(
                f"the scores must have a column for each of the {n_scored} classes; got {n_columns}"
            )
        if views:
            return replace(observation, views=ask_views(model, batch, views))
        return observation if scores else without_scores(observation)

    batches: Iterable[Any] = samples.read(measuring=measuring)
    if samples.n_batches == 1:
        return map(ask, batches)
    batches = track(batches, samples.n_batches, "Gathering evidence", enabled=progress)
    return map_ahead(ask, batches) if model.is_elsewhere else map(ask, batches)


def answer(classifier: EpistemicClassifier, X: Any, *, scores: bool) -> tuple[Plan, Observation]:
    """The model's own answers, one for every sample, and the plan that they are by."""
    plan = classifier.plan_
    samples = read(classifier, plan, X)
    parts = observe(plan, samples, (), progress=False, scores=scores)
    observation = join_whole(parts, samples.n_samples)
    if (absent := observation.belief == NO_BELIEF).any():
        raise InputError(
            f"the model gives no answer for row {int(absent.argmax())}, because of a NaN or inf "
            f"value (rows affected: {int(absent.sum())}). Remove or fix these rows, or use assess, "
            "which says IDK for them"
        )
    return plan, observation


def search_all(
    observations: Iterable[Observation],
    layers: Iterable[str],
    search: Callable[[str, Observation], About],
    n_samples: int | None,
    *,
    keeps: bool = True,
) -> tuple[Observation, dict[str, About]]:
    """What a model says about all samples, and what a search in each layer finds about them.

    keeps: whether the activations stay in the observation. What is found about invalid samples is
    discarded.
    """
    found: dict[str, list[About]] = {}

    def searched() -> Iterator[Observation]:
        for seen in observations:
            for layer in layers:
                try:
                    about = discard_evidence(search(layer, seen), seen.invalid)
                except InputError as error:  # an index does not know its layer
                    raise InputError(f"layer {layer!r}: {error}") from error
                found.setdefault(layer, []).append(about)
            yield seen if keeps else replace(seen, activations={})

    whole, joined = join_whole(searched(), n_samples if keeps else None), {}
    for layer, parts in found.items():
        joined[layer] = parts[0] if len(parts) == 1 else stack_evidence(parts)
    return whole, joined


def find(
    plan: Plan, samples: Samples, k: int, now: bool, progress: bool
) -> tuple[Observation, Mapping[str, Evidence], dict[str, Decision] | None, Floats | None]:
    """What assessing by the plan's rules needs: what the model says, evidence, decisions, and the
    confidence over views, of shape (n,), if levels go by that.

    Where decisions are faster they are found now, and evidence on request; else there are none, and
    the activations are not kept if they are large. Decisions about invalid samples mean nothing.
    k: how many neighbor distances to gather at least, and then at once. now: whether to gather the
    evidence at once in any case.
    """
    indexes, rules, (n_neighbors, n_held, per_class) = plan.searched, plan.rules or {}, plan.need
    now, n = now or k > 0, samples.n_expected
    k, listed = max(k, n_held), max(k, n_neighbors)
    levels, confidence = plan.levels, list[Floats]()
    views = () if levels is None else levels.views
    asked = observe(plan, samples, tuple(rules), progress=progress, measuring=True, views=views)

    def hear(seen: Observation) -> Observation:
        """The observation without its views."""
        assert levels is not None
        confidence.append(Heard.of(seen, levels.from_probabilities).confidence(views))
        return replace(seen, views={})

    observations, keeps = map(hear, asked) if views else asked, False
    if n is not None:  # else nothing is kept to gather evidence from later
        first = next(observations)
        held = 4 * sum(map(np.size, first.activations.values()))
        keeps = held * n <= BYTES_OF_ACTIVATIONS_KEPT * len(first.belief)
        observations = chain((first,), observations)
    gathers = now or not keeps
    if not gathers and not all(map(LayerIndex.decides, indexes.values(), rules.values())):
        # Supports need the distances anyway, so keep these if they fit into memory.
        of_a_sample = 16 * len(rules) * per_class * len(plan.classes)
        gathers = of_a_sample * (n or 0) <= BYTES_OF_ACTIVATIONS_KEPT

    def gather(layer: str, seen: Observation) -> Evidence:
        found = indexes[layer].gather(seen.activations[layer], k, per_class)
        # Few training samples may be left.
        return found if k == listed else pad_evidence(found, found.n_classes, listed)

    def decide(layer: str, seen: Observation) -> Decision:
        return indexes[layer].decide(seen.activations[layer], rules[layer], seen.belief)

    if gathers:
        seen, evidence = search_all(observations, rules, gather, samples.n_samples, keeps=keeps)
        return seen, evidence, None, np.concatenate(confidence) if views else None
    observation, decisions = search_all(observations, rules, decide, samples.n_samples)

    def gather_later(layer: str, rows: Ints) -> Evidence:
        starts = range(0, len(rows), QUERIES_AT_ONCE) or (0,)
        parts = (observation[rows[at : at + QUERIES_AT_ONCE]] for at in starts)
        return search_all(parts, (layer,), gather, None, keeps=False)[1][layer]

    later = Later(tuple(rules), gather_later, np.arange(len(observation.belief)))
    return observation, later, decisions, np.concatenate(confidence) if views else None


def measure(classifier: EpistemicClassifier, plan: Plan, seen: Observation) -> Measured:
    """What the layers measured, to explain distances; of features that say something to a person.

    Those are what enters the model, by their names or as a few numbers, and what steps of a
    pipeline name; pixels and hidden units are not.
    """
    given = getattr(classifier, "feature_names_in_", None)

    def find_names(layer: str) -> Sequence[str] | None:
        names = plan.model.feature_names(layer)
        if names is None and layer in ("input", "table"):
            n = seen.activations[layer].shape[1] // (2 if layer == "table" else 1)
            few = [f"[{j}]" for j in range(n)] if n <= MOST_UNNAMED or layer == "table" else None
            return few if given is None else [str(each) for each in given]
        return names

    places = np.arange(len(seen.belief))
    return Measured(seen.activations, plan.indexes, find_names, plan.model, places)


def check_valid(
    invalid: Bools,
    what: str,
    positions: Ints | None = None,
    layers: Iterable[str] = (),
    model: Any = None,
) -> None:
    """Refuse invalid samples; the error names the first one by its row in the user's X.

    positions: those rows, of shape (n,), if the samples are a part of X. layers: those in use, of
    which model.
    """
    if invalid.any():
        first = int(invalid.argmax())
        remedy = "remove or fix these rows"
        if "input" in layers:
            remedy = (
                "the layer 'input' holds the values as given: remove or fix these rows, or choose "
                "layers after a step that fills gaps, or 'output' alone"
            )
        if "input" in layers and getattr(model, "takes_gaps", False):
            remedy = (
                "the model takes gaps, but the layer 'input' does not: pass layers=['table'], with "
                "'leaves' for trees"
            )
        raise InputError(
            f"{what} data must be finite: row {first if positions is None else positions[first]} "
            f"has a NaN or inf value or activation (rows affected: {int(invalid.sum())}); {remedy}"
        )
