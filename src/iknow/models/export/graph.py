"""Graph: an ONNX graph, written one operation at a time.

A `Tensor` is a name together with what we know about it: numbers or text, and how many columns. An
operation takes tensors, arrays and numbers, which become constants, and gives a tensor. Graphs that
other packages made are joined in under a prefix of their own, so no two names collide.

All numbers are computed in double precision, as scikit-learn does, unless an operation casts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, compose, helper, numpy_helper

from iknow.core.text import shown
from iknow.errors import ExportError
from iknow.models.inputs import is_missing
from iknow.models.onnx.file import serialize

ML = "ai.onnx.ml"
OPSETS = {"": 18, ML: 3}
LABELS, TREES = "LabelEncoder", "TreeEnsemble"  # the operations of ai.onnx.ml in use
TREES_OPSET = 5  # the first version of ai.onnx.ml with TREES, which takes the place of OLD
OLD = {"TreeEnsembleClassifier", "TreeEnsembleRegressor"}
IR_VERSION = 10
TEXT = "object"
TESTS = ("Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual")
INNER = "iknow/"  # begins all names but those of inputs and outputs


@dataclass(frozen=True)
class Tensor:
    """A tensor of a graph, of shape (n, width), or (n,) without a width."""

    name: str
    kind: str  # the name of numpy's dtype, `TEXT` for text
    width: int | None


Given = Tensor | NDArray[Any] | float
"""What an operation takes; a plain number becomes a constant of the first tensor's kind."""


