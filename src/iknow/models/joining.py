"""Joining: what a model says about successive batches, as one observation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from iknow.core.arrays import Floats32, Ints
from iknow.errors import InputError, LayerError
from iknow.models.model import Model, Observation
from iknow.pages import SHARE, free_memory

ALWAYS_FITS = 1 << 24  # bytes


def observe_all(
    model: Model, batches: Iterable[Any], n_samples: int | None, layers: Sequence[str]
) -> tuple[Observation, int]:
    """The observations of all batches as one, and the number of score columns.

    n_samples: None if nobody knows. The result has scores of shape (n, 0): with many classes they
    would take most memory.
    """
    widths: set[int] = set()

    def parts() -> Iterator[Observation]:
        for batch in batches:
            part = model.observe(batch, layers)
            widths.add(part.scores.shape[1])
            yield replace(part, scores=np.empty((len(part), 0)))

    whole = join_whole(parts(), n_samples)
    if len(widths) != 1:
        raise InputError(
            f"the scores must have a column for each class; got {min(widths)} columns for some "
            f"samples and {max(widths)} for others"
        )
    return whole, widths.pop()


def join_whole(parts: Iterable[Observation], n_samples: int | None) -> Observation:
    """Successive observations as one, activations included.

    n_samples: of all, to allocate each array once; None if nobody knows.
    """
    if n_samples is None:
        return _join_all(parts)
    whole: Observation | None = None
    start = 0
    for part in parts:
        if whole is None:
            whole = _allocate_like(part, n_samples)
        put(whole, slice(start, start + len(part)), part)
        start += len(part)
    if whole is None or start != n_samples:
        raise InputError(f"expected observations of {n_samples} samples; got {start}")
    return whole


def put(whole: Observation, rows: slice | Ints, part: Observation) -> None:
    """Copy an observation of some samples to these rows of another."""
    whole.scores[rows], whole.belief[rows] = part.scores, part.belief
    whole.invalid[rows] = part.invalid
    if whole.unseen is not None:
        whole.unseen[rows] = np.nan if part.unseen is None else part.unseen
    for layer, values in part.activations.items():
        _check_width(layer, values, whole.activations[layer])
        whole.activations[layer][rows] = values


def _join_all(parts: Iterable[Observation]) -> Observation:
    """Any number of observations as one; only one layer at a time is held twice."""
    rest: list[Observation] = []
    activations: dict[str, list[Floats32]] = {}
    n = 0
    for part in parts:
        for layer, values in part.activations.items():
            before = activations.setdefault(layer, [])
            _check_width(layer, values, before[0] if before else values)
            before.append(values)
        n += len(part)
        widths = {layer: before[0].shape[1] for layer, before in activations.items()}
        _check_memory(widths, n, held=True)
        rest.append(replace(part, activations={}))
    whole = {layer: np.concatenate(activations.pop(layer)) for layer in list(activations)}
    return replace(join_observations(rest), activations=whole)


def _check_width(layer: str, values: Floats32, before: Floats32) -> None:
    if values.shape[1] != before.shape[1]:
        raise LayerError(
            f"layer {layer!r} gives {values.shape[1]} features for some samples and "
            f"{before.shape[1]} for others: choose a layer of fixed size"
        )


def join_observations(parts: Sequence[Observation]) -> Observation:
    """Successive observations without activations as one."""
    rows = ((part.scores, part.belief, part.invalid) for part in parts)
    scores, belief, invalid = map(np.concatenate, zip(*rows, strict=True))
    unseen = [part.unseen for part in parts if part.unseen is not None]
    known = len(unseen) == len(parts)
    return Observation(scores, belief, {}, invalid, np.concatenate(unseen) if known else None)


def _allocate_like(part: Observation, n: int) -> Observation:
    widths = {layer: values.shape[1] for layer, values in part.activations.items()}
    _check_memory(widths, n)
    layers = {layer: np.empty((n, width), dtype=np.float32) for layer, width in widths.items()}
    scores, belief = np.empty((n, part.scores.shape[1])), np.empty(n, dtype=np.int64)
    unseen = None if part.unseen is None else np.empty(n)
    return Observation(scores, belief, layers, np.empty(n, dtype=bool), unseen)


def _check_memory(widths: Mapping[str, int], n: int, *, held: bool = False) -> None:
    """Refuse activations that take more than a share of the free memory: search copies them.

    held: whether they are in memory already, so that what is free is the rest.
    """
    needed = 4 * n * sum(widths.values())
    if needed <= ALWAYS_FITS:  # asking takes longer than all else about a single sample
        return
    free = free_memory()
    if free is None or needed <= SHARE * (free + held * needed):
        return
    layer = max(widths, key=lambda name: widths[name])
    raise LayerError(
        f"layer {layer!r} has {widths[layer]:,} features: for {n:,} samples they take "
        f"{4e-9 * n * widths[layer]:.1f} GB of memory, and {1e-9 * free:.1f} GB are free. Choose a "
        "smaller layer, or fewer samples. After a step that counts words, put TruncatedSVD(100) "
        "into the pipeline, or pass a function that does: EpistemicClassifier("
        "pipeline.predict_proba, embed=..., classes=pipeline.classes_)"
    )
