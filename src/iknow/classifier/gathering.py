"""Gathering: run a model and the indexes of its layers on batches of inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from iknow.core.arrays import Bools, Floats32, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.contrast import Contrast, find_contrast, stack_contrasts
from iknow.core.evidence import Evidence, discard_evidence, stack_evidence
from iknow.core.neighborhood import Neighborhood
from iknow.errors import InputError
from iknow.explain.on_request import OnRequest
from iknow.models.model import Model, Observation, join_observations, join_whole
from iknow.search.index import Index

Item = TypeVar("Item")

BYTES_OF_ACTIVATIONS_KEPT = 1 << 30
"""Most memory for activations kept to gather evidence later, over all layers."""

QUERIES_AT_ONCE = 4096
"""How many kept activations to search for at a time, so that copies of them stay small."""


@dataclass(frozen=True, eq=False)
class Findings:
    """What a model and the indexes of its layers say about n samples.

    observation: of all samples, without activations. evidence: by layer, present or on request.
    supports: by layer, masks of shape (n, n_classes), meaningless for invalid samples; None if they
    follow from the evidence. activations: by layer, of shape (n, n_features), for certificates;
    None if they were not kept.
    """

    observation: Observation
    evidence: Mapping[str, Evidence]
    supports: Mapping[str, Bools] | None
    activations: Mapping[str, Floats32] | None = None


@dataclass(frozen=True, eq=False)
class Validation:
    """What tuning needs to know about n samples.

    belief: class codes of shape (n,). invalid: mask of shape (n,). evidence: by layer.
    """

    belief: Ints
    invalid: Bools
    evidence: Mapping[str, Evidence] | Mapping[str, Contrast]


def observe_batches(
    model: Model, indexes: Mapping[str, Index], batches: Iterable[Any]
) -> Iterator[Observation]:
    """Run the model on one batch after another, in the layers that have an index.

    A model on its own device computes the next batch during the search for this one. On the same
    cores the two would only take turns, and search can use all cores.
    """

    def observe() -> Iterator[Observation]:
        for batch in batches:
            observation = model.observe(batch, tuple(indexes))
            for index in indexes.values():
                check_columns(observation.scores.shape[1], index.n_classes)
            yield observation

    return one_ahead(observe()) if model.is_elsewhere else observe()


def one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items in order, each made in another thread while the caller uses the last."""
    end = object()
    with ThreadPoolExecutor(1) as pool:
        coming: Future[Any] = pool.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, items, end)
            yield item


def gather_evidence(
    observations: Iterable[Observation],
    indexes: Mapping[str, Index],
    k: int,
    keep_of: int | None = None,
) -> Findings:
    """Search the layers, observation by observation.

    The evidence of each layer has k neighbor distances, and none for invalid inputs. keep_of: the
    number of samples, to keep their activations if memory allows.
    """
    evidence: dict[str, list[Evidence]] = {layer: [] for layer in indexes}

    def searched() -> Iterator[Observation]:
        for observation in observations:
            for layer, index in indexes.items():
                with _errors_that_name(layer):
                    found = index.gather(observation.activations[layer], k)
                evidence[layer].append(discard_evidence(found, observation.invalid))
            yield observation

    if keep_of is not None:
        first, observations = _look_ahead(observations)
    activations = None
    if keep_of is not None and _can_be_kept(first, keep_of):
        observation = join_whole(searched(), keep_of)
        activations = observation.activations
    else:
        observation = join_observations([replace(o, activations={}) for o in searched()])
    return Findings(
        observation=replace(observation, activations={}),
        evidence={layer: stack_evidence(parts) for layer, parts in evidence.items()},
        supports=None,
        activations=activations,
    )


def gather_validation(
    observations: Iterable[Observation], indexes: Mapping[str, Index], k: int, *, whole: bool
) -> Validation:
    """Search the layers, observation by observation, and keep what tuning needs.

    whole: keep the distances to every class. Otherwise neither these nor the scores are kept: with
    many classes they would take most of the memory.
    """
    beliefs, invalid = [], []
    parts: dict[str, list[Evidence]] = {layer: [] for layer in indexes}
    contrasts: dict[str, list[Contrast]] = {layer: [] for layer in indexes}
    for observation in observations:
        for layer, index in indexes.items():
            with _errors_that_name(layer):
                found = index.gather(observation.activations[layer], k)
            if whole:
                parts[layer].append(found)
            else:
                contrasts[layer].append(find_contrast(found, observation.belief))
        beliefs.append(observation.belief)
        invalid.append(observation.invalid)
    evidence: Mapping[str, Evidence] | Mapping[str, Contrast]
    if whole:
        evidence = {layer: stack_evidence(found) for layer, found in parts.items()}
    else:
        evidence = {layer: stack_contrasts(found) for layer, found in contrasts.items()}
    return Validation(np.concatenate(beliefs), np.concatenate(invalid), evidence)


