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
from contextlib import suppress
from typing import Any

import keras
import numpy as np

from iknow.errors import InputError, LayerError
from iknow.models.inputs import Fields, as_fields, as_numbers
from iknow.models.model import Layer, refusing
from iknow.models.network import (
    ENTRANCE,
    INPUT,
    MOMENTS,
    OUTPUT,
    Network,
    Pass,
    Read,
    find_output,
)
from iknow.models.stages import Step, some_stages, stages_by_blocks, stages_by_resolution


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


def shapes_of(model: Any) -> dict[str, tuple[int | None, ...]]:
    """The shape of a sample in what each layer returns, by name, also inside models, in order."""
    found: dict[str, tuple[int | None, ...]] = {}
    for name, layer in own_layers(model).items():
        if isinstance(layer, keras.Model):
            found |= {f"{name}.{each}": shape for each, shape in shapes_of(layer).items()}
        with suppress(LayerError):  # of one that runs several times, or returns several tensors
            found[name] = tuple(tensor_of(model, name).shape[1:])
    return found


def find_blocks(model: Any) -> list[str]:
    """The layers that end the blocks over tokens of a model, or of the first inside it that has
    some.
    """
    if (graph := graph_of(model)) is None:
        return []
    known = {id(tensor): f"input {name}" for name, tensor in input_tensors(model).items()}
    for name in own_layers(model):
        with suppress(LayerError):
            known[id(tensor_of(model, name))] = name

    def named(tensors: Any) -> list[str]:
        return [known.get(id(each), f"tensor {id(each)}") for each in tensors]

    tokens, steps = dict[str, tuple[Any, Any]](), list[Step]()
    for _, nodes in sorted(graph._nodes_by_depth.items(), reverse=True):
        for node in nodes:
            kind, learns = type(node.operation).__name__, hasattr(node.operation, "weights")
            learns = learns and bool(node.operation.weights)
            steps.append(Step(kind, named(node.input_tensors), named(node.outputs), learns))
            flat = (each for each in node.outputs if id(each) in known and len(each.shape) == 3)
            tokens |= {known[id(each)]: (each.shape[1], each.shape[2]) for each in flat}
    if found := stages_by_blocks(steps, tokens, named(graph.outputs)[0]):
        return found
    inner = ((n, part) for n, part in own_layers(model).items() if isinstance(part, keras.Model))
    parts = ([f"{name}.{each}" for each in find_blocks(part)] for name, part in inner)
    return next(filter(None, parts), [])


def find_stages(model: Any) -> list[str]:
    """The layers that end the middle stages of a model."""
    shapes, found = shapes_of(model), list[str]()
    pictures = {name: shape for name, shape in shapes.items() if len(shape) > 2}
    layers = all_layers(model)
    series = not pictures and any("Conv1D" in type(each).__name__ for each in layers.values())
    if not series and (found := find_blocks(model)):
        return some_stages(found)
    places: dict[str, Any] = pictures
    if series:
        places = {name: shape for name, shape in shapes.items() if len(shape) == 2}
    sizes = {
        name: shape[1:] if _has_channels(layers[name]) else shape[:-1]
        for name, shape in places.items()
    }
    return some_stages(stages_by_resolution(sizes))


def _has_channels(layer: Any) -> bool:
    """Whether the second axis of what a layer returns holds the features, not the last."""
    return getattr(layer, "data_format", None) == "channels_first"


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
        """Describe an array `batch` as input, the ends of the middle stages, what enters the last
        dense layer, and its output.
        """
        raw = [Layer(INPUT, "input")] if isinstance(batch, np.ndarray) else []
        # The class of a layer may come from another copy of Keras.
        bases = {name: type(each).__mro__ for name, each in all_layers(self.model).items()}
        dense = [name for name, mro in bases.items() if "Dense" in (base.__name__ for base in mro)]
        if not dense:
            return (*raw, Layer(OUTPUT, "output"))
        of_floats = raw and batch.dtype.kind == "f"
        whole = all("int" not in str(each.dtype) for each in input_tensors(self.model).values())
        inside = (Layer(dense[-1] + ENTRANCE, "hidden"), Layer(dense[-1], "output"))
        middle = [Layer(name + MOMENTS, "middle") for name in find_stages(self.model)]
        return (*raw, *middle, *inside) if of_floats and whole else (*middle, *inside)

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
            found[layer] = Read(each, not _has_channels(here))
        return Pass(to_array(raw, "the output"), found)