class Builder:
    """A graph in the making."""

    def __init__(self) -> None:
        self._model = ModelProto(ir_version=IR_VERSION, producer_name="iknow")
        self._graph = self._model.graph
        self._graph.name = "iknow"
        self._opsets = dict(OPSETS)
        self._numbers = count(1)
        self.refused: list[Tensor] = []  # samples without an answer: bools of shape (n,) or (n, 1)
        self.texts: set[str] = set()  # all that some part tells from others

    def input(self, name: str, kind: str, width: int | None) -> Tensor:
        """Return a new input of the graph."""
        tensor = Tensor(name, kind, width)
        self._graph.input.append(_declared(tensor))
        return tensor

    def op(
        self,
        name: str,
        *inputs: Given,
        kind: str | None = None,
        width: int | None = -1,
        **attributes: Any,
    ) -> Tensor:
        """Return what an operation makes of tensors and constants.

        kind, width: those of the result; by default those of the first tensor, and bools of a test.
        """
        first = next(each for each in inputs if isinstance(each, Tensor))
        known = kind or ("bool" if name in TESTS else first.kind)
        made = Tensor(self._new(), known, first.width if width == -1 else width)
        attributes["domain"] = ML if name in (LABELS, TREES) else ""
        names = [self._name(each, first.kind) for each in inputs]
        node = helper.make_node(name, names, [made.name], made.name, **attributes)
        self._graph.node.append(node)
        return made

    def cast(self, tensor: Tensor, kind: str) -> Tensor:
        if tensor.kind == kind:
            return tensor
        element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        return self.op("Cast", tensor, kind=kind, to=element)

    def concat(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return tensors side by side; all have the same kind."""
        kept = [each for each in tensors if each.width]
        if not kept:
            raise ExportError("a step leaves no column, and nothing can follow: leave it out")
        width = sum(each.width or 0 for each in kept)
        return kept[0] if len(kept) == 1 else self.op("Concat", *kept, width=width, axis=1)

    def mean(self, tensors: Sequence[Tensor], weight: float) -> Tensor:
        """Return the sum divided by a weight: scikit-learn adds up first, so ties are the same."""
        return self.op("Div", self.op("Sum", *tensors), float(weight))

    def columns(self, tensor: Tensor, which: Any) -> Tensor:
        return self.op("Gather", tensor, np.asarray(which, np.int64), width=len(which), axis=1)

    def flat(self, tensor: Tensor) -> Tensor:
        """Return a tensor of one column as one of shape (n,)."""
        return self.op("Reshape", tensor, np.array([-1]), width=None)

    def column(self, tensor: Tensor) -> Tensor:
        """Return a tensor of shape (n,) as one of one column."""
        return self.op("Reshape", tensor, np.array([-1, 1]), width=1)

    def reduce(self, name: str, tensor: Tensor) -> Tensor:
        """Return a reduction over the columns, such as ReduceSum, with one column left."""
        return self.op(name, tensor, np.array([1]), width=1, keepdims=1)

    def where(self, which: Given, then: Given, other: Given) -> Tensor:
        """Return one or the other; the result is as wide as the first of them that is a tensor."""
        like = then if isinstance(then, Tensor) else other
        assert isinstance(like, Tensor)
        pair = (_as_array(each, like.kind) for each in (then, other))
        return self.op("Where", which, *pair, kind=like.kind, width=like.width)

    def look_up(self, table: NDArray[Any], codes: Tensor) -> Tensor:
        """Return the entries, or the rows, of a table."""
        width = codes.width if table.ndim == 1 else table.shape[1]
        return self.op("Gather", table, codes, kind=str(table.dtype), width=width, axis=0)

    def codes(self, column: Tensor, known: Any, *, refuses: bool = False) -> Tensor:
        """Return the position of each value among the known ones; of others, how many are known.

        column: of shape (n, 1). The result has shape (n,). refuses: whether others are refused.
        """
        values = list(np.asarray(known, dtype=object).ravel().tolist())
        present = {each: i for i, each in enumerate(values) if not is_missing(each)}
        shows = shown(values[:5])
        if column.kind == TEXT:  # a missing one cannot enter a graph, so nothing compares equal
            if not present or not all(isinstance(each, str) for each in present):
                raise ExportError(f"a column of text was encoded as {shows}")
            self.texts |= present.keys()
            pairs: Any = {"keys_strings": [*present], "values_int64s": [*present.values()]}
            texts = self.flat(column)
            codes = self.op(LABELS, texts, kind="int64", default_int64=len(values), **pairs)
        else:
            try:
                numbers = np.array([float(each) if each in present else np.nan for each in values])
            except (TypeError, ValueError) as error:
                raise ExportError(f"a column of numbers was encoded as {shows}") from error
            x, n = self.cast(column, "float64"), len(numbers)
            same = self.op("Equal", x, numbers[None], width=n)
            if np.isnan(numbers).any():
                gap = self.op("And", self.op("IsNaN", x), np.isnan(numbers)[None], width=n)
                same = self.op("Or", same, gap)
            half = np.array([0, 0, 0, 1]), np.array(0.5)  # in a last column, for none of them
            codes = self.answer(self.op("Pad", self.cast(same, "float64"), *half, width=n + 1))
        if refuses:
            self.refused.append(self.op("Equal", codes, len(values)))
        return codes

    def answer(self, decision: Tensor, bound: float = 0.0) -> Tensor:
        """The position of the highest column, the first of equals; of one, 1 above a bound."""
        if decision.width == 1:
            return self.cast(self.flat(self.op("Greater", decision, bound)), "int64")
        return self.op("ArgMax", decision, kind="int64", width=None, axis=1, keepdims=0)

    def chances(self, margin: Tensor, *, apart: bool = False) -> Tensor:
        """Return the probabilities of margins; one column is for the second of two classes.

        apart: whether each column has a probability of its own, whatever the others are.
        """
        if margin.width == 1:
            return self.both_columns(self.sigmoid(margin))
        return self.sigmoid(margin) if apart else self.op("Softmax", margin, axis=1)

    def both_columns(self, chance: Tensor) -> Tensor:
        """Return the probabilities of two classes, from that of the second one."""
        return self.concat([self.op("Sub", 1.0, chance), chance])

    def both_signs(self, decision: Tensor) -> Tensor:
        """Return the scores of two classes, from the decision for the second one."""
        return self.concat([self.op("Neg", decision), decision])

    def linear(self, x: Tensor, weights: Any, offset: Any) -> Tensor:
        """Return the product x @ weights + offset, of shape (n, n_columns)."""
        matrix = np.asarray(weights, np.float64)
        product = self.op("MatMul", x, matrix, width=matrix.shape[1])
        return self.op("Add", product, np.atleast_1d(np.asarray(offset, np.float64)))

    def sigmoid(self, x: Tensor) -> Tensor:
        """Return 1 / (1 + exp(-x)); onnxruntime's own is exact to single precision only near 0."""
        return self.op("Div", 1.0, self.op("Add", self.op("Exp", self.op("Neg", x)), 1.0))

    def normalized(self, chances: Tensor) -> Tensor:
        """Return chances divided by their sum; all the same where that is 0."""
        is_zero = self.op("Equal", self.reduce("ReduceSum", chances), 0.0)
        filled = self.where(is_zero, 1.0, chances)
        return self.op("Div", filled, self.reduce("ReduceSum", filled))

    def join(self, model: ModelProto, x: Tensor) -> dict[str, str]:
        """Take in a model of one input; return the new names of its outputs by their old ones."""
        prefix = f"{self._new()}/"
        found: ModelProto = compose.add_prefix(model, prefix)
        entrance = found.graph.input[0].name
        self._graph.node.append(helper.make_node("Identity", [x.name], [entrance]))
        self._graph.node.extend(found.graph.node)
        self._graph.initializer.extend(found.graph.initializer)
        self._model.functions.extend(found.functions)
        for opset in found.opset_import:
            self._opsets.setdefault(opset.domain, opset.version)
        return {each.name: prefix + each.name for each in model.graph.output}

    def finish(self, outputs: Mapping[str, Tensor]) -> bytes:
        """Return the model with these outputs, serialized."""
        for name in (each.name for each in self._graph.input):
            if name in outputs or name.startswith(INNER):
                raise ExportError(f"an input cannot be called {name!r}: rename the column")
        kinds = {each.op_type for each in self._graph.node}
        if TREES in kinds:
            self._opsets[ML] = TREES_OPSET
        if TREES in kinds and kinds & OLD:
            raise ExportError(
                "trees that skl2onnx writes cannot be in one graph with those that iknow writes: "
                "use trees outside OneVsRestClassifier and its like"
            )
        for name, tensor in outputs.items():
            self._graph.node.append(helper.make_node("Identity", [tensor.name], [name]))
            self._graph.output.append(_declared(replace(tensor, name=name)))
        self._model.opset_import.extend(helper.make_opsetid(*each) for each in self._opsets.items())
        return serialize(self._model)

    def _name(self, given: Given, kind: str) -> str:
        if isinstance(given, Tensor):
            return given.name
        name = self._new()
        self._graph.initializer.append(numpy_helper.from_array(_as_array(given, kind), name))
        return name

    def _new(self) -> str:
        return f"{INNER}{next(self._numbers)}"


def _as_array(given: Any, kind: str) -> Any:
    """A plain number as an array; all else as it is."""
    return np.array(given, kind) if isinstance(given, (int, float)) else given


def _declared(tensor: Tensor) -> Any:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(tensor.kind))
    shape: list[str | int | None] = ["n"] if tensor.width is None else ["n", tensor.width]
    return helper.make_tensor_value_info(tensor.name, element, shape)
