"""Network: how iknow runs a network of any framework, and reads its layers.

Samples that are not finite are set aside, the network runs, its scores become a column for each
class, and each layer one vector per sample. How a network runs, and what its layers are called, is
for the adapter of its framework to say.

**Scores.** A network may return an array, several in a tuple, or several by name. The scores are
the only array with a row per sample, or the one named `logits`; otherwise the user says which by
`scores=`:

- a text names an output (a key or an attribute), a whole number is a position;
- a function gets everything that the network returned and gives the scores.

A binary network may return one number per sample. What it means cannot be seen: a logit of 0.7
and a probability of 0.7 lead to other odds, and one of 0.3 to another class. So the user says
"logit" or "probability", both of the second class, alone or with the output: ("risk", "logit").
Both become a column for each class: (-z/2, z/2), whose softmax is the probability that the logit
z stands for, and (1 - p, p). A logit of 0 and a probability of one half go to the first class.

**Pooling.** A layer gives (n, tokens, features), (n, channels, height, width) or similar. Flattened
as it is, a picture shifted by one pixel is another point altogether, and texts of different lengths
cannot be compared at all. Pooling removes these axes:

- "mean" averages over all places, or over the tokens that the attention mask does not hide;
- "cls" takes the first token that is not hidden, "last" the last one;
- a function gets the activations of shape (n, ...) and returns an array of shape (n, ...).

The layer "NAME.moments" is what "NAME" returns, pooled to the mean and the standard deviation over
all places: what is in a picture and how it varies, wherever it is. Networks describe the ends of
their middle stages so, whatever `pool=` says.

Padding must not count: a sample gives the same vector however far the others of its batch are
padded. So a layer that holds hidden tokens must be pooled, by what knows about the mask.

Which axis holds the features is for the adapter to say (`features_last`); shapes do not tell.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from iknow.core.arrays import Bools, Ints
from iknow.core.text import names, shown
from iknow.errors import InputError, LayerError
from iknow.models.inputs import Fields, own_copy
from iknow.models.model import Model, Observation, check_layers, make_observation, observe_apart

INPUT, OUTPUT = "input", "output"
ENTRANCE = ".input"  # after the name of a layer: what enters it
MOMENTS = ".moments"  # after the name of a layer: mean and standard deviation over its places
MASK = "attention_mask"
USUAL_NAME = "logits"
SINGLE = ("logit", "probability")
WAYS = ("mean", "cls", "last")
WHOLE = (INPUT, OUTPUT)  # layers that a pool for all leaves as they are

ScoresOption = str | int | tuple[str | int, str] | Callable[[Any], Any] | None
Pool = str | Callable[[Any], Any]
PoolOption = Pool | Mapping[str, Pool] | None


class Read(NamedTuple):
    """The activations of a layer, of shape (n, ...), and what pooling must know about them.

    features_last, mask: as in `Pooling`; the mask is the layer's own, if it has one.
    """

    values: Any
    features_last: bool = True
    mask: Any = None


class Pass(NamedTuple):
    """What a network gave for n samples: scores of shape (n, n_classes), (n, 1) or (n,); what was
    read, by layer, without "input" and "output" unless they name other layers; a belief, as in
    `make_observation`, if it is not the highest score.
    """

    scores: Any
    layers: Mapping[str, Read]
    belief: Ints | None = None


class Network(Model):
    """A network that runs a batch at a time.

    pool: how to turn the activations of a layer into one vector per sample; scores: where they are
    in what the network returns.
    """

    _name: str  # in errors
    _hint = ""  # in errors, after the name, why it has few layers

    def __init__(self, pool: PoolOption = None, scores: ScoresOption = None) -> None:
        check_scores(scores)
        self.pooling, self.scores = Pooling(pool), scores
        self._settled: dict[tuple[str, ...], Any] = {}  # by layers, how they are read

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only what cannot be derived."""
        return {**self.__dict__, "_settled": {}}

    def _places(self) -> Mapping[str, Any]:
        """Where `_run` finds each layer inside the network, by name."""
        return {}

    def _take(self, batch: Any) -> tuple[Any, Bools | None]:
        """A batch as `_run` takes it, and which samples are not finite; None if all are."""
        strange = np.zeros(len(batch), dtype=bool)
        for name, values in (batch.arrays if isinstance(batch, Fields) else {"": batch}).items():
            if np.asarray(values).dtype.kind == "f":
                finite = np.isfinite(self._in_precision(name, np.asarray(values)))
                strange |= ~finite.reshape(len(finite), -1).all(axis=1)
        return batch, strange if strange.any() else None

    def _in_precision(self, name: str, values: Any) -> Any:
        """An array of floats, one of several inputs by name, in the precision of the network."""
        with np.errstate(over="ignore"):
            return values.astype(np.float32)

    @abstractmethod
    def _run(self, batch: Any, layers: Sequence[str], places: Any) -> Pass:
        """What the network gives for a batch that it may write to; places: as `_locate` gave."""

    @staticmethod
    def _as_array(values: Any, what: str) -> Any:
        """What goes in or out of the network, as pooling takes it; what: its name in errors."""
        return values

    def _locate(self, layers: Sequence[str]) -> Mapping[str, Any]:
        """The places of these layers; `LayerError` if one of them, or one to pool, is unknown."""
        places = self._places()
        plain = [without_moments(layer, places) for layer in layers]
        plain = [layer for layer in plain if layer not in places]
        plain = [layer for layer in plain if layer.removesuffix(ENTRANCE) not in places]
        if set(plain).difference(WHOLE) or self.pooling.is_by_layer:
            # To list all names takes longer than a small network.
            known = list(dict.fromkeys([INPUT, *places, OUTPUT]))
            check_layers(plain, known, self._name + self._hint)
            entrances = (name + ENTRANCE for name in places)
            self.pooling.check_names(dict.fromkeys([*known, *entrances]), self._name)
        return places

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        taken, strange = self._take(batch)
        if strange is None:
            return self._ask(taken, layers)
        return observe_apart(
            lambda part, wanted: self._ask(part.copy(), wanted),
            taken,
            layers,
            strange.astype(np.int64),
            substitute=lambda: without_values(taken),
        )

    def _ask(self, batch: Any, layers: Sequence[str]) -> Observation:
        places, given = self._locate(layers), {}
        arrays = batch.arrays if isinstance(batch, Fields) else {INPUT: batch}
        if INPUT in layers and INPUT not in places:  # before it runs: it may overwrite
            if len(arrays) > 1:
                raise LayerError(
                    f"inputs in several arrays ({', '.join(arrays)}) have no single layer 'input': "
                    "choose another layer"
                )
            given[INPUT] = Read(self._as_array(next(iter(arrays.values())), "the input"))
        hidden = find_mask(arrays[MASK]) if MASK in arrays else None
        plain = dict(zip(layers, layers, strict=True))
        for layer in layers:
            if layer.endswith(MOMENTS):
                plain[layer] = without_moments(layer, places)
        found = self._run(batch, [*dict.fromkeys(plain.values())], places)
        scores = found.scores
        if not isinstance(scores, np.ndarray):
            scores = self._as_array(scores, f"the output of {self._name}")
        scores = np.asarray(scores)
        if scores.ndim != 2 or scores.shape[1] == 1:
            scores = as_columns(scores, self.scores, self._name)
        reads, pooled = {OUTPUT: Read(scores), **given, **found.layers}, {}
        for layer in layers:
            values, features_last, mask = reads[plain[layer]]
            mask = hidden if mask is None else mask
            if layer != plain[layer]:
                values = find_moments(values, features_last=features_last, seen=mask)
            elif mask is not None or self.pooling.is_given:
                values = self.pooling(layer, values, features_last=features_last, mask=mask)
            pooled[layer] = values
        return make_observation(scores, pooled, belief=found.belief)


