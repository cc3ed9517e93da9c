"""What every model must do: turn a batch of inputs into scores and activations.

Adapters answer one batch at a time; the classifier cuts the batches and keeps what they return.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints, Labels
from iknow.errors import InputError, LayerError


@dataclass(frozen=True, eq=False)
class Observation:
    """What a model says and thinks about n inputs.

    scores: of shape (n, n_classes). belief: the position of the believed class, of shape (n,).
    activations: for each layer, of shape (n, n_features). invalid: mask of shape (n,) of the
    inputs that are not finite or cause something that is not; their other values are 0.
    """

    scores: Floats
    belief: Ints
    activations: Mapping[str, Floats32]
    invalid: Bools

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def nbytes(self) -> int:
        """Bytes of scores and activations."""
        return self.scores.nbytes + sum(values.nbytes for values in self.activations.values())

    def __getitem__(self, rows: Any) -> Observation:
        return Observation(
            scores=self.scores[rows],
            belief=self.belief[rows],
            activations={layer: values[rows] for layer, values in self.activations.items()},
            invalid=self.invalid[rows],
        )


@runtime_checkable
class Model(Protocol):
    """A trained classifier that can be looked into.

    A model may have two things more: `is_elsewhere`, true if it runs beside the CPU, and
    `lipschitz(layer)`, by which samples are certified: the ℓ2 Lipschitz constant from the input to
    the activations of a layer as `observe` returns them, or a `Sensitivity`, which adds their
    rounding. A subclass with another `observe` needs another `lipschitz` too.
    """

    @property
    def classes(self) -> Labels | None:
        """Labels of the score columns, of shape (n_classes,), if the model knows them."""
        ...

    def prepare(self, inputs: Any) -> Any:
        """All inputs as something with a length that can be cut into batches by slicing."""
        ...

    def default_layers(self, batch: Any) -> tuple[str, ...]:
        """The layers to look at when none are named, found with the help of one batch."""
        ...

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        """Scores and the activations of the named layers, for one batch of inputs."""
        ...

    def fingerprint(self) -> str | None:
        """A name for exactly this trained model, or None if it has no identity."""
        ...


def make_observation(
    scores: Any,
    activations: Mapping[str, Any],
    *,
    invalid: Bools | None = None,
    belief: Ints | None = None,
) -> Observation:
    """Check and convert what a model returned; mark and zero what is not finite.

    scores: of shape (n, n_classes), n_classes >= 2. activations: of shape (n, ...), flattened per
    sample here. belief: the highest score unless given.
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] < 2:
        raise InputError(
            "a model must return scores of shape (n, n_classes) with a column for each of at least "
            f"two classes; got {table.shape}"
        )
    n = len(table)
    bad = np.zeros(n, dtype=bool) if invalid is None else invalid.copy()
    bad |= ~np.isfinite(table).all(axis=1)
    layers = {}
    for layer, values in activations.items():
        array = np.asarray(values)
        if array.ndim == 0 or len(array) != n:
            raise LayerError(
                f"layer {layer!r} must give one activation per sample, an array of length {n}; "
                f"got shape {array.shape}"
            )
        with np.errstate(over="ignore"):  # what overflows float32 becomes inf and is marked
            layers[layer] = array.reshape(n, math.prod(array.shape[1:])).astype(np.float32)
        bad |= ~np.isfinite(layers[layer]).all(axis=1)
    if bad.any():
        table = np.where(bad[:, None], 0.0, table)
        layers = {
            layer: np.where(bad[:, None], np.float32(0), values) for layer, values in layers.items()
        }
    return Observation(
        scores=table,
        belief=table.argmax(axis=1) if belief is None else np.where(bad, 0, belief),
        activations=layers,
        invalid=bad,
    )


def observe_all(
    model: Model, batches: Iterable[Any], n_samples: int, layers: Sequence[str]
) -> Observation:
    """The observations of all batches as one."""
    return join_whole((model.observe(batch, layers) for batch in batches), n_samples)


def join_whole(parts: Iterable[Observation], n_samples: int) -> Observation:
    """Successive observations as one, activations included, each array allocated once."""
    whole: Observation | None = None
    start = 0
    for part in parts:
        if whole is None:
            whole = _allocate_like(part, n_samples)
        rows = slice(start, start + len(part))
        start = rows.stop
        whole.scores[rows], whole.belief[rows] = part.scores, part.belief
        whole.invalid[rows] = part.invalid
        for layer, values in part.activations.items():
            if values.shape[1] != whole.activations[layer].shape[1]:
                raise LayerError(
                    f"layer {layer!r} gives {values.shape[1]} features for some samples and "
                    f"{whole.activations[layer].shape[1]} for others: choose a layer of fixed size"
                )
            whole.activations[layer][rows] = values
    if whole is None or start != n_samples:
        raise InputError(f"expected observations of {n_samples} samples; got {start}")
    return whole


def join_observations(parts: Sequence[Observation]) -> Observation:
    """Successive observations without activations as one."""
    return Observation(
        scores=np.concatenate([part.scores for part in parts]),
        belief=np.concatenate([part.belief for part in parts]),
        activations={},
        invalid=np.concatenate([part.invalid for part in parts]),
    )


def _allocate_like(part: Observation, n: int) -> Observation:
    return Observation(
        scores=np.empty((n, part.scores.shape[1])),
        belief=np.empty(n, dtype=np.int64),
        activations={
            layer: np.empty((n, values.shape[1]), dtype=np.float32)
            for layer, values in part.activations.items()
        },
        invalid=np.empty(n, dtype=bool),
    )


def check_layers(layers: Iterable[str], available: Iterable[str], model: str) -> None:
    """Every layer asked for must be one the model has."""
    names = list(available)
    unknown = [layer for layer in layers if layer not in names]
    if unknown:
        raise LayerError(
            f"{model} has no layer {', '.join(map(repr, unknown))}: "
            f"it has {', '.join(map(repr, names))}"
        )
