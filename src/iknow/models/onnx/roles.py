"""Roles: what an ONNX graph says about itself, read without running it.

Its nodes come in an order in which each uses only what earlier ones made. From their names we find
the tensors, what each depends on, which never change, and which have a role:

scores    The last output that looks like class scores: floats of shape (n, C), C >= 2, that no
          other such output is made from (an embedding feeds the logits, not the other way round).
          A ZipMap, as scikit-learn's converter ends a graph, turns scores into a list of dicts: the
          scores are what enters it.
label     An output that a classifier's node, or a list of labels, gives. It is the belief then,
          which need not be the highest score (a support vector machine votes).
features  What enters the last product with weights on the way to the scores. Trees and other
          classical models have no features of their own: it is the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iknow.core.text import name as shown_name
from iknow.core.text import names, shown
from iknow.errors import InputError
from iknow.locking import cached_property
from iknow.models.scores import SINGLE, USUAL_NAME

TEXT = "text"
PRODUCTS = {"MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "QGemm", "FusedMatMul", "FusedGemm",
            "MatMulNBits", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"}  # fmt: skip
CLASSICAL = {"LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier", "TreeEnsembleRegressor",
             "TreeEnsemble", "LinearRegressor", "SVMRegressor"}  # fmt: skip
PASSING = {"Identity", "Cast", "Dropout"}
RESHAPING = PASSING | {"Reshape", "Squeeze", "Unsqueeze", "Flatten"}
CHANNELS_SECOND = {"Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool",
                   "LpPool", "GlobalAveragePool", "GlobalMaxPool", "BatchNormalization",
                   "InstanceNormalization", "GroupNormalization", "LRN", "Resize", "Upsample",
                   "DepthToSpace", "SpaceToDepth"}  # fmt: skip
ELEMENTWISE = {"Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Gelu", "Clip", "Sigmoid",
               "HardSigmoid", "HardSwish", "Tanh", "Erf", "Softplus", "Softsign", "Mish", "Swish",
               "Add", "Sub", "Mul", "Div", "Sum", "Cast", "Identity", "Dropout", "Concat",
               "QuantizeLinear", "DequantizeLinear"}  # fmt: skip


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
        axes = ["?" if size is None else str(size) for size in self.shape or (None,)]
        return f"{shown_name(self.name)!r} ({self.kind} of shape ({', '.join(axes)}))"


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


def has_channels(graph: Graph, tensor: str) -> bool:
    """Whether the second axis of a tensor holds the features, as in (n, channels, height, width),
    not the last, as in (n, tokens, features).

    Shapes do not tell, but nodes do: the last one that mixes axes decides.
    """
    node = graph.makers.get(tensor)
    while node is not None and node.op in ELEMENTWISE:
        varying = [each for each in node.inputs if each not in graph.constants]
        node = graph.makers.get(varying[0]) if varying else None
    return node is not None and node.op in CHANNELS_SECOND


@dataclass(frozen=True)
class Roles:
    """Where a graph has its scores.

    Attributes:
        scores: The tensor; None if a function of all outputs gives them.
        label: The output that names the predicted class, if `classes` are known.
        classes: Labels of the score columns in order, if the graph holds them.
    """

    scores: str | None
    label: str | None = None
    classes: tuple[Any, ...] | None = None


def find_roles(graph: Graph, option: Any, name: str) -> Roles:
    """The roles in a graph; option: as the user gave `scores=`, name: the graph's in errors."""
    if callable(option):
        return Roles(None)
    where = option[0] if isinstance(option, (tuple, list)) else option
    if isinstance(where, str) and where in SINGLE and where not in graph.tensors:
        return Roles(_find_single(graph, name))
    if where is None:
        found = _find_usual(graph, name)
    elif isinstance(where, str):
        found = where
    elif -len(graph.outputs) <= where < len(graph.outputs):
        found = graph.outputs[where].name
    else:
        raise InputError(f"{name} has no output {where}: it has {_listed(graph)}")
    if found not in graph.tensors:
        raise InputError(f"{name} has no tensor {shown(found)}: its outputs are {_listed(graph)}")
    zipped = graph.makers.get(found)
    if zipped is not None and zipped.op == "ZipMap":
        label, _ = _find_label(graph)
        return Roles(zipped.inputs[0], label, zipped.labels)
    if where is not None:  # the labels may be those of another output
        return Roles(found)
    return Roles(found, *_matching_label(graph, found))