def without_moments(layer: str, places: Collection[str]) -> str:
    """The name of the layer that is read: of those that there are, or the one that is pooled."""
    return layer if layer in places else layer.removesuffix(MOMENTS)


def find_mask(mask: Any) -> Any:
    """The attention mask as an array of shape (n, tokens), 0 where the inputs are padding; None if
    it has another shape.
    """
    if isinstance(mask, np.ndarray):
        return mask
    return mask.cpu().numpy() if mask.ndim == 2 else None


def without_values(batch: Any) -> Any:
    """A copy of arrays or tensors with 0 for all floats; whole numbers and text stay."""
    copied = own_copy(batch)
    for values in copied.arrays.values() if isinstance(copied, Fields) else [copied]:
        if "float" in str(values.dtype):
            values[...] = 0
    return copied


def check_scores(option: Any) -> None:
    where, how = split(option)
    simple = where is None or callable(where) or isinstance(where, str | int | np.integer)
    if not simple or isinstance(where, bool) or how not in (None, *SINGLE):
        raise InputError(
            "scores must be the name or the position of an output, 'logit' or 'probability' for a "
            "single number per sample, a pair such as ('risk', 'logit'), or a function of what the "
            f"model returns; got {shown(option)}"
        )


def find_output(returned: Any, option: ScoresOption, n_samples: int, model: str) -> Any:
    """The output that holds the scores of n samples, still as the network `returned` it.

    option: as the user gave `scores=`; see above. model: its name in errors.
    """
    where, how = split(option)
    if callable(where):
        return where(returned)
    if _is_array(returned):
        if where not in (None, 0):
            raise InputError(
                f"{model} returns one array, so scores={where!r} names nothing: leave it out, or "
                "say 'logit' or 'probability' if it holds a single number per sample"
            )
        return returned
    outputs = outputs_of(returned)
    if where is None:  # an output may be called "logit" or "probability"
        where = next((name for name in (how, USUAL_NAME) if name in outputs), None)
    if where is None:
        # Not a loss, which is one number, or a state.
        tables = [v for v in outputs.values() if _is_array(v) and (*v.shape,)[:1] == (n_samples,)]
        if len(tables) == 1:
            return tables[0]
        if not outputs:
            raise InputError(
                f"{model} must return an array of scores, or several arrays; got "
                f"{type(returned).__name__}: wrap it so that it returns its scores"
            )
        raise InputError(
            f"{model} returns {_listed(outputs)}: say which by scores=, its name, its position or "
            "a function of all of them"
        )
    if isinstance(where, str) and where in outputs:
        return outputs[where]
    if isinstance(where, str) and not isinstance(returned, Mapping) and hasattr(returned, where):
        return getattr(returned, where)
    if not isinstance(where, str) and -len(outputs) <= where < len(outputs):
        return list(outputs.values())[where]
    raise InputError(f"{model} has no output {where!r}: it returns {_listed(outputs)}")