def find_supports(
    observations: Iterable[Observation],
    indexes: Mapping[str, Index],
    neighborhoods: Mapping[str, Neighborhood],
    n_samples: int,
) -> Findings:
    """Find which classes are within reach in each layer; gather evidence only on request.

    This keeps the activations, 4 bytes per feature and sample. If they would take more than
    `BYTES_OF_ACTIVATIONS_KEPT`, it gathers the evidence now instead.
    """
    k = max(neighborhood.n_neighbors for neighborhood in neighborhoods.values())
    first, observations = _look_ahead(observations)
    if not _can_be_kept(first, n_samples):
        return gather_evidence(observations, indexes, k)
    supports: dict[str, list[Bools]] = {layer: [] for layer in indexes}

    def searched() -> Iterator[Observation]:
        for observation in observations:
            for layer, index in indexes.items():
                with _errors_that_name(layer):
                    queries = observation.activations[layer]
                    supports[layer].append(index.find_support(queries, neighborhoods[layer]))
            yield observation

    whole = join_whole(searched(), n_samples)
    return Findings(
        observation=replace(whole, activations={}),
        evidence=_gather_later(whole, indexes, k),
        supports={layer: np.concatenate(parts) for layer, parts in supports.items()},
        activations=whole.activations,
    )


def _look_ahead(observations: Iterable[Observation]) -> tuple[Observation, Iterable[Observation]]:
    """The first observation, and all of them."""
    remaining = iter(observations)
    first = next(remaining)
    return first, chain([first], remaining)


def _can_be_kept(first: Observation, n_samples: int) -> bool:
    """Whether the activations of n_samples, if they are like the first ones, fit in memory."""
    n_features = sum(values.shape[1] for values in first.activations.values())
    return bool(4 * n_features * n_samples <= BYTES_OF_ACTIVATIONS_KEPT)


def _gather_later(
    observation: Observation, indexes: Mapping[str, Index], k: int
) -> OnRequest[Evidence]:
    """The evidence about an observation with its activations, gathered when it is asked for."""

    def gather(layer: str, samples: Ints) -> Evidence:
        queries = observation.activations[layer]
        with _errors_that_name(layer):
            parts = [
                indexes[layer].gather(queries[samples[start : start + QUERIES_AT_ONCE]], k)
                for start in range(0, max(1, len(samples)), QUERIES_AT_ONCE)
            ]
        return discard_evidence(stack_evidence(parts), observation.invalid[samples])

    return OnRequest(indexes, gather, np.arange(len(observation.invalid)))


@contextmanager
def _errors_that_name(layer: str) -> Iterator[None]:
    """Add the layer to errors of an index, which does not know its layer."""
    try:
        yield
    except InputError as error:
        raise InputError(f"layer {layer!r}: {error}") from error


def check_columns(n_columns: int, n_classes: int) -> None:
    """The model must score every class."""
    if n_columns != n_classes:
        raise InputError(
            f"the scores must have a column for each of the {n_classes} classes; "
            f"got {n_columns} columns"
        )


def check_valid(
    invalid: Bools, what: str, positions: Ints | None = None, layers: Iterable[str] = ()
) -> None:
    """Refuse invalid samples; the error names the first one by its row in the user's X.

    positions: those rows, of shape (n,), if the samples are a part of X. layers: the layers in use,
    to suggest a remedy.
    """
    if invalid.any():
        first = int(np.flatnonzero(invalid)[0])
        row = first if positions is None else int(positions[first])
        raise InputError(
            f"{what} data must be finite: row {row} has a NaN or inf value or activation "
            f"(rows affected: {int(invalid.sum())}); remove or fix these rows"
            + (INPUT_REMEDY if "input" in layers else "")
        )


INPUT_REMEDY = (
    ". The layer 'input' holds the values as given: if the model accepts NaN, choose layers after "
    "the step that fills it in, such as an imputer in a pipeline, or 'output' alone"
)


def check_answered(belief: Ints) -> None:
    """Refuse samples without a belief; the error names the first one by its row."""
    absent = belief == NO_BELIEF
    if absent.any():
        raise InputError(
            f"the model gives no answer for row {int(absent.argmax())}, because of a NaN or inf "
            f"value (rows affected: {int(absent.sum())}). Remove or fix these rows, or use assess, "
            "which says IDK for them"
        )
