"""Detectors: who watches what, and how much evidence each needs to ring.

One detector watches all samples, one each layer's own levels, and one each class, the samples
believed to be of it. They see the same samples and bet at different speeds, so the average of their
capitals is no martingale. Instead detector d rings at 1 / (rate · w_d), where the weights w_d add
up to 1: by Ville's inequality it ever does so with probability rate · w_d at most, and by the union
bound ANY of them ever does with probability `rate` at most. One half of the weight is for all
samples together, one quarter for the layers and one quarter for the classes, in equal parts.

Samples without a belief belong to no class. They go to one pool more, which never rings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.text import name as visible_name
from iknow.errors import InputError
from iknow.monitor.binning import find_bins

OVERALL, LAYERS, CLASSES = 0.5, 0.25, 0.25


@dataclass(frozen=True)
class Detectors:
    """Names of the classes and layers that are watched, in the order of their codes."""

    classes: tuple[str, ...]
    layers: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.classes or not self.layers:
            raise InputError("an alarm needs at least one class and one layer")

    @cached_property
    def names(self) -> list[tuple[str, str]]:
        """Kind and name of each: overall, then the layers, then the classes."""
        layers = [("layer", visible_name(each)) for each in self.layers]
        return [("overall", ""), *layers, *(("class", visible_name(each)) for each in self.classes)]

    @property
    def n_pools(self) -> int:
        """One for each detector, and one for samples without a belief."""
        return len(self.names) + 1

    def thresholds(self, rate: float) -> Floats:
        """The evidence at which each detector rings, of shape (n_pools,)."""
        parts = ((OVERALL, 1), (LAYERS, len(self.layers)), (CLASSES, len(self.classes)))
        shares = [np.full(count, rate * weight / count) for weight, count in parts]
        return np.append(1 / np.concatenate(shares), np.inf)

    def place(self, level: Any, belief: Any, layer_levels: Any) -> tuple[Ints, Ints]:
        """The pool and the bin of each score, both of shape (n, 2 + n_layers).

        The columns: all samples, the layers, the class.
        """
        overall, by_layer = find_bins(level, "levels"), find_bins(layer_levels, "layer levels")
        codes = _as_codes(belief, len(self.classes))
        n, n_layers = len(codes), len(self.layers)
        if overall.shape != (n,) or by_layer.shape != (n, n_layers):
            raise InputError(
                f"an alarm about {n_layers} layers takes levels (n,), beliefs (n,) and layer "
                f"levels (n, {n_layers}); got {overall.shape}, {codes.shape} and {by_layer.shape}"
            )
        own = np.where(codes == NO_BELIEF, len(self.names), 1 + n_layers + codes)
        fixed = np.broadcast_to(np.arange(1 + n_layers), (n, 1 + n_layers))
        bins = np.concatenate([overall[:, None], by_layer, overall[:, None]], axis=1)
        return np.concatenate([fixed, own[:, None]], axis=1), bins


def as_names(values: Sequence[Any]) -> tuple[str, ...]:
    """Labels of any kind as text."""
    return tuple(str(value) for value in values)


def _as_codes(belief: Any, n_classes: int) -> Ints:
    codes = np.asarray(belief)
    if not codes.size and codes.ndim == 1:
        return codes.astype(np.int64)
    fits = codes.ndim == 1 and codes.dtype.kind in "iu"
    if not fits or codes.min() < NO_BELIEF or codes.max() >= n_classes:
        came = f"{codes.dtype} of shape {codes.shape}"
        if fits:
            came = f"codes from {codes.min()} to {codes.max()}"
        raise InputError(
            f"beliefs must be class codes of shape (n,) from 0 to {n_classes - 1}, or {NO_BELIEF} "
            f"for none; got {came}"
        )
    return codes.astype(np.int64)
