"""Graph: what an ONNX model says about itself, read without running it.

Its nodes come in an order in which each uses only what earlier ones made. From their names we find
the tensors, what each depends on, and which never change; the weights are left where they are.

Axes: which one of a tensor holds the features. After a convolution it is the second, as in (n,
channels, height, width); otherwise the last, as in (n, tokens, features). Shapes do not tell, but
nodes do: the last one that mixes axes decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iknow.core.text import name as shown_name
from iknow.locking import cached_property

TEXT = "text"


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


CHANNELS_SECOND = {"Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool",
                   "LpPool", "GlobalAveragePool", "GlobalMaxPool", "BatchNormalization",
                   "InstanceNormalization", "GroupNormalization", "LRN", "Resize", "Upsample",
                   "DepthToSpace", "SpaceToDepth"}  # fmt: skip
ELEMENTWISE = {"Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Gelu", "Clip", "Sigmoid",
               "HardSigmoid", "HardSwish", "Tanh", "Erf", "Softplus", "Softsign", "Mish", "Swish",
               "Add", "Sub", "Mul", "Div", "Sum", "Cast", "Identity", "Dropout", "Concat",
               "QuantizeLinear", "DequantizeLinear"}  # fmt: skip


def has_channels(graph: Graph, tensor: str) -> bool:
    """Whether the second axis of a tensor holds the features."""
    node = graph.makers.get(tensor)
    while node is not None and node.op in ELEMENTWISE:
        varying = [each for each in node.inputs if each not in graph.constants]
        node = graph.makers.get(varying[0]) if varying else None
    return node is not None and node.op in CHANNELS_SECOND
