"""Graph: what an ONNX model says about itself, read without running it.

Its nodes come in an order in which each uses only what earlier ones made. From their names we find
the tensors, what each depends on, and which never change; the weights are left where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from iknow.core.text import name as shown_name
from iknow.core.text import shown
from iknow.errors import InputError
from iknow.locking import cached_property

TEXT = "text"
LABEL_ATTRIBUTES = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
MOST_LABELS = 1_000_000


@dataclass(frozen=True)
class Declared:
    """An input or an output of a graph as the file declares it.

    Attributes:
        name: Its name.
        kind: The name of numpy's dtype, `TEXT`, or for anything but a tensor a word for it.
        shape: One entry per axis, None where it varies; None if the rank is unknown.
    """

    name: str
    kind: str
    shape: tuple[int | None, ...] | None

    @property
    def is_float(self) -> bool:
        return self.kind in ("float16", "float32", "float64")

    def __str__(self) -> str:
        axes = (
            "?"
            if self.shape is None
            else ", ".join("?" if d is None else str(d) for d in self.shape)
        )
        return f"{shown_name(self.name)!r} ({self.kind} of shape ({axes}))"


@dataclass(frozen=True)
class Node:
    """One operation: the tensors it uses, including those used by graphs inside it, and makes.

    labels: the class labels that it holds, if any.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    labels: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Graph:
    """The nodes of a model's graph by their tensors.

    Attributes:
        inputs: What the caller must give.
        outputs: What the graph returns.
        nodes: Its operations, in order.
        weights: Names of the tensors that the file holds.
        ops: Names of all operations, also those in functions and in graphs inside nodes.
    """

    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]
    nodes: tuple[Node, ...]
    weights: frozenset[str]
    ops: frozenset[str]

    @cached_property
    def makers(self) -> Mapping[str, Node]:
        """The node that makes each tensor."""
        return {name: node for node in self.nodes for name in node.outputs}

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """Names of all tensors that may depend on a sample, in the order of their making."""
        made = (name for node in self.nodes for name in node.outputs)
        named = [tensor.name for tensor in self.inputs] + [*made]
        return tuple(dict.fromkeys(name for name in named if name not in self.constants))

    @cached_property
    def constants(self) -> frozenset[str]:
        """Names of the tensors that are the same for every sample: weights, and what they make."""
        found = set(self.weights)
        for node in self.nodes:
            if not node.op.startswith("Random") and found.issuperset(node.inputs):
                found.update(node.outputs)
        return frozenset(found)

    def ancestors(self, tensor: str) -> frozenset[str]:
        """The tensor itself and all that it is made from."""
        found: set[str] = set()
        waiting = [tensor]
        while waiting:
            if (each := waiting.pop()) not in found:
                found.add(each)
                waiting.extend(self.makers[each].inputs if each in self.makers else ())
        return frozenset(found)


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
        if attribute.type == AttributeProto.GRAPH:
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
