"""KerasModel: reads the layers of a Keras 3 model, on any backend.

Layers are "input", "output", the names of the model's layers, "NAME.input" for what enters a layer
and "NAME.INNER" for the layers of a model inside the model. A functional or sequential model knows
its graph: a second model on the same layers and weights returns what we want to read, and the first
is left as it is. The layers of a model inside the model belong to a graph of their own: we run the
outer one, and then the inner one on what enters it. Of a model that is code, a subclass with its
own `call`, only input and output are known.

Everything runs with training=False, in the model's own precision and on its own device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from iknow.core.arrays import Bools
from iknow.errors import IknowError, InputError, LayerError, RefusedError
from iknow.models.inputs import Fields, as_fields
from iknow.models.model import Layer, Model, Observation, check_layers, make_observation
from iknow.models.numbers import as_numbers
from iknow.models.pooling import Pooling
from iknow.models.refused import observe_apart
from iknow.models.scores import as_columns, check_scores, find_output

ENTERS = ".input"  # after the name of a layer: what enters it


class Reader:
    """Runs a model once and returns what it returns, and the activations of some layers."""

    def __init__(self, model: Any, layers: Sequence[str]) -> None:
        there = own_layers(model)
        own = [each for each in layers if each in there or each.removesuffix(ENTERS) in there]
        self.inner: dict[str, list[str]] = {}
        for each in layers:
            if each not in own:
                outer, _, name = each.partition(".")
                self.inner.setdefault(outer, []).append(name)
        wanted = dict.fromkeys([*own, *(outer + ENTERS for outer in self.inner)])
        self.tensors = {name: tensor_of(model, name) for name in wanted}
        self.struct = graph_of(model).output
        returned = keras.tree.flatten(self.struct)
        inputs = input_tensors(model)
        self.whole = keras.Model(
            next(iter(inputs.values())) if len(inputs) == 1 else inputs,
            [*returned, *self.tensors.values()],
        )
        self.n_returned, self.layers = len(returned), layers
        self.readers = {
            outer: Reader(find_layer(model, outer), names) for outer, names in self.inner.items()
        }

    def __call__(self, given: Any) -> tuple[Any, dict[str, Any]]:
        values = keras.tree.flatten(self.whole(given, training=False))
        returned = keras.tree.pack_sequence_as(self.struct, values[: self.n_returned])
        inside = dict(zip(self.tensors, values[self.n_returned :], strict=True))
        found = {name: to_array(value, f"layer {name!r}") for name, value in inside.items()}
        for outer, reader in self.readers.items():
            _, deeper = reader(inside[outer + ENTERS])
            found |= {f"{outer}.{name}": value for name, value in deeper.items()}
        return returned, {layer: found[layer] for layer in self.layers}


def graph_of(model: Any) -> Any:
    """The functional model that a model is, or holds; None if it is code.

    One with its own `call` may do something else than its graph says.
    """
    graph = getattr(model, "_functional", None) or model
    known = hasattr(graph, "_nodes_by_depth") and hasattr(graph, "output")
    is_own = any(method.__module__.partition(".")[0] != "keras" for method in _calls(model))
    return None if is_own or not known else graph


def _calls(model: Any) -> list[Any]:
    return [model.call, type(model).call, type(model).__call__]


def input_tensors(model: Any) -> dict[str, Any]:
    """The inputs of a model by name, in its own order; nothing if it is code."""
    graph = graph_of(model)
    if graph is None:
        return {}
    given = graph.input.items() if isinstance(graph.input, Mapping) else ()
    names = {id(tensor): name for name, tensor in given}
    return {names.get(id(tensor), tensor.name): tensor for tensor in graph.inputs}


def own_layers(model: Any) -> dict[str, Any]:
    """The layers of a model by name, without those that only stand for inputs."""
    if graph_of(model) is None:
        return {}
    named = {layer.name: layer for layer in model.layers}
    return {name: each for name, each in named.items() if type(each).__name__ != "InputLayer"}


def layer_names(model: Any) -> list[str]:
    """The layers of a model and of the models inside it, in order."""
    found = []
    for name, layer in own_layers(model).items():
        inner = layer_names(layer) if isinstance(layer, keras.Model) else []
        found += [*(f"{name}.{each}" for each in inner), name]
    return found


def find_layer(model: Any, name: str) -> Any:
    """The layer of this name; None if there is none."""
    own = own_layers(model)
    if name in own:
        return own[name]
    outer, _, inner = name.partition(".")
    return find_layer(own[outer], inner) if inner and outer in own else None


def tensor_of(model: Any, name: str) -> Any:
    """What one of the model's own layers returns, or what enters it."""
    enters = name.endswith(ENTERS) and name not in own_layers(model)
    layer = own_layers(model)[name.removesuffix(ENTERS) if enters else name]
    by_depth = graph_of(model)._nodes_by_depth.values()
    calls = [node for nodes in by_depth for node in nodes if node.operation is layer]
    if len(calls) != 1:
        raise LayerError(
            f"layer {layer.name!r} runs {len(calls)} times in one pass, so it has no single "
            "activation: choose another layer"
        )
    tensors = calls[0].input_tensors if enters else calls[0].outputs
    if len(tensors) != 1:
        raise LayerError(f"layer {name!r} holds {len(tensors)} tensors: choose one with a single")
    return tensors[0]


