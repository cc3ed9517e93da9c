"""File: an ONNX model as bytes, checked before onnxruntime sees them.

A file from outside may be wrong in any way, or hostile. So every protobuf message in it is looked
at, wherever it is: in nodes, inner graphs, functions and their defaults, sparse tensors, training
information. Weights in other files, which could be any file of this machine, must be in the model's
own folder; a model without a folder, as in a bundle, must hold them all. No library of custom
operations is loaded, and operations that read files or run code by themselves are refused. Of the
graph we check what we rely on: names are text, and no node uses what a later one makes. The rest is
for onnxruntime to refuse.

Two protobuf messages, one behind the other, are read as one: lists are joined. So a graph gets more
outputs by a few bytes behind its own, and what the user gave is never changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, SparseTensorProto, TensorProto
from onnx.external_data_helper import load_external_data_for_tensor

from iknow.core.text import name as shown_name
from iknow.core.text import shown
from iknow.errors import ExportError, IknowError, InputError
from iknow.models.onnx.roles import TEXT, Declared, Graph, Node

# Compiled contexts of accelerators are files; the others run what they name, in some builds.
UNSAFE = {"EPContext", "Snpe", "PyOp", "PythonOp", "PythonOpGrad", "ATen", "TritonOp"}
IN_PLACE_OF_A_FILE = "_MEM_ADDR_"  # onnxruntime takes it for an address in memory
LABEL_ATTRIBUTES = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
MOST_LABELS = 1_000_000


@dataclass(frozen=True)
class File:
    """An ONNX model: its name in errors, its bytes, the folder of weights outside of it (None if
    there are none), and what it says about itself.
    """

    name: str
    content: bytes
    folder: str | None
    graph: Graph

    def with_outputs(self, tensors: Iterable[str]) -> bytes:
        """The model with further outputs, which onnxruntime finds the types of."""
        present = {output.name for output in self.graph.outputs}
        more = [onnx.ValueInfoProto(name=name) for name in tensors if name not in present]
        addition = ModelProto(graph=onnx.GraphProto(output=more)).SerializeToString()
        return self.content + addition if more else self.content

    def with_weights(self) -> bytes:
        """The model with all its weights inside; the same bytes if they are."""
        if self.folder is None:
            return self.content
        model = _parse(self.content, self.name)
        for tensor in _external(_messages(model)):
            if tensor.data_location == TensorProto.EXTERNAL:
                load_external_data_for_tensor(tensor, self.folder)
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")
        return serialize(model)


def read_file(model: Any) -> File:
    """An ONNX model from a path or an onnx.ModelProto; one that was read already as it is."""
    if isinstance(model, File):
        return model
    if isinstance(model, ModelProto):
        advice = ": give the path where onnx.save(model, path, save_as_external_data=True) put it"
        return read_bytes(serialize(model, InputError, advice), "the ONNX model")
    if not isinstance(model, (str, os.PathLike)):
        raise InputError(
            "an ONNX model must be the path of a file or an onnx.ModelProto; got "
            f"{shown(model)} of type {type(model).__name__}"
        )
    path = Path(model)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{shown_name(path)} cannot be read: {error.strerror}") from error
    return read_bytes(content, shown_name(path), path.absolute().parent)


def read_bytes(content: bytes, name: str, folder: Path | None = None) -> File:
    """An ONNX model from its bytes; folder: where further files of it may be, None for nowhere."""
    parsed = _parse(content, name)
    messages = list(_messages(parsed))
    _check_weights(messages, name, folder)
    nodes = [each for each in messages if isinstance(each, NodeProto)]
    texts = [text for node in nodes for text in (node.op_type, *node.input, *node.output)]
    texts += [value.name for value in (*parsed.graph.input, *parsed.graph.output)]
    if any(isinstance(text, bytes) for text in texts):
        raise InputError(f"{name} is damaged: it has a name that is not text in UTF-8")
    for node in nodes:
        if node.op_type in UNSAFE:
            raise InputError(
                f"{name} has the operation {node.op_type}, which may read files or run code: that "
                "is not allowed; export the model without it"
            )
        # Batch statistics in place of learned ones: answers would depend on the batch.
        if any(each.name == "training_mode" and each.i for each in node.attribute):
            raise InputError(
                f"{name} was exported in training mode ({node.op_type} {shown(node.name)}): export "
                "it again in eval mode"
            )
    graph = _read_graph(parsed.graph, frozenset(node.op_type for node in nodes))
    return File(name, content, str(folder) if _external(messages) else None, graph)


def serialize(model: Any, error: type[IknowError] = ExportError, advice: str = "") -> bytes:
    """The bytes of an onnx.ModelProto; error: what is raised if it is too large."""
    try:
        return bytes(model.SerializeToString())
    except Exception as cause:  # protobuf's own error, or a ValueError
        raise error(
            f"the ONNX model takes more than 2 GB, which no protobuf message can{advice} ({cause})"
        ) from cause


def _parse(content: bytes, name: str) -> Any:
    try:
        parsed = ModelProto.FromString(content)
        if not parsed.HasField("graph"):
            raise ValueError("it has no graph")
    except Exception as error:  # protobuf's own error, too
        raise InputError(f"{name} is damaged or no ONNX model: {error}") from error
    return parsed


def _messages(model: Any) -> Iterator[Any]:
    """A message and all inside it, but for what is in tensors, whose bytes would be copied."""
    waiting = [model]
    while waiting:
        each = waiting.pop()
        yield each
        for field, value in () if isinstance(each, TensorProto) else each.ListFields():
            if field.message_type is not None:
                waiting.extend([value] if hasattr(value, "ListFields") else value)


def _external(messages: Iterable[Any]) -> list[Any]:
    """The tensors whose values are in other files."""
    tensors = [each for each in messages if isinstance(each, TensorProto)]
    return [t for t in tensors if t.data_location == TensorProto.EXTERNAL or t.external_data]


def _check_weights(messages: Iterable[Any], name: str, folder: Path | None) -> None:
    """Refuse weights in other files than those of the folder, and sparse ones in any."""
    external = _external(messages)
    entries = [entry for tensor in external for entry in tensor.external_data]
    places = [entry.value for entry in entries if entry.key == "location"]
    if external and folder is None:
        raise InputError(
            f"the weights of {name} are in other files ({shown((places or ['?'])[0])}): give the "
            "path of its file instead, or load them by onnx.load"
        )
    for place in places:
        if folder is None or not _is_inside(place, folder):
            raise InputError(
                f"{name} takes weights from {shown(place)}, outside of its own folder: that is not "
                "allowed, since it may be any file of this machine; put the weights beside the "
                "model"
            )
    sparse = [each for each in messages if isinstance(each, SparseTensorProto)]
    if _external(part for each in sparse for part in (each.values, each.indices)):
        raise InputError(  # no exporter does it
            f"{name} has a sparse tensor in another file, which can make onnxruntime crash: keep "
            "sparse tensors inside"
        )


def _is_inside(place: str | bytes, folder: Path) -> bool:
    """Whether a file is in a folder, by its path and by its links."""
    if isinstance(place, bytes) or IN_PLACE_OF_A_FILE in place:  # bytes are no UTF-8
        return False
    pure = PureWindowsPath(place)  # which knows the separators of all systems
    if PurePosixPath(place).is_absolute() or pure.anchor or ".." in pure.parts:
        return False
    try:
        return (folder / place).resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # no name of a file, or a loop of links
        return False


def _read_graph(graph: Any, ops: frozenset[str]) -> Graph:
    """What a graph says about itself, if no node uses what a later one makes."""
    held = [*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)]
    weights = {tensor.name: tensor for tensor in held}
    later = {name for node in graph.node for name in node.output}
    nodes = []
    for node in graph.node:
        if early := later.intersection(node.input) - {""}:
            raise InputError(
                f"the ONNX model is damaged: {node.op_type} uses {shown(min(early))} before it is "
                "made"
            )
        later.difference_update(node.output)
        # Inner graphs use tensors from outside by their names.
        inside = (each for each in _messages(node) if isinstance(each, NodeProto))
        used = tuple(name for each in inside for name in each.input if name)
        made = tuple(filter(None, node.output))
        nodes.append(Node(node.op_type, used, made, _labels(node, weights)))
    inputs = tuple(_declared(value) for value in graph.input if value.name not in weights)
    if not inputs or not nodes:
        raise InputError("the ONNX graph has no inputs or no nodes: it is not a classifier")
    outputs = tuple(map(_declared, graph.output))
    return Graph(inputs, outputs, tuple(nodes), frozenset(weights), ops)


def _declared(value: Any) -> Declared:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return Declared(value.name, (kind or "unknown type").removesuffix("_type"), None)
    tensor, shape = value.type.tensor_type, None
    if tensor.HasField("shape"):  # some exporters write 0 or -1 where a size varies
        shape = tuple(dim.dim_value if dim.dim_value > 0 else None for dim in tensor.shape.dim)
    try:
        kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
    except (KeyError, ValueError, TypeError):
        kind = f"type {tensor.elem_type}"
    return Declared(value.name, TEXT if tensor.elem_type == TensorProto.STRING else kind, shape)


def _labels(node: Any, weights: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Class labels in a node's attributes, or in the list that it picks a label from."""
    listed = [each for each in node.attribute if each.name in LABEL_ATTRIBUTES]
    found: Any = next(filter(None, (each.strings or each.ints for each in listed)), ())
    held = weights.get(next(iter(node.input), ""))
    if not found and node.op_type == "ArrayFeatureExtractor" and held is not None:
        inside = held.data_location != TensorProto.EXTERNAL
        if inside and 0 < np.prod(held.dims) <= MOST_LABELS:
            try:
                found = onnx.numpy_helper.to_array(held).ravel().tolist()
            except Exception:  # the file may be wrong in any way: onnxruntime will say how
                return None
    texts = (each.decode(errors="replace") if isinstance(each, bytes) else each for each in found)
    return tuple(texts) or None
