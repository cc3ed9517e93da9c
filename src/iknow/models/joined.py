"""Joining: what a model says about successive batches, as one observation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from iknow.core.arrays import Floats32, Ints
from iknow.errors import InputError, LayerError
from iknow.models.inputs import count_samples, cut_batches
from iknow.models.model import Model, Observation
from iknow.pages import SHARE, free_memory

ALWAYS_FITS = 1 << 24  # bytes


def observe_inputs(
    model: Model, inputs: Any, layers: Sequence[str], batch_size: int | None = None
) -> Observation:
    """What a model says about prepared inputs, in batches of a size."""
    batches = cut_batches(inputs, batch_size)
    return join_whole((model.observe(batch, layers) for batch in batches), count_samples(inputs))


def observe_all(
    model: Model, batches: Iterable[Any], n_samples: int | None, layers: Sequence[str]
) -> tuple[Observation, int]:
    """The observations of all batches as one, and the number of score columns.

    The result has scores of shape (n, 0): with many classes they would take most memory.
    """
    widths: set[int] = set()

    def parts() -> Iterator[Observation]:
        for batch in batches:
            part = model.observe(batch, layers)
            widths.add(part.scores.shape[1])
            yield replace(part, scores=np.empty((len(part), 0)))

    return join_whole(parts(), n_samples), only_width(widths)


def only_width(widths: set[int]) -> int:
    """The number of score columns, if it is the same for all samples."""
    if len(widths) != 1:
        got = f"{min(widths)} columns for some samples and {max(widths)} for others"
        raise InputError(f"the scores must have a column for each class; got {got}")
    return widths.pop()


def join_whole(parts: Iterable[Observation], n_samples: int | None = None) -> Observation:
    """Successive observations as one, activations included; one layer at a time is held twice.

    n_samples: of all, to see at once whether memory suffices; None if nobody knows.
    """
    rest: list[Observation] = []
    layers: dict[str, list[Floats32]] = {}
    n = 0
    for part in parts:
        for layer, values in part.activations.items():
            layers.setdefault(layer, []).append(values)
            check_width(layer, values, layers[layer][0].shape[1])
        n += len(part)
        widths = {layer: arrays[0].shape[1] for layer, arrays in layers.items()}
        if n_samples is None:
            _check_memory(widths, n, held=True)
        elif not rest:
            _check_memory(widths, n_samples)
        # A copy, because a model may write its next scores into the same array.
        rest.append(replace(part, scores=part.scores.copy(), activations={}))
    if n_samples not in (None, n):
        raise InputError(f"expected observations of {n_samples} samples; got {n}")
    unseen = [part.unseen for part in rest if part.unseen is not None]
    return Observation(
        _stack([part.scores for part in rest], np.float64),
        _stack([part.belief for part in rest], np.int64),
        {layer: _stack(layers.pop(layer), np.float32) for layer in list(layers)},
        _stack([part.invalid for part in rest], np.bool_),
        _stack(unseen, np.float64) if len(unseen) == len(rest) else None,
    )


def _stack(arrays: list[Any], dtype: type[np.generic]) -> Any:
    """Arrays one after the other, in C order."""
    n = sum(map(len, arrays))
    return np.concatenate(arrays, out=np.empty((n, *arrays[0].shape[1:]), dtype))


def put(whole: Observation, rows: slice | Ints, part: Observation) -> None:
    """Copy an observation of some samples to these rows of another."""
    whole.scores[rows], whole.belief[rows] = part.scores, part.belief
    whole.invalid[rows] = part.invalid
    if whole.unseen is not None:
        whole.unseen[rows] = np.nan if part.unseen is None else part.unseen
    for layer, values in part.activations.items():
        check_width(layer, values, whole.activations[layer].shape[1])
        whole.activations[layer][rows] = values


def check_width(layer: str, values: Floats32, width: int) -> None:
    if values.shape[1] != width:
        raise LayerError(
            f"layer {layer!r} gives {values.shape[1]} features for some samples and "
            f"{width} for others: choose a layer of fixed size"
        )


def _check_memory(widths: Mapping[str, int], n: int, *, held: bool = False) -> None:
    """Refuse activations that take more than a share of the memory that is free, or that they hold
    already: search copies them.
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
