"""File: an ONNX model as bytes, and as bytes with more of its tensors as outputs.

Two protobuf messages, one behind the other, are read as one: lists are joined. So a graph gets more
outputs by a few bytes behind its own, and what the user gave is never changed. Nothing in a file
can run code: onnxruntime loads libraries of custom operations only when told to, and is not.

Weights may lie in further files, which a hostile model could name: they must be in its folder.

Parsing: an onnx.ModelProto → its `Graph`. A file from outside may be wrong in any way. What we rely
on is checked here: names are text, and no node uses what a later one makes. The rest is for
onnxruntime to refuse.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from iknow.core.text import name as shown_name
from iknow.core.text import shown
from iknow.errors import InputError
from iknow.models.onnx.graph import TEXT, Declared, Graph, Node

IN_MEMORY = "the ONNX model"
TOO_LARGE = (
    "the ONNX model takes more than 2 GB, which no protobuf message can: save it by "
    "onnx.save(model, path, save_as_external_data=True) and give the path"
)


@dataclass(frozen=True)
class File:
    """An ONNX model.

    Attributes:
        name: What it is called in errors.
        content: Its bytes.
        folder: Where weights outside of it are; None if it has none.
        graph: What it says about itself.
    """

    name: str
    content: bytes
    folder: str | None
    graph: Graph

    def with_outputs(self, tensors: Iterable[str]) -> bytes:
        """The model with further outputs, which onnxruntime finds the types of."""
        present = {output.name for output in self.graph.outputs}
        more = [ValueInfoProto(name=name) for name in tensors if name not in present]
        addition = ModelProto(graph=GraphProto(output=more)).SerializeToString() if more else b""
        return self.content + addition


def read_file(model: Any) -> File:
    """An ONNX model from a path or an onnx.ModelProto; one that was read already as it is."""
    if isinstance(model, File):
        return model
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        return read_bytes(_read(path), shown_name(os.fspath(path)), path.absolute().parent)
    if isinstance(model, ModelProto):
        return read_bytes(_serialize(model), IN_MEMORY)
    raise InputError(
        "an ONNX model must be the path of a file or an onnx.ModelProto; got "
        f"{shown(model)} of type {type(model).__name__}"
    )


def read_bytes(content: bytes, name: str, folder: Path | None = None) -> File:
    """An ONNX model from its bytes; folder: where further files of it may be, None for nowhere."""
    parsed = _parse(content, name)
    outside = sorted({place for tensor in _tensors(parsed) for place in _places(tensor)})
    if outside and folder is None:
        raise InputError(
            f"the weights of {name} are in other files ({shown(outside[0])}): give the path of "
            "its file instead, or load them by onnx.load"
        )
    for place in outside:
        _check_inside(place, folder, name)
    _check_exported_for_use(parsed, name)
    return File(name, content, str(folder) if outside else None, read_graph(parsed))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{shown_name(path)} cannot be read: {error.strerror}") from error


def _serialize(model: Any) -> bytes:
    try:
        return bytes(model.SerializeToString())
    except Exception as error:  # protobuf's own error, or a ValueError
        raise InputError(f"{TOO_LARGE} ({error})") from error


def _parse(content: bytes, name: str) -> Any:
    try:
        parsed = ModelProto.FromString(content)
    except Exception as error:  # protobuf's own error
        raise InputError(
            f"{name} is damaged or no ONNX model: it cannot be read as one ({error})"
        ) from error
    if not parsed.HasField("graph"):
        raise InputError(f"{name} is damaged or no ONNX model: it has no graph")
    return parsed


def _tensors(model: Any) -> Iterator[Any]:
    """All tensors that a model holds, also those in its nodes, functions and inner graphs."""
    graphs, nodes = [model.graph], [node for each in model.functions for node in each.node]
    while graphs:
        each = graphs.pop()
        yield from each.initializer
        for sparse in each.sparse_initializer:
            yield from (sparse.values, sparse.indices)
        nodes.extend(each.node)
        while nodes:
            for attribute in nodes.pop().attribute:
                graphs.extend([attribute.g] if attribute.HasField("g") else [])
                graphs.extend(attribute.graphs)
                yield attribute.t
                yield from attribute.tensors


def _places(tensor: Any) -> Iterator[str]:
    if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
        yield from (entry.value for entry in tensor.external_data if entry.key == "location")


def _check_inside(place: str, folder: Path | None, name: str) -> None:
    """Refuse weights outside of the model's folder, by their path or by a link."""
    pure = PureWindowsPath(place)  # which knows the separators of all systems
    if PurePosixPath(place).is_absolute() or pure.anchor or ".." in pure.parts:
        inside = False
    else:
        inside = folder is not None and (folder / place).resolve().is_relative_to(folder.resolve())
    if not inside:
        raise InputError(
            f"{name} takes weights from {shown(place)}, outside of its own folder: that is not "
            "allowed, since it may be any file of this machine; put the weights beside the model"
        )


