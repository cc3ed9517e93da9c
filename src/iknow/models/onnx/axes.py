"""Axes: which one of a tensor holds the features.

After a convolution it is the second, as in (n, channels, height, width); otherwise the last, as in
(n, tokens, features). Shapes do not tell, but nodes do: the last one that mixes axes decides.
"""

from __future__ import annotations

from iknow.models.onnx.graph import Graph

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
