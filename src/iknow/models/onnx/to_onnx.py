"""To ONNX: the same graph, whose outputs are the scores and the chosen layers under fixed names.

All names inside get a prefix, but those of the inputs, so that none is the name of an output. A few
nodes follow: pooling, flattening, two columns from a single number, positions from labels. Weights
in other files come inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, compose, helper, numpy_helper
from onnx.external_data_helper import load_external_data_for_model

from iknow.core.text import shown
from iknow.errors import ExportError
from iknow.models.export import BELIEF, LAYER, SCORES, cannot_export
from iknow.models.onnx.feeding import feed
from iknow.models.onnx.file import read_bytes
from iknow.models.onnx.graph import has_channels
from iknow.models.onnx.model import MASK, OUTPUT, OnnxModel
from iknow.models.onnx.running import run
from iknow.models.onnx.session import Session
from iknow.models.scores import meaning_of

PREFIX, AFTER = "model/", "after/"
ML = "ai.onnx.ml"
FIRST_WITH_KINDS = 2  # the version of ai.onnx.ml since which LabelEncoder maps any type to another
AXES_AS_INPUT = 18  # since this version of ai.onnx ReduceMean takes its axes as an input
SINGLE, DOUBLE, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64


def to_onnx(model: OnnxModel, layers: Sequence[str], inputs: Any) -> bytes:
    """The ONNX file of an ONNX model; see `iknow.models.export`."""
    if model._roles.scores is None:
        raise ExportError(
            "scores= is a function, which cannot become a part of the graph: name a tensor, or "
            "add the scores to the graph as an output"
        )
    try:
        proto = ModelProto.FromString(model._file.content)
        if model._file.folder is not None:
            load_external_data_for_model(proto, model._file.folder)
        proto = compose.add_prefix(proto, PREFIX, rename_inputs=False, rename_functions=False)
        return _with_outputs(model, layers, inputs, proto)
    except Exception as error:  # of a graph that onnx cannot change, or of more than 2 GB
        raise cannot_export(model._name, error) from error


def _with_outputs(model: OnnxModel, layers: Sequence[str], inputs: Any, proto: Any) -> bytes:
    """A graph with the outputs that a portable one has, in place of its own."""
    roles, after = model._roles, _Nodes(model)
    ranks = _find_ranks(model, layers, inputs)
    scores = after.columns(after.place(str(roles.scores)), meaning_of(model._option))
    given = {SCORES: scores}
    for layer in layers:
        place = model._place(layer)
        inside = place != OUTPUT or OUTPUT in model.tensors
        values = after.place(place) if inside else scores
        given[f"{LAYER}{layer}"] = after.layer(layer, values, ranks.get(place, 2))
    if roles.label is not None and roles.classes is not None:
        given[BELIEF] = after.codes(after.place(roles.label), roles.classes)
        _allow_label_encoder(proto)
    for each in model._graph.inputs:
        if each.name in given or each.name.startswith((PREFIX, AFTER)):
            raise ExportError(f"the input {shown(each.name)} has the name of an output: rename it")
    after.nodes += [helper.make_node("Identity", [made], [name]) for name, made in given.items()]
    proto.graph.node.extend(after.nodes)
    proto.graph.initializer.extend(after.constants)
    del proto.graph.output[:]
    proto.graph.output.extend(ValueInfoProto(name=name) for name in given)
    made = read_bytes(proto.SerializeToString(), model._name)
    found = run(Session(made), list(given), feed(inputs[np.arange(1)], model._graph), 1)
    del proto.graph.output[:]
    proto.graph.output.extend(_declare(name, values) for name, values in found.items())
    return bytes(proto.SerializeToString())


def _declare(name: str, values: Any) -> Any:
    """An output whose type and width are those of one sample's."""
    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    return helper.make_tensor_value_info(name, kind, [None, *values.shape[1:]])