def _check_exported_for_use(model: Any, name: str) -> None:
    """Refuse batch statistics in place of learned ones: answers would depend on the batch."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "training_mode" and attribute.i:
                raise InputError(
                    f"{name} was exported in training mode ({node.op_type} "
                    f"{shown(node.name)}): export it again in eval mode"
                )


LABEL_ATTRIBUTES = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
MOST_LABELS = 1_000_000


def read_graph(model: Any) -> Graph:
    """The graph of an onnx.ModelProto."""
    graph = model.graph
    _check_text(graph)
    _check_order(graph)
    held = [*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)]
    weights = {tensor.name: tensor for tensor in held}
    nodes = tuple(_read_node(node, weights) for node in graph.node)
    inputs = tuple(_declared(value) for value in graph.input if value.name not in weights)
    if not inputs or not nodes:
        raise InputError("the ONNX graph has no inputs or no nodes: it is not a classifier")
    functions = (node for function in model.functions for node in function.node)
    ops = frozenset(node.op_type for node in _all_nodes([*graph.node, *functions]))
    outputs = tuple(map(_declared, graph.output))
    return Graph(inputs, outputs, nodes, frozenset(weights), ops)


def _check_text(graph: Any) -> None:
    """Refuse names that are no UTF-8, which protobuf gives as bytes."""
    values = (value.name for value in (*graph.input, *graph.output))
    parts = ((node.op_type, *node.input, *node.output) for node in _all_nodes(graph.node))
    if any(isinstance(text, bytes) for text in (*values, *chain.from_iterable(parts))):
        raise InputError("the ONNX model is damaged: it has a name that is not text in UTF-8")


def _check_order(graph: Any) -> None:
    """Refuse nodes that use what a later one makes: we walk back from node to node."""
    later = {name for node in graph.node for name in node.output}
    for node in graph.node:
        if early := later.intersection(node.input) - {""}:
            raise InputError(
                f"the ONNX model is damaged: {node.op_type} uses {shown(min(early))} before it is "
                "made"
            )
        later.difference_update(node.output)


def _declared(value: Any) -> Declared:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return Declared(value.name, (kind or "unknown type").removesuffix("_type"), None)
    tensor = value.type.tensor_type
    shape = None
    if tensor.HasField("shape"):  # some exporters write 0 or -1 where a size varies
        shape = tuple(dim.dim_value if dim.dim_value > 0 else None for dim in tensor.shape.dim)
    return Declared(value.name, _kind(tensor.elem_type), shape)


def _kind(element: int) -> str:
    if element == TensorProto.STRING:
        return TEXT
    try:
        return str(np.dtype(helper.tensor_dtype_to_np_dtype(element)).name)
    except (KeyError, ValueError, TypeError):
        return f"type {element}"


def _read_node(node: Any, weights: Mapping[str, Any]) -> Node:
    given = [*node.input, *_captured(node)]
    used, made = (tuple(name for name in names if name) for names in (given, node.output))
    return Node(node.op_type, used, made, _labels(node, weights))


def _labels(node: Any, weights: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Class labels in a node's attributes, or in the list that it picks a label from."""
    for attribute in node.attribute:
        if attribute.name in LABEL_ATTRIBUTES and (attribute.strings or attribute.ints):
            return tuple(_text(each) for each in attribute.strings) or tuple(attribute.ints)
    if node.op_type == "ArrayFeatureExtractor" and node.input and node.input[0] in weights:
        held = weights[node.input[0]]
        inside = held.data_location != TensorProto.EXTERNAL
        if inside and 0 < np.prod(held.dims) <= MOST_LABELS:
            try:
                values = numpy_helper.to_array(held).ravel().tolist()
            except Exception:  # the file may be wrong in any way: onnxruntime will say how
                return None
            return tuple(_text(each) if isinstance(each, bytes) else each for each in values)
    return None


def _text(label: bytes) -> str:
    return label.decode("utf-8", errors="replace")


def _graphs_in(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _captured(node: Any) -> Iterator[str]:
    """Names that graphs inside a node use, among them all tensors from outside."""
    return (name for inner in _all_nodes([node]) if inner is not node for name in inner.input)


def _all_nodes(nodes: Iterable[Any]) -> Iterator[Any]:
    """These nodes and those of all graphs inside them."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(inner for graph in _graphs_in(node) for inner in graph.node)