def is_dense(layer: Any) -> bool:
    """Whether a layer is dense; its class may come from another copy of Keras."""
    return any(base.__name__ == "Dense" for base in type(layer).__mro__)


def to_array(tensor: Any, what: str) -> Any:
    """A tensor of any backend as an array of numbers, in single precision at least."""
    if "float" in str(tensor.dtype) and "64" not in str(tensor.dtype):
        tensor = keras.ops.cast(tensor, "float32")  # numpy has no bfloat16
    if not hasattr(tensor, "detach"):  # which as_numbers reads without Keras' warnings
        tensor = keras.ops.convert_to_numpy(tensor)
    return as_numbers(tensor, what, LayerError)


class KerasModel(Model):
    """A trained Keras model that maps a batch to scores of shape (n, n_classes).

    Args:
        model: The model.
        pool: How to make one vector per sample of a layer's activations; see `Pooling`.
        scores: Where the scores are in what the model returns; see `find_output`.

    Examples:
        >>> import keras
        >>> dense = [keras.layers.Dense(8, "relu", name="hidden"), keras.layers.Dense(3)]
        >>> model = KerasModel(keras.Sequential([keras.Input((4,)), *dense]))
        >>> model.observe(model.prepare(X), ["hidden"]).activations["hidden"].shape
        (150, 8)
    """

    def __init__(self, model: Any, pool: Any = None, scores: Any = None) -> None:
        check_scores(scores)
        self.model, self.scores, self.pooling = model, scores, Pooling(pool)
        self._readers: dict[tuple[str, ...], Any] = {}

    def prepare(self, inputs: Any) -> Any:
        """Return an array, or `Fields` for several `inputs`, given by name or in order."""
        if isinstance(inputs, Fields):
            return inputs
        if isinstance(inputs, Mapping):
            return as_fields({name: as_numbers(part, name) for name, part in inputs.items()})
        names = list(input_tensors(self.model))
        if len(names) > 1:
            if not isinstance(inputs, (list, tuple)) or len(inputs) != len(names):
                raise InputError(
                    f"{self._name} has {len(names)} inputs: pass a dict with "
                    f"{', '.join(map(repr, names))}, or a list of {len(names)} arrays"
                )
            named = zip(names, inputs, strict=True)
            return as_fields({name: as_numbers(part, name) for name, part in named})
        return as_numbers(inputs, "X")

    def layers(self, batch: Any) -> tuple[Layer, ...]:
        """Describe the input, what enters the last dense layer, and its output, without a run of
        `batch`.
        """
        last = self._last_dense()
        raw = [Layer("input", "input")] if isinstance(batch, np.ndarray) else []
        if last is None:
            return (*raw, Layer("output", "output"))
        of_floats = raw and batch.dtype.kind == "f"
        whole = all("int" not in str(each.dtype) for each in input_tensors(self.model).values())
        inside = (Layer(last + ENTERS, "hidden"), Layer(last, "output"))
        return (*raw, *inside) if of_floats and whole else inside

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        inside = layer_names(self.model)
        available = list(dict.fromkeys(["input", *inside, "output"]))
        entering = {name + ENTERS for name in inside}
        check_layers([each for each in layers if each not in entering], available, self._name)
        self.pooling.check_names([*available, *entering], self._name)
        strange = _find_strange(batch)
        if not strange.any():
            return self._ask(batch, layers)
        return observe_apart(
            self._ask, batch, layers, strange.astype(np.int64), substitute=lambda: _zeros(batch)
        )

    def _ask(self, batch: Any, layers: Sequence[str]) -> Observation:
        given = dict(batch.arrays) if isinstance(batch, Fields) else batch
        inside = tuple(layer for layer in layers if self._is_inside(layer))
        try:
            returned, found = self._run(given, inside)
        except IknowError:
            raise
        except Exception as error:  # of the backend, whichever it is
            shape = {k: v.shape for k, v in given.items()} if batch is not given else given.shape
            raise RefusedError(
                f"{self._name} failed on a batch of shape {shape}: {error}"
            ) from error
        raw = find_output(returned, self.scores, len(batch), self._name)
        scores = as_columns(to_array(raw, "the output"), self.scores, self._name)
        if "output" in layers and "output" not in found:
            found["output"] = scores
        if "input" in layers and "input" not in found:
            found["input"] = _only_array(batch, self._name)
        mask = batch.arrays.get("attention_mask") if isinstance(batch, Fields) else None
        pooled = {each: self._pool(each, found[each], mask) for each in layers}
        return make_observation(scores, pooled)

    def _run(self, given: Any, layers: tuple[str, ...]) -> tuple[Any, dict[str, Any]]:
        """What the model returns, and the activations of some of its layers."""
        if not layers:
            return self.model(given, training=False), {}
        if layers not in self._readers:
            self._readers[layers] = Reader(self.model, layers)
        reader: Reader = self._readers[layers]
        return reader(given)

    def _pool(self, layer: str, values: Any, mask: Any) -> Any:
        here = find_layer(self.model, layer.removesuffix(ENTERS))
        last = getattr(here, "data_format", None) != "channels_first"
        return self.pooling(layer, values, features_last=last, mask=mask)

    def _is_inside(self, layer: str) -> bool:
        return layer not in ("input", "output") or layer in layer_names(self.model)

    def _last_dense(self) -> str | None:
        """The last layer that is dense, of those whose input is known."""
        dense = [n for n in layer_names(self.model) if is_dense(find_layer(self.model, n))]
        return dense[-1] if dense else None

    @property
    def _name(self) -> str:
        return f"the Keras model {self.model.name!r}"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only what cannot be derived."""
        return {**self.__dict__, "_readers": {}}


def _arrays(batch: Any) -> Iterable[Any]:
    return batch.arrays.values() if isinstance(batch, Fields) else [batch]


def _find_strange(batch: Any) -> Bools:
    """Which samples hold a number that is not finite, of shape (n,)."""
    strange = np.zeros(len(batch), dtype=bool)
    for values in _arrays(batch):
        if np.asarray(values).dtype.kind == "f":
            with np.errstate(over="ignore"):
                finite = np.isfinite(np.asarray(values, dtype=np.float32))
            strange |= ~finite.reshape(len(batch), -1).all(axis=1)
    return strange


def _zeros(batch: Any) -> Any:
    if isinstance(batch, Fields):
        return Fields({name: np.zeros_like(values) for name, values in batch.arrays.items()})
    return np.zeros_like(batch)


def _only_array(batch: Any, model: str) -> Any:
    if isinstance(batch, Fields):
        raise LayerError(f"{model} has several inputs, so 'input' is no layer: choose another")
    return batch
