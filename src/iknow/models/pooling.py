"""Pooling: one vector per sample from activations that hold one per token or per place.

A layer gives (n, tokens, features), (n, channels, height, width) or similar. Flattened as it is,
a picture shifted by one pixel or a sentence with one more word is another point altogether, and
texts of different lengths cannot be compared at all. Pooling removes these axes:

- "mean" averages over all places, or over the tokens that the attention mask does not hide;
- "cls" takes the first token that is not hidden, "last" the last one;
- a function gets the activations of shape (n, ...) and returns an array of shape (n, ...).

Padding must not count: a sample gives the same vector however far the others of its batch are
padded. So a layer that holds hidden tokens must be pooled, by what knows about the mask.

Which axis holds the features is for the adapter to say (`features_last`); shapes do not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from iknow.core.text import names, shown
from iknow.errors import InputError, LayerError

Pool = str | Callable[[Any], Any]
PoolOption = Pool | Mapping[str, Pool] | None

WAYS = ("mean", "cls", "last")
WHOLE = ("input", "output")  # layers that a pool for all leaves as they are


class Pooling:
    """How to pool each layer, as a user says it.

    pool: "mean", "cls", "last" or a function, for all layers with more than one vector per sample
    except "input" and "output"; or a mapping by layer, which leaves layers that it does not name as
    they are; or None.
    """

    def __init__(self, pool: PoolOption = None) -> None:
        for way in pool.values() if isinstance(pool, Mapping) else [pool]:
            if not (way is None or callable(way) or (isinstance(way, str) and way in WAYS)):
                raise InputError(
                    "pool must be 'mean', 'cls', 'last', a function of the activations, or a "
                    f"mapping of these by layer; got {shown(way)}"
                )
        self.is_given = pool is not None
        self._pool = dict(pool) if isinstance(pool, Mapping) else pool
        self.is_by_layer = isinstance(pool, Mapping)
        """Whether each layer has a way of its own, which is used whatever its shape."""

    def of(self, layer: str) -> Pool | None:
        """The way of a layer; None to leave it as it is."""
        if isinstance(self._pool, dict):
            return self._pool.get(layer)
        return None if layer in WHOLE else self._pool

    def check_names(self, available: Collection[str], model: str) -> None:
        """Refuse a mapping that names layers which the model does not have."""
        if isinstance(self._pool, dict) and (unknown := set(self._pool) - set(available)):
            raise LayerError(
                f"pool names {names(sorted(map(str, unknown)))}, but the layers of {model} are "
                f"{names(available, 100)}"
            )

    def __call__(
        self, layer: str, values: Any, *, features_last: bool = True, mask: Any = None
    ) -> Any:
        """The activations of a layer, (n, ...), with one vector per sample, or as they are.

        features_last: whether the last axis holds the features, as in (n, tokens, features); else
        the second, as in (n, channels, height, width). mask: of shape (n, tokens), 0 for tokens
        that are padding; None if there are none.
        """
        way, array = self.of(layer), np.asarray(values)
        seen = None if mask is None else np.asarray(mask) != 0
        padded = seen is not None and array.ndim > 2 and array.shape[1] == seen.shape[1]
        if way is None and padded and layer not in WHOLE:
            raise LayerError(
                f"layer {layer!r} has a vector for each of {array.shape[1]} tokens, so padding "
                "would count as text: say pool='mean', 'cls' (the first token) or 'last', or "
                "choose a layer with one vector per sample"
            )
        if callable(way) and (array.ndim > 2 or self.is_by_layer):
            pooled = np.asarray(way(values))
            if pooled.ndim == 0 or len(pooled) != len(values):
                raise LayerError(
                    f"pool must return one vector per sample, {len(values)} rows, for layer "
                    f"{layer!r}; got shape {pooled.shape}"
                )
            return pooled
        if way is None or callable(way) or array.ndim < 3:  # already one vector per sample
            return array
        if way != "mean" and (not features_last or array.ndim > 3):
            raise LayerError(
                f"layer {layer!r} must have shape (n, tokens, features) for pool={way!r}; got "
                f"{array.shape}{'' if features_last else ', which has channels and no tokens'}: "
                "use 'mean' or a function of the activations"
            )
        if not features_last or (seen is not None and seen.all()):
            seen = None
        if seen is not None and (array.ndim != 3 or not padded):
            raise LayerError(
                f"layer {layer!r} of shape {array.shape} does not hold the {seen.shape[1]} tokens "
                "of the attention mask, so its padding is unknown: pool it by a function of the "
                "activations, or choose another layer"
            )
        return pool_places(way, array, features_last=features_last, seen=seen)


def pool_places(way: str, values: Any, *, features_last: bool = True, seen: Any = None) -> Any:
    """One vector per sample, by "mean", "cls" or "last", of an array or a tensor of shape (n, ...).

    seen: which tokens count, of shape (n, tokens); None for all. A sample without any has NaN,
    which makes it invalid. Sums are in double precision.
    """
    xp: Any = np if isinstance(values, np.ndarray) else import_module("torch")
    if way == "mean":
        wide = values if xp is np else values.double()  # numpy widens as it adds
        if seen is None:
            axes = tuple(range(1, values.ndim - 1) if features_last else range(2, values.ndim))
            mean = xp.mean(wide, axis=axes, dtype=xp.float64)
        else:
            # A hidden token may hold anything, NaN too: 0 times it would not vanish.
            total = xp.sum(xp.where(seen[:, :, None], wide, 0), axis=1, dtype=xp.float64)
            with np.errstate(invalid="ignore", divide="ignore"):
                mean = total / xp.sum(seen, axis=1, dtype=xp.float64)[:, None]
        return mean.astype(values.dtype) if xp is np else mean.to(values.dtype)
    last = values.shape[1] - 1
    if seen is None:
        return values[:, 0 if way == "cls" else last]
    places = xp.arange(values.shape[1])
    if way == "cls":
        chosen = xp.amin(xp.where(seen, places, last), axis=1)
    else:
        chosen = xp.amax(xp.where(seen, places, 0), axis=1)
    token = values[xp.arange(values.shape[0]), chosen]
    return xp.where(xp.any(seen, axis=1)[:, None], token, xp.nan)