class _Nodes:
    """The nodes that come after a graph, and their constants."""

    def __init__(self, model: OnnxModel) -> None:
        self._pooling, self._graph = model._pooling, model._graph
        versions = {each.domain: each.version for each in _opsets(model._file.content)}
        self._version = versions.get("", versions.get("ai.onnx", 1))
        self._given = {each.name for each in self._graph.inputs}
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def place(self, tensor: str) -> str:
        """The name of a tensor of the graph, now that its names have a prefix."""
        return tensor if tensor in self._given else PREFIX + tensor

    def columns(self, scores: str, meaning: str | None) -> str:
        """Scores with a column for each class; a single number becomes two columns."""
        if meaning is None:
            return scores
        one = self._add("Cast", [self._add("Flatten", [scores], axis=1)], to=DOUBLE)
        half = [self._add("Mul", [one, self._constant(sign / 2)]) for sign in (-1.0, 1.0)]
        rest = [self._add("Sub", [self._constant(1.0), one]), one]
        return self._add("Concat", half if meaning == "logit" else rest, axis=1)

    def layer(self, layer: str, values: str, rank: int) -> str:
        """The activations of a layer, pooled, of shape (n, n_features)."""
        way = self._pooling.of(layer)
        if callable(way) and (rank > 2 or self._pooling.is_by_layer):
            raise ExportError(
                f"layer {layer!r} is pooled by a function of arrays, which cannot become a graph: "
                "use 'mean', 'cls' or 'last'"
            )
        if way is not None and rank > 2:
            channels = has_channels(self._graph, layer)
            if MASK in self._given and not channels:
                raise ExportError(
                    f"layer {layer!r} is pooled over the tokens of an attention mask, which is not "
                    "supported for ONNX models: choose a tensor with one vector per sample"
                )
            values = self._pool(values, str(way), rank, channels=channels)
        return self._add("Flatten", [self._add("Cast", [values], to=SINGLE)], axis=1)

    def codes(self, label: str, classes: Sequence[Any]) -> str:
        """The positions of labels, of shape (n,)."""
        flat = self._add("Reshape", [label, self._constant(np.array([-1]))])
        values = {"values_int64s": list(range(len(classes))), "default_int64": -1}
        if all(isinstance(each, str) for each in classes):
            return self._add("LabelEncoder", [flat], ML, keys_strings=list(classes), **values)
        whole = self._add("Cast", [flat], to=INT64)
        return self._add("LabelEncoder", [whole], ML, keys_int64s=list(classes), **values)

    def _pool(self, values: str, way: str, rank: int, *, channels: bool) -> str:
        if way != "mean":
            place = self._constant(np.array(0 if way == "cls" else -1))
            return self._add("Gather", [values, place], axis=1)
        wide = self._add("Cast", [values], to=DOUBLE)
        axes = list(range(2, rank) if channels else range(1, rank - 1))
        if self._version < AXES_AS_INPUT:
            return self._add("ReduceMean", [wide], axes=axes, keepdims=0)
        return self._add("ReduceMean", [wide, self._constant(np.array(axes))], keepdims=0)

    def _add(self, op: str, inputs: list[str], domain: str = "", **attributes: Any) -> str:
        output = f"{AFTER}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], domain=domain, **attributes))
        return output

    def _constant(self, value: Any) -> str:
        name = f"{AFTER}constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name


def _find_ranks(model: OnnxModel, layers: Sequence[str], inputs: Any) -> dict[str, int]:
    """The number of axes of the tensors that are layers, seen on one sample."""
    few = inputs[np.arange(1)]
    places = [model._place(layer) for layer in layers]
    inside = [each for each in dict.fromkeys(places) if each in model._graph.makers]
    feeds = feed(few, model._graph)
    found = (run(model._session, inside, feeds, 1) if inside else {}) | feeds
    return {name: values.ndim for name, values in found.items()}


def _opsets(content: bytes) -> Any:
    return ModelProto.FromString(content).opset_import


def _allow_label_encoder(proto: Any) -> None:
    known = [each for each in proto.opset_import if each.domain == ML]
    if known and known[0].version < FIRST_WITH_KINDS:
        known[0].version = FIRST_WITH_KINDS
    if not known:
        proto.opset_import.append(helper.make_opsetid(ML, FIRST_WITH_KINDS))
