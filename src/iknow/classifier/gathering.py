"""Gathering: run a model and the indexes of its layers on batches of inputs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from iknow.core.arrays import Bools, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.decision import Decision
from iknow.core.evidence import Evidence, discard_evidence, stack_evidence
from iknow.core.rule import Rule
from iknow.errors import InputError
from iknow.explain.later import Later
from iknow.models.model import Observation, join_whole
from iknow.models.samples import Samples
from iknow.search.index import Index
from iknow.search.layer import LayerIndex

Item = TypeVar("Item")

BYTES_OF_ACTIVATIONS_KEPT = 1 << 30  # over all layers, to gather evidence later
QUERIES_AT_ONCE = 4096  # of the kept activations, so that copies of them stay small


@dataclass(frozen=True, eq=False)
class Findings:
    """What a model and the indexes of its layers say about n samples.

    observation: of all samples; without activations if these are not kept. evidence: by layer, now
    or on request. supports: by layer, masks of shape (n, n_classes), meaningless for invalid
    samples; None if they follow from the evidence. decisions: by layer, if these were found, and
    the supports with them.
    """

    observation: Observation
    evidence: Mapping[str, Evidence]
    supports: Mapping[str, Bools] | None = None
    decisions: Mapping[str, Decision] | None = None


def map_ahead(work: Callable[[Any], Item], items: Iterable[Any]) -> Iterator[Item]:
    """The results of work in order, each made in another thread while the caller uses the last.

    The items are made in the caller's thread: a loader forks its workers, which must not happen
    beside another thread that compiles or imports.
    """
    with ThreadPoolExecutor(1) as pool:
        coming: Future[Item] | None = None
        for item in items:
            following = pool.submit(work, item)
            if coming is not None:
                yield coming.result()
            coming = following
        if coming is not None:
            yield coming.result()


def one_ahead(items: Iterator[Item]) -> Generator[Item]:
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
    samples: Samples | None = None,
    per_class: int = 1,
) -> Findings:
    """Search the layers, with k neighbor distances and the `per_class` nearest of each class;
    discard the evidence of invalid inputs.

    samples: what is observed, to keep the activations if memory allows.
    """
    evidence: dict[str, list[Evidence]] = {layer: [] for layer in indexes}

    def searched() -> Iterator[Observation]:
        for observation in observations:
            for layer, index in indexes.items():
                with errors_that_name(layer):
                    found = index.gather(observation.activations[layer], k, per_class)
                evidence[layer].append(discard_evidence(found, observation.invalid))
            yield observation

    kept = False
    if samples is not None:
        kept, observations = _can_be_kept(observations, samples)
    if samples is not None and kept:
        whole = join_whole(searched(), samples.n_samples)
    else:
        whole = join_whole([replace(o, activations={}) for o in searched()])
    return Findings(whole, {layer: stack_evidence(parts) for layer, parts in evidence.items()})


def find_decisions(
    observations: Iterable[Observation],
    indexes: Mapping[str, LayerIndex],
    neighborhoods: Mapping[str, Rule],
    samples: Samples,
) -> Findings:
    """Find what each layer decides, batch by batch, and keep the activations.

    Evidence is gathered from these on request, or now if they are too large to keep.
    """
    k = max(rule.n_neighbors for rule in neighborhoods.values())
    per_class = max(rule.per_class for rule in neighborhoods.values())
    kept, observations = _can_be_kept(observations, samples)
    if not kept:
        return gather_evidence(observations, indexes, k, per_class=per_class)
    found: dict[str, list[Decision]] = {layer: [] for layer in indexes}

    def searched() -> Iterator[Observation]:
        for observation in observations:
            for layer, rule in neighborhoods.items():
                with errors_that_name(layer):
                    queries = observation.activations[layer]
                    decision = indexes[layer].decide(queries, rule, observation.belief)
                found[layer].append(discard_evidence(decision, observation.invalid))
            yield observation

    whole = join_whole(searched(), samples.n_samples)
    later = _gather_later(whole, indexes, k, per_class)
    decisions = {
        layer: parts[0] if len(parts) == 1 else stack_evidence(parts)
        for layer, parts in found.items()
    }
    supports = {layer: decision.support for layer, decision in decisions.items()}
    return Findings(whole, later, supports, decisions)


def _can_be_kept(
    observations: Iterable[Observation], samples: Samples
) -> tuple[bool, Iterable[Observation]]:
    """Whether the activations, judged by the first observation, may be kept; all observations."""
    if samples.n_expected is None:
        return False, observations
    remaining = iter(observations)
    first = next(remaining)
    n_features = sum(values.shape[1] for values in first.activations.values())
    fits = bool(4 * n_features * samples.n_expected <= BYTES_OF_ACTIVATIONS_KEPT)
    return fits, chain([first], remaining)


def _gather_later(
    observation: Observation, indexes: Mapping[str, Index], k: int, per_class: int
) -> Later[Evidence]:
    """The evidence about an observation with its activations, gathered on request."""

    def gather(layer: str, samples: Ints) -> Evidence:
        queries = observation.activations[layer]
        with errors_that_name(layer):
            parts = [
                indexes[layer].gather(
                    queries[samples[start : start + QUERIES_AT_ONCE]], k, per_class
                )
                for start in range(0, max(1, len(samples)), QUERIES_AT_ONCE)
            ]
        return discard_evidence(stack_evidence(parts), observation.invalid[samples])

    return Later(indexes, gather, np.arange(len(observation.invalid)))


@contextmanager
def errors_that_name(layer: str) -> Iterator[None]:
    """Add the layer to errors of an index, which does not know its layer."""
    try:
        yield
    except InputError as error:
        raise InputError(f"layer {layer!r}: {error}") from error


def check_columns(n_columns: int, n_classes: int) -> None:
    """The model must score every class, but for those that came later."""
    if n_columns != n_classes:
        raise InputError(
            f"the scores must have a column for each of the {n_classes} classes; got {n_columns}"
        )


def check_valid(
    invalid: Bools, what: str, positions: Ints | None = None, layers: Iterable[str] = ()
) -> None:
    """Refuse invalid samples; the error names the first one by its row in the user's X.

    positions: those rows, of shape (n,), if the samples are a part of X. layers: those in use.
    """
    if invalid.any():
        first = int(invalid.argmax())
        remedy = (
            ". The layer 'input' holds the values as given: if the model accepts NaN, choose layers"
            " after the step that fills it in, such as an imputer in a pipeline, or 'output' alone;"
            " for trees, layers=['table', 'leaves']"
        )
        raise InputError(
            f"{what} data must be finite: row {first if positions is None else positions[first]} "
            f"has a NaN or inf value or activation (rows affected: {int(invalid.sum())}); remove "
            f"or fix these rows{remedy if 'input' in layers else ''}"
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