def find_features(graph: Graph, scores: str) -> str | None:
    """The tensor that enters the last product with weights; None for the input."""
    way = graph.ancestors(scores)
    for node in reversed(graph.nodes):
        if way.isdisjoint(node.outputs):
            continue
        if node.op in CLASSICAL and node.inputs:
            given = input_layer(graph)
            return None if given is not None and given.is_float else node.inputs[0]
        varying = [each for each in node.inputs[:2] if each not in graph.constants]
        if node.op in PRODUCTS and len(varying) == 1:
            return _pass_back(graph, varying[0], PASSING)
    return None


def input_layer(graph: Graph) -> Declared | None:
    """The input whose values can be a layer: the only one, or the only one of floats."""
    if len(graph.inputs) == 1 and graph.inputs[0].kind != TEXT:
        return graph.inputs[0]
    floats = [each for each in graph.inputs if each.is_float]
    return floats[0] if len(floats) == 1 else None


def _find_usual(graph: Graph, name: str) -> str:
    likely = [each.name for each in graph.outputs if _looks_like_scores(each, graph)]
    if USUAL_NAME in likely:
        return USUAL_NAME
    feeding = {up for each in likely for up in graph.ancestors(each) if up != each}
    last = [each for each in likely if each not in feeding]
    if last:
        return last[-1]
    raise InputError(
        f"none of the outputs of {name} looks like class scores, floats of shape (n, n_classes): "
        f"it has {_listed(graph)}. Say where they are by scores=: the name of a tensor, 'logit' or "
        "'probability' if an output holds one number per sample, or a function of all outputs in a "
        "dict by name"
    )


def _find_single(graph: Graph, name: str) -> str:
    """The last output that may hold one number per sample."""
    likely = [
        each.name
        for each in graph.outputs
        if each.is_float and (each.shape is None or set(each.shape[1:]) <= {1, None})
    ]
    if not likely:
        raise InputError(
            f"no output of {name} holds one number per sample: it has {_listed(graph)}"
        )
    return likely[-1]


def _looks_like_scores(output: Declared, graph: Graph) -> bool:
    node = graph.makers.get(output.name)
    if node is not None and node.op == "ZipMap":
        return True
    if not output.is_float or output.name in graph.constants:
        return False
    shape = output.shape
    return shape is None or (len(shape) == 2 and (shape[1] is None or shape[1] >= 2))


def _matching_label(graph: Graph, scores: str) -> tuple[str | None, tuple[Any, ...] | None]:
    """The label output and its labels if the scores may have a column for each of them."""
    label, labels = _find_label(graph)
    widths = [each.shape[-1] for each in graph.outputs if each.name == scores and each.shape]
    fits = labels is not None and (not widths or widths[0] in (None, len(labels)))
    return (label, labels) if fits else (None, None)


def _find_label(graph: Graph) -> tuple[str | None, tuple[Any, ...] | None]:
    for output in graph.outputs:
        if output.kind not in (TEXT, "int64", "int32"):
            continue
        origin = _pass_back(graph, output.name, RESHAPING)
        node = graph.makers.get(origin)
        if node is not None and node.labels is not None and origin == node.outputs[0]:
            return output.name, node.labels
    return None, None


def _pass_back(graph: Graph, tensor: str, ops: set[str]) -> str:
    """The tensor before nodes that only hand it on."""
    node: Node | None = graph.makers.get(tensor)
    while node is not None and node.op in ops and node.inputs:
        tensor = node.inputs[0]
        node = graph.makers.get(tensor)
    return tensor


def _listed(graph: Graph) -> str:
    more = f", … ({len(graph.outputs)} in all)" if len(graph.outputs) > 10 else ""
    return (", ".join(map(str, graph.outputs[:10])) or names([])) + more
