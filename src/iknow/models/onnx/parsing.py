"""Parsing: an onnx.ModelProto → its `Graph`.

A file from outside may be wrong in any way. What we rely on is checked here: names are text, and no
node uses what a later one makes. The rest is for onnxruntime to refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from iknow.core.text import shown
from iknow.errors import InputError
from iknow.models.onnx.graph import TEXT, Declared, Graph, Node

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
