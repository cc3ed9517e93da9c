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

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.text import names, shown
from iknow.errors import InputError, LayerError

Pool = str | Callable[[Any], Any]

WAYS = ("mean", "cls", "last")
WHOLE = ("input", "output")  # layers that a pool for all leaves as they are


class Pooling:
    """How to pool each layer, as a user says it.

    Args:
        pool: "mean", "cls", "last" or a function, for all layers with more than one vector per
            sample except "input" and "output"; or a mapping by layer, which leaves layers that it
            does not name as they are; or None.

    Examples:
        >>> values = np.arange(12.0).reshape(1, 3, 4)
        >>> Pooling("mean")("block", values)
        array([[4., 5., 6., 7.]])
        >>> Pooling({"block": "cls"})("block", values)
        array([[0., 1., 2., 3.]])
        >>> Pooling("mean")("block", values, mask=np.array([[1, 1, 0]]))
        array([[2., 3., 4., 5.]])
    """

    def __init__(self, pool: Pool | Mapping[str, Pool] | None = None) -> None:
        ways = list(pool.values()) if isinstance(pool, Mapping) else [pool]
        for way in ways:
            known = way is None or callable(way) or (isinstance(way, str) and way in WAYS)
            if not known:
                raise InputError(
                    "pool must be 'mean', 'cls', 'last', a function of the activations, or a "
                    f"mapping of these by layer; got {shown(way)}"
                )
        self._pool = dict(pool) if isinstance(pool, Mapping) else pool

    @property
    def is_by_layer(self) -> bool:
        """Whether each layer has a way of its own, which is used whatever its shape."""
        return isinstance(self._pool, dict)

    def of(self, layer: str) -> Pool | None:
        """The way of a layer; None to leave it as it is."""
        if isinstance(self._pool, dict):
            return self._pool.get(layer)
        return None if layer in WHOLE else self._pool

    def check_names(self, available: Iterable[str], model: str) -> None:
        """Refuse a mapping that names layers which the model does not have."""
        listed = list(available)
        if isinstance(self._pool, dict) and (unknown := set(self._pool) - set(listed)):
            raise LayerError(
                f"pool names {names(sorted(map(str, unknown)))}, but the layers of {model} are "
                f"{names(listed, 100)}"
            )

    def __call__(
        self, layer: str, values: Any, *, features_last: bool = True, mask: Any = None
    ) -> Any:
        """The activations of a layer with one vector per sample, or as they are.

        Args:
            layer: Its name.
            values: An array of shape (n, ...).
            features_last: Whether the last axis holds the features, as in (n, tokens, features);
                else the second, as in (n, channels, height, width).
            mask: Of shape (n, tokens), 0 for tokens that are padding; None if there are none.
        """
        way, array = self.of(layer), np.asarray(values)
        if way is None:
            _check_unhidden(layer, array, mask)
            return array
        if callable(way) and (array.ndim > 2 or isinstance(self._pool, dict)):
            return _call(way, layer, values)
        if array.ndim < 3 or callable(way):  # already one vector per sample
            return array
        if not features_last:
            if way != "mean":
                raise LayerError(
                    f"layer {layer!r} of shape {array.shape} has channels and no tokens, so pool="
                    f"{way!r} has no meaning: use 'mean' or a function of the activations"
                )
            return _mean(array, tuple(range(2, array.ndim)))
        seen = _visible(layer, array, mask)
        if way == "mean":
            return _mean(array, tuple(range(1, array.ndim - 1)), seen)
        if array.ndim > 3:
            raise LayerError(
                f"layer {layer!r} must have shape (n, tokens, features) for pool={way!r}; got "
                f"{array.shape}: use 'mean' or a function of the activations"
            )
        return _one_token(array, way, seen)


def _mean(values: NDArray[Any], axes: tuple[int, ...], seen: Any = None) -> NDArray[Any]:
    """The mean over some axes, in double precision; over the tokens seen only, if these are given.

    A sample without any token has no mean: NaN, which makes it invalid.
    """
    if seen is None:
        return np.asarray(values.mean(axis=axes, dtype=np.float64)).astype(values.dtype)
    # A hidden token may hold anything, NaN too: 0 times it would not vanish.
    shown_only = np.where(seen[:, :, None], values, 0)
    total = shown_only.sum(axis=1, dtype=np.float64)
    counts = seen.sum(axis=1, dtype=np.float64)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(total / counts).astype(values.dtype)


def _one_token(values: NDArray[Any], way: str, seen: Any) -> NDArray[Any]:
    """The first or the last token that is seen; NaN for a sample without any."""
    n, tokens = values.shape[:2]
    if seen is None:
        return values[:, 0 if way == "cls" else tokens - 1]
    place = seen.argmax(axis=1) if way == "cls" else tokens - 1 - seen[:, ::-1].argmax(axis=1)
    return np.where(seen.any(axis=1)[:, None], values[np.arange(n), place], np.nan)


def _visible(layer: str, values: NDArray[Any], mask: Any) -> Any:
    """Which tokens are seen, of shape (n, tokens); None if all are."""
    if mask is None:
        return None
    seen = np.asarray(mask) != 0
    if seen.all():
        return None
    if values.ndim != 3 or values.shape[1] != seen.shape[1]:
        raise LayerError(
            f"layer {layer!r} of shape {values.shape} does not hold the {seen.shape[1]} tokens of "
            "the attention mask, so its padding is unknown: pool it by a function of the "
            "activations, or choose another layer"
        )
    return seen


def _check_unhidden(layer: str, values: NDArray[Any], mask: Any) -> None:
    """Refuse a layer with a vector for each token of inputs with a mask if nothing pools it."""
    if mask is None or layer in WHOLE or values.ndim < 3:
        return
    if values.shape[1] == np.shape(mask)[1]:
        raise LayerError(
            f"layer {layer!r} has a vector for each of {values.shape[1]} tokens, so padding would "
            "count as text: say pool='mean', 'cls' (the first token) or 'last', or choose a layer "
            "with one vector per sample"
        )


def _call(way: Callable[[Any], Any], layer: str, values: Any) -> Any:
    pooled = np.asarray(way(values))
    if pooled.ndim == 0 or len(pooled) != len(values):
        raise LayerError(
            f"pool must return one vector per sample, {len(values)} rows, for layer {layer!r}; got "
            f"shape {pooled.shape}"
        )
    return pooled
