"""File: an ONNX model as bytes, and as bytes with more of its tensors as outputs.

Two protobuf messages, one behind the other, are read as one: lists are joined. So a graph gets more
outputs by a few bytes behind its own, and what the user gave is never changed. Nothing in a file
can run code: onnxruntime loads libraries of custom operations only when told to, and is not.

Weights may lie in further files, which a hostile model could name: they must be in its folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto

from iknow.core.text import name as shown_name
from iknow.core.text import shown
from iknow.errors import InputError
from iknow.models.onnx.graph import Graph
from iknow.models.onnx.parsing import read_graph

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
