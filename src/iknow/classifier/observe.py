"""Observing: what a model, and the indexes of its layers, say about samples, batch by batch.

One loop serves fitting, tuning and assessing. It asks the model about a batch and searches each
layer for what is wanted: evidence, a decision by the layer's rule, or the contrast that tuning
needs. Evidence that an assertion does not need is gathered later, on request.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from iknow.classifier.plan import Plan
from iknow.core.arrays import Bools, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.decision import Decision
from iknow.core.evidence import Columns, Evidence, discard_evidence, stack_evidence
from iknow.core.rule import Rule
from iknow.errors import InputError
from iknow.explain.later import Later
from iknow.models.model import Observation, join_whole
from iknow.models.samples import Samples

Item = TypeVar("Item")
About = TypeVar("About", bound=Columns)

BYTES_OF_ACTIVATIONS_KEPT = 1 << 30  # over all layers, to gather evidence later
QUERIES_AT_ONCE = 4096  # of the kept activations, so that copies of them stay small


@dataclass(frozen=True, eq=False)
class Findings:
    """What a model and the indexes of its layers say about n samples.

    observation: of all samples; without activations if these are not kept. evidence: by layer, now
    or on request. decisions: by layer, if these were found; meaningless for invalid samples.
    """

    observation: Observation
    evidence: Mapping[str, Evidence]
    decisions: Mapping[str, Decision] | None = None


def observe(
    plan: Plan,
    samples: Samples,
    layers: Sequence[str],
    *,
    progress: bool,
    measuring: bool = False,
) -> Iterator[Observation]:
    """What the model says about one batch after another.

    A model on its own device computes the next batch during the search for this one; on the same
    cores the two would only take turns.
    """
    model, n_scored = plan.model, plan.n_scored

    def ask(batch: Any) -> Observation:
        observation = model.observe(batch, layers)
        check_columns(observation.scores.shape[1], n_scored)
        return observation

    batches, n = samples.read(measuring=measuring), samples.n_batches
    shown = track(batches, n, "Gathering evidence", enabled=progress)
    return map_ahead(ask, shown) if n != 1 and model.is_elsewhere else map(ask, shown)


def search_all(
    observations: Iterable[Observation],
    search: Mapping[str, Callable[[Observation], About]],
    n_samples: int | None,
    *,
    keeps: bool = True,
) -> tuple[Observation, dict[str, About]]:
    """What a model says about all samples, and what the search in each layer finds about them.

    keeps: whether the activations stay in the observation. What is found about invalid samples is
    discarded.
    """
    found: dict[str, list[About]] = {layer: [] for layer in search}

    def searched() -> Iterator[Observation]:
        for seen in observations:
            for layer, find in search.items():
                with errors_that_name(layer):
                    found[layer].append(discard_evidence(find(seen), seen.invalid))
            yield seen if keeps else replace(seen, activations={})

    whole = join_whole(searched(), n_samples if keeps else None)
    joined = {
        layer: parts[0] if len(parts) == 1 else stack_evidence(parts)
        for layer, parts in found.items()
    }
    return whole, joined


def find(
    plan: Plan, rules: Mapping[str, Rule], samples: Samples, k: int, now: bool, progress: bool
) -> Findings:
    """What assessing by some rules needs: decisions, if that is faster, or else evidence.

    k: how many neighbor distances to gather at least. now: whether to gather the evidence at once.
    """
    indexes = {layer: plan.indexes[layer] for layer in rules}
    k = max(k, *(rule.n_neighbors for rule in rules.values()))
    per_class = max(rule.per_class for rule in rules.values())
    n = samples.n_expected
    observations = observe(plan, samples, tuple(rules), progress=progress, measuring=True)
    keeps, first = False, []
    if n is not None:  # else nothing is kept to gather evidence from later
        first = [next(observations)]
        n_features = sum(values.shape[1] for values in first[0].activations.values())
        keeps = 4 * n_features * n <= BYTES_OF_ACTIVATIONS_KEPT
    whole = chain(first, observations)

    def gathers(layer: str) -> Callable[[Observation], Evidence]:
        return lambda seen: indexes[layer].gather(seen.activations[layer], k, per_class)

    def decides(layer: str) -> Callable[[Observation], Decision]:
        rule = rules[layer]
        return lambda seen: indexes[layer].decide(seen.activations[layer], rule, seen.belief)

    if now or not keeps or _keeps_evidence(plan, rules, n):
        search = {layer: gathers(layer) for layer in rules}
        return Findings(*search_all(whole, search, samples.n_samples, keeps=keeps))
    search_rules = {layer: decides(layer) for layer in rules}
    observation, decisions = search_all(whole, search_rules, samples.n_samples)

    def gather(layer: str, rows: Ints) -> Evidence:
        queries = observation.activations[layer]
        parts = [rows[at : at + QUERIES_AT_ONCE] for at in range(0, len(rows), QUERIES_AT_ONCE)]
        with errors_that_name(layer):
            found = [indexes[layer].gather(queries[part], k, per_class) for part in parts or [rows]]
        return discard_evidence(stack_evidence(found), observation.invalid[rows])

    later = Later(tuple(indexes), gather, np.arange(len(observation)))
    return Findings(observation, later, decisions)


def _keeps_evidence(plan: Plan, rules: Mapping[str, Rule], n: int | None) -> bool:
    """Whether supports need the distances anyway, and these fit into memory."""
    if n is None:
        return True
    if all(plan.indexes[layer].decides(rule) for layer, rule in rules.items()):
        return False
    held = sum(rule.per_class for rule in rules.values()) * len(plan.classes)
    return 16 * held * n <= BYTES_OF_ACTIVATIONS_KEPT


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


def track(
    items: Iterable[Item], total: int | None, description: str, *, enabled: bool
) -> Iterator[Item]:
    """Yield the items, showing how many are done; no bar for one item or without a terminal.

    total: how many there are; None if nobody knows, and the bar then only moves.
    """
    if not enabled or total in (0, 1) or not sys.stderr.isatty():
        yield from items
        return
    # Imported here because a service never shows a bar.
    from rich.console import Console
    from rich.progress import track as rich_track

    yield from rich_track(items, description, total, console=Console(stderr=True), transient=True)


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
