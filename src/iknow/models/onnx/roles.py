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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iknow.core.text import name as shown_name
from iknow.core.text import shown
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

    kind: the name of numpy's dtype, `TEXT`, or for anything but a tensor a word for it. shape: one
    entry per axis, None where it varies; None if the rank is unknown.
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


def listed(declared: Sequence[Declared]) -> str:
    """Inputs or outputs in an error: the first twenty, then the total."""
    more = [f"… ({len(declared)} in all)"] if len(declared) > 20 else []
    return ", ".join([*map(str, declared[:20]), *more]) or "none"


@dataclass(frozen=True)
class Node:
    """One operation: the tensors it uses, including those used by graphs inside it, and makes, and
    the class labels that it holds.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    labels: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Graph:
    """The nodes of a model's graph by their tensors.

    weights: the names of the tensors that the file holds. ops: the names of all operations, also
    those in functions and in graphs inside nodes.
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
        named = [*(tensor.name for tensor in self.inputs), *self.makers]
        return tuple(dict.fromkeys(name for name in named if name not in self.constants))

    @cached_property
    def constants(self) -> frozenset[str]:
        """Names of the tensors that are the same for every sample: weights, and what they make."""
        found = set(self.weights)
        for node in self.nodes:
            if not node.op.startswith("Random") and found.issuperset(node.inputs):
                found.update(node.outputs)
        return frozenset(found)

    @cached_property
    def input_layer(self) -> Declared | None:
        """The input whose values can be a layer: the only one, or the only one of floats."""
        if len(self.inputs) == 1 and self.inputs[0].kind != TEXT:
            return self.inputs[0]
        floats = [each for each in self.inputs if each.is_float]
        return floats[0] if len(floats) == 1 else None

    def ancestors(self, tensor: str) -> set[str]:
        """The tensor itself and all that it is made from."""
        found = {tensor}
        for node in reversed(self.nodes):
            if not found.isdisjoint(node.outputs):
                found.update(node.inputs)
        return found

    def before(self, tensor: str, ops: set[str]) -> str:
        """The tensor before nodes of some operations, along the first input that varies."""
        while (node := self.makers.get(tensor)) is not None and node.op in ops:
            varying = [each for each in node.inputs if each not in self.constants]
            if not varying:
                break
            tensor = varying[0]
        return tensor

    def has_channels(self, tensor: str) -> bool:
        """Whether the second axis of a tensor holds the features, as in (n, channels, height,
        width), not the last, as in (n, tokens, features).

        Shapes do not tell, but nodes do: the last one that mixes axes decides.
        """
        node = self.makers.get(self.before(tensor, ELEMENTWISE))
        return node is not None and node.op in CHANNELS_SECOND


@dataclass(frozen=True)
class Roles:
    """Where a graph has its scores.

    scores: the tensor; None if a function of all outputs gives them. label: the output that names
    the predicted class, if the classes are known. classes: the labels of the score columns in
    order, if the graph holds them.
    """

    scores: str | None
    label: str | None = None
    classes: tuple[Any, ...] | None = None


def find_roles(graph: Graph, option: Any, name: str) -> Roles:
    """The roles in a graph; option: as the user gave `scores=`, name: the graph's in errors."""
    if callable(option):
        return Roles(None)
    where, outputs = option[0] if isinstance(option, (tuple, list)) else option, graph.outputs
    if isinstance(where, str) and where in SINGLE and where not in graph.tensors:
        floats = [each for each in outputs if each.is_float]
        single = [each.name for each in floats if set((each.shape or ())[1:]) <= {1, None}]
        if not single:
            raise InputError(
                f"no output of {name} holds one number per sample: it has {listed(outputs)}"
            )
        return Roles(single[-1])
    found: str | None = where if isinstance(where, str) else None
    if where is None:
        found = _find_usual(graph, name)
    elif found is None and -len(outputs) <= where < len(outputs):
        found = outputs[where].name
    if found is None or found not in graph.tensors:
        what = f"output {where}" if found is None else f"tensor {shown(found)}"
        raise InputError(f"{name} has no {what}: its outputs are {listed(outputs)}")
    label, labels = _find_label(graph)
    maker = graph.makers.get(found)
    if maker is not None and maker.op == "ZipMap":
        return Roles(maker.inputs[0], label, maker.labels)
    widths = [each.shape[-1] for each in outputs if each.name == found and each.shape]
    fits = labels is not None and (not widths or widths[0] in (None, len(labels)))
    # Where the user says which, the labels may be those of another output.
    return Roles(found, label, labels) if fits and where is None else Roles(found)


def find_features(graph: Graph, scores: str) -> str | None:
    """The tensor that enters the last product with weights; None for the input."""
    way = graph.ancestors(scores)
    for node in reversed([each for each in graph.nodes if not way.isdisjoint(each.outputs)]):
        if node.op in CLASSICAL and node.inputs:
            given = graph.input_layer
            return None if given is not None and given.is_float else node.inputs[0]
        varying = [each for each in node.inputs[:2] if each not in graph.constants]
        if node.op in PRODUCTS and len(varying) == 1:
            return graph.before(varying[0], PASSING)
    return None


def _find_usual(graph: Graph, name: str) -> str:
    """The last output that looks like class scores; the one called `USUAL_NAME` comes first."""
    likely = []
    for each in graph.outputs:
        zipped = each.name in graph.makers and graph.makers[each.name].op == "ZipMap"
        wide = each.shape is None or (len(each.shape) == 2 and each.shape[1] != 1)
        if zipped or (each.is_float and wide and each.name not in graph.constants):
            likely.append(each.name)
    if USUAL_NAME in likely:
        return USUAL_NAME
    feeding = {up for each in likely for up in graph.ancestors(each) - {each}}
    if last := [each for each in likely if each not in feeding]:
        return last[-1]
    raise InputError(
        f"none of the outputs of {name} looks like class scores, floats of shape (n, n_classes): "
        f"it has {listed(graph.outputs)}. Say where they are by scores=: the name of a tensor, "
        "'logit' or 'probability' if an output holds one number per sample, or a function of all "
        "outputs in a dict by name"
    )


def _find_label(graph: Graph) -> tuple[str | None, tuple[Any, ...] | None]:
    """The first output that a node with labels gives, and these labels."""
    for output in [each for each in graph.outputs if each.kind in (TEXT, "int64", "int32")]:
        origin = graph.before(output.name, RESHAPING)
        node = graph.makers.get(origin)
        if node is not None and node.labels is not None and origin == node.outputs[0]:
            return output.name, node.labels
    return None, None
