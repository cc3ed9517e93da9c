"""Graphs to test with: from onnx's own text format, and torch modules written out node by node."""

import numpy as np
from onnx import numpy_helper
from onnx.parser import parse_model
from torch import nn

from iknow.models.onnx.model import OnnxModel

HEAD = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]> '


def parsed(text, **weights):
    """A model from onnx's text format, with weights by name."""
    model = parse_model(HEAD + text)
    for name, values in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(values), name))
    return model


def mlp(batch="n", dtype="float"):
    """Two dense layers with random weights: x -> hidden -> scores."""
    rng = np.random.default_rng(0)
    kind = {"float": np.float32, "double": np.float64}[dtype]
    return parsed(
        f"""g ({dtype}[{batch}, 4] x) => ({dtype}[{batch}, 3] scores) {{
        a = MatMul(x, W1)  b = Add(a, b1)  hidden = Relu(b)  scores = Gemm(hidden, W2, b2)
        }}""",
        W1=rng.normal(size=(4, 8)).astype(kind),
        b1=rng.normal(size=8).astype(kind),
        W2=rng.normal(size=(8, 3)).astype(kind),
        b2=rng.normal(size=3).astype(kind),
    )


def of_torch(module, sample):
    """The graph of an nn.Sequential; a layer's tensor is named after it."""
    lines, weights, before = [], {}, "x"
    for name, layer in module.named_children():
        name = f"layer{name}"
        inputs = [before]
        for part, values in layer.state_dict().items():
            if values.ndim:
                inputs.append(f"{name}_{part}")
                weights[inputs[-1]] = values.numpy()
        lines.append(f"{name} = {operation(layer)}({', '.join(inputs)})")
        before = name
    axes = ", ".join(map(str, sample.shape[1:]))
    text = f"g (float[n, {axes}] x) => (float[n, m] {before}) {{ {'  '.join(lines)} }}"
    return parsed(text, **weights)


def operation(layer):
    if isinstance(layer, nn.Linear):
        return "Gemm <transB = 1>"
    if isinstance(layer, nn.Conv2d):
        return f"Conv <pads = {[layer.padding[0]] * 4}, strides = {list(layer.stride)}>"
    if isinstance(layer, nn.MaxPool2d):
        return f"MaxPool <kernel_shape = {[layer.kernel_size] * 2}, strides = {[layer.stride] * 2}>"
    if isinstance(layer, nn.BatchNorm2d):
        return "BatchNormalization"
    return {nn.ReLU: "Relu", nn.Tanh: "Tanh", nn.Flatten: "Flatten"}[type(layer)]


def observe(model, inputs, layers=(), **options):
    """What a model says about inputs as a user gives them."""
    adapter = OnnxModel(model, **options)
    return adapter.observe(adapter.prepare(inputs), layers)
