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

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from iknow.errors import InputError, LayerError
from iknow.models.inputs import Fields, as_fields, as_numbers
from iknow.models.model import Layer, refusing
from iknow.models.network import ENTRANCE, INPUT, OUTPUT, Network, Pass, Read, find_output


class Reader:
    """Runs a model once and returns what it returns, and the activations of some layers."""

    def __init__(self, model: Any, layers: Sequence[str]) -> None:
        own, inner = own_layers(model), defaultdict[str, list[str]](list)
        here = [each for each in layers if {each, each.removesuffix(ENTRANCE)} & own.keys()]
        for outer, _, name in (each.partition(".") for each in layers if each not in here):
            inner[outer].append(name)
        inputs, names = input_tensors(model), [*here, *(outer + ENTRANCE for outer in inner)]
        self.whole = keras.Model(
            next(iter(inputs.values())) if len(inputs) == 1 else inputs,
            (graph_of(model).output, {name: tensor_of(model, name) for name in names}),
        )
        self.readers = {outer: Reader(own[outer], within) for outer, within in inner.items()}

    def __call__(self, given: Any) -> tuple[Any, dict[str, Any]]:
        returned, inside = self.whole(given, training=False)
        found = {name: to_array(value, f"layer {name!r}") for name, value in inside.items()}
        for outer, reader in self.readers.items():
            _, deeper = reader(inside[outer + ENTRANCE])
            found |= {f"{outer}.{name}": value for name, value in deeper.items()}
        return returned, found


def graph_of(model: Any) -> Any:
    """The functional model that a model is, or holds; None if it is code.

    One with its own `call` may do something else than its graph says.
    """
    graph = getattr(model, "_functional", None) or model
    known = hasattr(graph, "_nodes_by_depth") and hasattr(graph, "output")
    calls = (model.call, type(model).call, type(model).__call__)
    is_own = any(method.__module__.partition(".")[0] != "keras" for method in calls)
    return None if is_own or not known else graph


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
    layers = () if graph_of(model) is None else model.layers
    return {each.name: each for each in layers if type(each).__name__ != "InputLayer"}


def all_layers(model: Any) -> dict[str, Any]:
    """The layers of a model and of the models inside it by name, in order."""
    found: dict[str, Any] = {}
    for name, layer in own_layers(model).items():
        inner = all_layers(layer) if isinstance(layer, keras.Model) else {}
        found |= {**{f"{name}.{each}": part for each, part in inner.items()}, name: layer}
    return found


def tensor_of(model: Any, name: str) -> Any:
    """What one of the model's own layers returns, or what enters it."""
    own = own_layers(model)
    enters = name not in own
    layer = own[name.removesuffix(ENTRANCE) if enters else name]
    by_depth = graph_of(model)._nodes_by_depth.values()
    calls = [node for nodes in by_depth for node in nodes if node.operation is layer]
    tensors = [t for call in calls for t in (call.input_tensors if enters else call.outputs)]
    if len(tensors) != 1:
        raise LayerError(
            f"layer {name!r} runs {len(calls)} times in one pass and holds {len(tensors)} tensors, "
            "so it has no single activation: choose another layer"
        )
    return tensors[0]


def to_array(tensor: Any, what: str) -> Any:
    """A tensor of any backend as an array of numbers, in single precision at least."""
    if "float" in str(tensor.dtype) and "64" not in str(tensor.dtype):
        tensor = keras.ops.cast(tensor, "float32")  # numpy has no bfloat16
    if not hasattr(tensor, "detach"):  # which as_numbers reads without Keras' warnings
        tensor = keras.ops.convert_to_numpy(tensor)
    return as_numbers(tensor, what, LayerError)


class KerasModel(Network):
    """A trained Keras model that maps a batch to scores of shape (n, n_classes).

    Args:
        model: The model.
        pool: How to turn the activations of a layer into one vector per sample
            (`iknow.models.network`).
        scores: Where the scores are in what the model returns (likewise).

    Examples:
        >>> import keras
        >>> dense = [keras.layers.Dense(8, "relu", name="hidden"), keras.layers.Dense(3)]
        >>> model = KerasModel(keras.Sequential([keras.Input((4,)), *dense]))
        >>> model.observe(model.prepare(X), ["hidden"]).activations["hidden"].shape
        (150, 8)
    """

    def __init__(self, model: Any, pool: Any = None, scores: Any = None) -> None:
        super().__init__(pool, scores)
        self.model, self._name = model, f"the Keras model {model.name!r}"

    def prepare(self, inputs: Any) -> Any:
        """Return an array, or `Fields` for several `inputs`, given by name or in order."""
        if isinstance(inputs, Fields):
            return inputs
        names = list(input_tensors(self.model))
        if len(names) > 1 and not isinstance(inputs, Mapping):
            if not isinstance(inputs, (list, tuple)) or len(inputs) != len(names):
                raise InputError(
                    f"{self._name} has {len(names)} inputs: pass a dict with "
                    f"{', '.join(map(repr, names))}, or a list of {len(names)} arrays"
                )
            inputs = dict(zip(names, inputs, strict=True))
        if isinstance(inputs, Mapping):
            return as_fields({name: as_numbers(part, name) for name, part in inputs.items()})
        return as_numbers(inputs, "X")

    def layers(self, batch: Any) -> tuple[Layer, ...]:
        """Describe an array `batch` as input, what enters the last dense layer, and its output."""
        raw = [Layer(INPUT, "input")] if isinstance(batch, np.ndarray) else []
        # The class of a layer may come from another copy of Keras.
        bases = {name: type(each).__mro__ for name, each in all_layers(self.model).items()}
        dense = [name for name, mro in bases.items() if "Dense" in (base.__name__ for base in mro)]
        if not dense:
            return (*raw, Layer(OUTPUT, "output"))
        of_floats = raw and batch.dtype.kind == "f"
        whole = all("int" not in str(each.dtype) for each in input_tensors(self.model).values())
        inside = (Layer(dense[-1] + ENTRANCE, "hidden"), Layer(dense[-1], "output"))
        return (*raw, *inside) if of_floats and whole else inside

    def _places(self) -> dict[str, Any]:
        return all_layers(self.model)

    def _run(self, batch: Any, layers: Sequence[str], inside: Mapping[str, Any]) -> Pass:
        given: Any = dict(batch.arrays) if isinstance(batch, Fields) else batch
        wanted = tuple(each for each in layers if each in inside or each not in (INPUT, OUTPUT))
        values: dict[str, Any] = {}
        with refusing(self._name, batch):  # the backend, whichever it is, may raise anything
            if not wanted:
                returned = self.model(given, training=False)
            else:
                if wanted not in self._settled:
                    self._settled[wanted] = Reader(self.model, wanted)
                returned, values = self._settled[wanted](given)
        raw, found = find_output(returned, self.scores, len(batch), self._name), {}
        for layer, each in values.items():
            here = inside[layer if layer in inside else layer.removesuffix(ENTRANCE)]
            found[layer] = Read(each, getattr(here, "data_format", None) != "channels_first")
        return Pass(to_array(raw, "the output"), found)
