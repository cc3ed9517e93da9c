"""Builder: an ONNX graph, written one operation at a time.

A `Tensor` is a name together with what we know about it: numbers or text, and how many columns. An
operation takes tensors and arrays, which become constants, and gives a tensor. Graphs that other
packages made are joined in under a prefix of their own, so no two names collide.

All numbers are computed in double precision, as scikit-learn does, unless somebody casts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, compose, helper, numpy_helper
from onnx.helper import make_attribute

from iknow.errors import ExportError

__all__ = ["Builder", "Tensor", "attributes_of", "make_attribute"]

OPSETS = {"": 18, "ai.onnx.ml": 3}
IR_VERSION = 8
TEXT = "text"
ELEMENTS = {
    "float64": TensorProto.DOUBLE,
    "float32": TensorProto.FLOAT,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
    TEXT: TensorProto.STRING,
}
INNER = "iknow/"  # begins all names but those of inputs and outputs


@dataclass(frozen=True)
class Tensor:
    """A tensor of a graph.

    Attributes:
        name: Its name.
        kind: The name of numpy's dtype, or `TEXT`.
        width: The number of its columns; None if it has one axis, that of the samples.
    """

    name: str
    kind: str
    width: int | None


class Builder:
    """A graph in the making."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._weights: list[Any] = []
        self._functions: list[Any] = []
        self._opsets = dict(OPSETS)
        self.refused: list[Tensor] = []
        self._n_names = 0

    def input(self, name: str, kind: str, width: int | None) -> Tensor:
        """Return a new input of the graph, of shape (n, width), or (n,) without a width."""
        if name.startswith(INNER) or any(each.name == name for each in self._inputs):
            raise ExportError(f"an input cannot be called {name!r}: rename the column")
        tensor = Tensor(name, kind, width)
        self._inputs.append(_declared(tensor))
        return tensor

    def op(
        self,
        name: str,
        *inputs: Tensor | NDArray[Any],
        kind: str | None = None,
        width: int | None = -1,
        domain: str = "",
        **attributes: Any,
    ) -> Tensor:
        """Return what an operation makes of tensors and constants.

        kind, width: those of the result; by default those of the first tensor.
        """
        first = next((each for each in inputs if isinstance(each, Tensor)), None)
        like = first or Tensor("", "float64", None)
        made = Tensor(self._new(), kind or like.kind, like.width if width == -1 else width)
        names = [each.name if isinstance(each, Tensor) else self.constant(each) for each in inputs]
        self._nodes.append(
            helper.make_node(name, names, [made.name], made.name, domain=domain, **attributes)
        )
        return made

    def cast(self, tensor: Tensor, kind: str) -> Tensor:
        """Return a tensor in another type."""
        if tensor.kind == kind:
            return tensor
        return self.op("Cast", tensor, kind=kind, to=ELEMENTS[kind])

    def concat(self, tensors: list[Tensor]) -> Tensor:
        """Return tensors side by side; all have the same kind."""
        if len(tensors) == 1:
            return tensors[0]
        width = sum(each.width or 0 for each in tensors)
        return self.op("Concat", *tensors, width=width, axis=1)

    def columns(self, tensor: Tensor, which: NDArray[np.int64]) -> Tensor:
        """Return some of the columns of a tensor."""
        return self.op("Gather", tensor, np.asarray(which, np.int64), width=len(which), axis=1)

    def reduce(self, name: str, tensor: Tensor) -> Tensor:
        """Return a reduction over the columns, such as ReduceSum, with one column left."""
        return self.op(name, tensor, np.array([1]), width=1, keepdims=1)

    def constant(self, values: NDArray[Any]) -> str:
        """Return the name of a new constant."""
        name = self._new()
        self._weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def refuse(self, which: Tensor) -> None:
        """Let the model give no answer for some samples; which: bools of shape (n,) or (n, 1)."""
        self.refused.append(which)

    def join(self, model: ModelProto, feeds: Mapping[str, Tensor]) -> dict[str, str]:
        """Take in a whole model; return the new names of its outputs by their old ones.

        feeds: the tensors for its inputs, by their names.
        """
        prefix = f"{self._new()}/"
        found: ModelProto = compose.add_prefix(model, prefix)
        for name, tensor in feeds.items():
            self._nodes.append(helper.make_node("Identity", [tensor.name], [prefix + name]))
        self._nodes.extend(found.graph.node)
        self._weights.extend(found.graph.initializer)
        self._functions.extend(found.functions)
        for opset in found.opset_import:
            self._opsets.setdefault(opset.domain, opset.version)
        return {each.name: prefix + each.name for each in model.graph.output}

    def finish(self, outputs: Mapping[str, Tensor]) -> bytes:
        """Return the model with these outputs, serialized."""
        given = {each.name for each in self._inputs}
        if taken := sorted(given.intersection(outputs)):
            raise ExportError(f"an input cannot be called {taken[0]!r}: rename the column")
        named = [replace(tensor, name=name) for name, tensor in outputs.items()]
        ends = [
            helper.make_node("Identity", [tensor.name], [name]) for name, tensor in outputs.items()
        ]
        graph = helper.make_graph(
            [*self._nodes, *ends],
            "iknow",
            self._inputs,
            [_declared(each) for each in named],
            self._weights,
        )
        opsets = [helper.make_opsetid(domain, version) for domain, version in self._opsets.items()]
        model = helper.make_model(
            graph,
            opset_imports=opsets,
            ir_version=IR_VERSION,
            producer_name="iknow",
            functions=self._functions,
        )
        try:
            return bytes(model.SerializeToString())
        except Exception as error:  # protobuf's own error, or a ValueError
            raise ExportError(
                "the model takes more than 2 GB as ONNX, which one file cannot hold"
            ) from error

    def _new(self) -> str:
        self._n_names += 1
        return f"{INNER}{self._n_names}"


def attributes_of(node: Any) -> dict[str, Any]:
    """The attributes of a node by name."""
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


def _declared(tensor: Tensor) -> Any:
    shape: list[str | int | None] = ["n"] if tensor.width is None else ["n", tensor.width]
    return helper.make_tensor_value_info(tensor.name, ELEMENTS[tensor.kind], shape)
