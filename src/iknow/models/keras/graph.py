"""The graph of a Keras model: its layers by name, and a second model that returns what they do.

The second model has the same layers and weights, so the first is left as it is. The layers of a
model inside the model belong to a graph of their own: we run the outer one, and then the inner one
on what enters it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from iknow.errors import LayerError
from iknow.models.numbers import as_numbers

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