def as_columns(scores: Any, option: ScoresOption, model: str) -> Any:
    """Scores of shape (n, n_classes), from an array of this shape, (n, 1) or (n,).

    A single number per sample becomes two columns, if the user said what it means.
    """
    table = np.asarray(scores)
    if table.ndim != 1 and (table.ndim != 2 or table.shape[1] != 1):
        return table
    if (how := split(option)[1]) is None:
        raise InputError(
            "a model must return scores of shape (n, n_classes) with a column for each of at least "
            f"two classes; got {table.shape} from {model}. If it holds one number per sample for "
            "the second of two classes, say which: scores='logit' (any number; positive means the "
            "second class) or scores='probability' (after a sigmoid, between 0 and 1)"
        )
    column = table.reshape(len(table)).astype(np.float64)
    if how == "logit":
        return np.column_stack([-column / 2, column / 2])
    with np.errstate(invalid="ignore"):
        outside = (column < 0) | (column > 1)
    if outside.any():
        raise InputError(
            f"scores='probability' needs numbers from 0 to 1; {model} returned "
            f"{column[outside][0]:.4g}: say scores='logit' if it ends without a sigmoid"
        )
    return np.column_stack([1 - column, column])


def split(option: Any) -> tuple[Any, Any]:
    """Where the scores are, and how to read a single number; None for what was not said."""
    if isinstance(option, tuple | list) and len(option) == 2:
        return option[0], option[1]
    return (None, option) if isinstance(option, str) and option in SINGLE else (option, None)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def outputs_of(returned: Any) -> dict[Any, Any]:
    """What a network returned, by name or position; outputs that are None are left out."""
    if isinstance(returned, Mapping):
        found = dict(returned)
    elif hasattr(returned, "_asdict"):  # a named tuple
        found = returned._asdict()
    elif is_dataclass(returned) and not isinstance(returned, type):
        found = {field.name: getattr(returned, field.name) for field in fields(returned)}
    elif isinstance(returned, tuple | list):
        found = dict(enumerate(returned))
    else:
        found = {k: v for k, v in getattr(returned, "__dict__", {}).items() if _is_array(v)}
    return {name: value for name, value in found.items() if value is not None}


def _listed(outputs: dict[Any, Any]) -> str:
    shapes = {
        name: f"of shape {tuple(value.shape)}" if _is_array(value) else f"({type(value).__name__})"
        for name, value in list(outputs.items())[:20]
    }
    return ", ".join(f"{name!r} {text}" for name, text in shapes.items()) or names([])


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
        if isinstance(self._pool, dict):
            check_layers(self._pool, available, f"pool= names layers, and {model}")

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


def find_moments(values: Any, *, features_last: bool, seen: Any = None) -> Any:
    """Means and standard deviations over all places, (n, 2 * n_features); as for `pool_places`."""
    if values.ndim < 3:
        return values
    xp: Any = np if isinstance(values, np.ndarray) else import_module("torch")
    places = values if features_last else xp.moveaxis(values, 1, -1)
    places = places.reshape(places.shape[0], -1, places.shape[-1])
    hides = seen is not None and seen.shape[1] == places.shape[1]
    pool = partial(pool_places, "mean", seen=(seen != 0) if hides else None)
    mean = pool(places)
    return xp.hstack([mean, xp.sqrt(pool(xp.square(places - mean[:, None])))])
