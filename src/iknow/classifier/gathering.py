"""Gathering: a model and the indexes of its layers, put to work on batches of inputs."""

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
from iknow.explain.on_request import EvidenceOnRequest
from iknow.models.model import Model, Observation, join_observations, join_whole
from iknow.search.index import Index

Item = TypeVar("Item")

BYTES_OF_ACTIVATIONS_KEPT = 1 << 30
"""Most memory for activations that are kept to gather evidence later, in all layers together."""

QUERIES_AT_ONCE = 4096
"""How many kept activations are searched for in one go, so that copies of them stay small."""


@dataclass(frozen=True, eq=False)
class Findings:
    """What a model and the indexes of its layers say about n samples.

    observation: of all samples, without activations. evidence: by layer, there or on request.
    supports: by layer, masks of shape (n, n_classes); None where they were not asked for and follow
    from the evidence. Of samples that are invalid they say nothing that counts. activations: by
    layer, of shape (n, n_features), for certificates; None where they were not kept.
    """

    observation: Observation
    evidence: Mapping[str, Evidence]
    supports: Mapping[str, Bools] | None
    activations: Mapping[str, Floats32] | None = None


@dataclass(frozen=True, eq=False)
class Validation:
    """What tuning needs to know of n samples.

    belief: class codes of shape (n,). invalid: mask of shape (n,). evidence: by layer.
    """

    belief: Ints
    invalid: Bools
    evidence: Mapping[str, Evidence] | Mapping[str, Contrast]


def observe_batches(
    model: Model, indexes: Mapping[str, Index], batches: Iterable[Any]
) -> Iterator[Observation]:
    """Ask the model about batch after batch, in the layers that have an index.

    A model on a device of its own sees the next batch while this one is searched for. On the same
    cores the two would only take turns, and search has use for all cores.
    """

    def observe() -> Iterator[Observation]:
        for batch in batches:
            observation = model.observe(batch, tuple(indexes))
            for index in indexes.values():
                check_columns(observation.scores.shape[1], index.n_classes)
            yield observation

    return one_ahead(observe()) if model.is_elsewhere else observe()


def one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items in the same order, each made in another thread while the last one is used."""
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

    The evidence of each layer has k neighbour distances. There is none about invalid inputs.
    keep_of: the number of samples, to keep their activations where memory affords it.
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

    whole: keep the distances to every class. Neither they nor scores are kept otherwise: of both
    there is one for each class, which for many classes would be most of all memory.
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
    """Find which classes are within reach in each layer; evidence is gathered on request.

    For that the activations are kept, 4 bytes for each feature of each sample. Where they would
    take more than `BYTES_OF_ACTIVATIONS_KEPT`, the evidence is gathered at once instead.
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
    """Whether there is memory for the activations of so many samples like those of a batch."""
    n_features = sum(values.shape[1] for values in first.activations.values())
    return bool(4 * n_features * n_samples <= BYTES_OF_ACTIVATIONS_KEPT)


def _gather_later(
    observation: Observation, indexes: Mapping[str, Index], k: int
) -> EvidenceOnRequest:
    """The evidence about an observation with its activations, gathered when it is asked for."""

    def gather(layer: str, samples: slice) -> Evidence:
        queries = observation.activations[layer][samples]
        with _errors_that_name(layer):
            parts = [
                indexes[layer].gather(queries[start : start + QUERIES_AT_ONCE], k)
                for start in range(0, max(1, len(queries)), QUERIES_AT_ONCE)
            ]
        return discard_evidence(stack_evidence(parts), observation.invalid[samples])

    return EvidenceOnRequest(indexes, gather)


@contextmanager
def _errors_that_name(layer: str) -> Iterator[None]:
    """An index does not know its layer; whoever reads its errors wants to."""
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
    """Every sample must be valid; the first that is not is named by its row in the user's X.

    positions: those rows, of shape (n,), where the samples are a part of X. layers: where
    activations were looked at, to say what else could be done.
    """
    if invalid.any():
        first = int(np.flatnonzero(invalid)[0])
        row = first if positions is None else int(positions[first])
        raise InputError(
            f"{what} data must be finite: row {row} has a value, or causes an activation, that is "
            f"NaN or inf ({int(invalid.sum())} such rows): remove or repair them"
            + (INPUT_REMEDY if "input" in layers else "")
        )


INPUT_REMEDY = (
    ". The layer 'input' holds the values as they were given: if the model copes with NaN, choose "
    "layers behind the step that fills it in, such as an imputer in a pipeline, or 'output' alone"
)


def check_answered(belief: Ints) -> None:
    """Every sample must have a belief, of shape (n,); the first without is named by its row."""
    absent = belief == NO_BELIEF
    if absent.any():
        raise InputError(
            f"the model gives no answer about row {int(absent.argmax())} ({int(absent.sum())} such "
            "rows): it has, or causes, a value that is NaN or inf. Remove or repair these rows, or "
            "use assess, which says IDK about them"
        )
