"""Gathering: a model and the indexes of its layers, put to work on batches of inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Ints
from iknow.core.evidence import Evidence, discard_evidence, stack_evidence
from iknow.errors import InputError
from iknow.models.model import Model, Observation, join_observations
from iknow.search.index import Index


def gather_evidence(
    model: Model, indexes: Mapping[str, Index], batches: Iterable[Any], k: int
) -> tuple[Observation, dict[str, Evidence]]:
    """Ask the model and search the layers, batch by batch; activations are not kept.

    Returns the observation of all batches, without activations, and the evidence of each layer with
    k neighbour distances. There is no evidence about inputs that are invalid.
    """
    observations: list[Observation] = []
    evidence: dict[str, list[Evidence]] = {layer: [] for layer in indexes}
    for batch in batches:
        observation = model.observe(batch, tuple(indexes))
        for layer, index in indexes.items():
            check_columns(observation, index.n_classes)
            try:
                found = index.gather(observation.activations[layer], k)
            except InputError as error:
                raise InputError(f"layer {layer!r}: {error}") from error
            evidence[layer].append(discard_evidence(found, observation.invalid))
        observations.append(replace(observation, activations={}))
    return (
        join_observations(observations),
        {layer: stack_evidence(parts) for layer, parts in evidence.items()},
    )


def check_columns(observation: Observation, n_classes: int) -> None:
    """The model must score every class."""
    if observation.scores.shape[1] != n_classes:
        raise InputError(
            f"the scores must have a column for each of the {n_classes} classes; "
            f"got {observation.scores.shape[1]} columns"
        )


def check_valid(invalid: Bools, what: str, positions: Ints | None = None) -> None:
    """Every sample must be finite; the first that is not is named by its row in the user's X.

    positions: those rows, of shape (n,), where the samples are a part of X.
    """
    if invalid.any():
        first = int(np.flatnonzero(invalid)[0])
        row = first if positions is None else int(positions[first])
        raise InputError(
            f"{what} data must be finite: row {row} has a value, or causes an activation, that is "
            f"NaN or inf ({int(invalid.sum())} such rows): remove or repair them"
        )
