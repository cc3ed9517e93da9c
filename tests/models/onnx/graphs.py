"""Graphs to test with: from onnx's own text format, and torch modules written out node by node."""

import numpy as np
from onnx import (
    AttributeProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    helper,
    numpy_helper,
)
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


def hidden_weights(place, model):
    """The model with a node more, whose weights are in another file: by where that is said."""
    values, places = (TensorProto(name="hidden_W", dims=[4], data_type=t) for t in (1, 7))
    for tensor, size in ((values, 16), (places, 32)):
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=place)
        tensor.external_data.add(key="length", value=str(size))
    rows = numpy_helper.from_array(np.arange(4), "rows")
    ones = numpy_helper.from_array(np.ones(4, np.float32), "ones")
    sparse = SparseTensorProto(values=values, indices=rows, dims=[4])
    by_rows = SparseTensorProto(values=ones, indices=places, dims=[4])
    made = helper.make_tensor_value_info("hidden_made", TensorProto.FLOAT, [4])
    use = helper.make_node("Identity", ["hidden_W"], ["hidden_made"])

    def with_node(name="Constant", inputs=(), domain="", **attributes):
        changed = ModelProto.FromString(model.SerializeToString())
        node = helper.make_node(name, inputs, ["hidden_made"], domain=domain, **attributes)
        changed.graph.node.append(node)
        return changed

    def with_graph(**weights):
        inside = helper.make_graph([use], "inside", [], [made], **weights)
        changed = with_node("If", ["hidden_c"], then_branch=inside, else_branch=inside)
        changed.graph.initializer.append(numpy_helper.from_array(np.array(True), "hidden_c"))
        return changed

    def with_function(attribute, default=None):
        constant = NodeProto(op_type="Constant", output=["out"], attribute=[attribute])
        opsets = [helper.make_opsetid("", 17)]
        function = helper.make_function("own", "f", [], ["out"], [constant], opsets)
        changed = with_node("f", domain="own")
        function.attribute_proto.extend([] if default is None else [default])
        changed.functions.append(function)
        changed.opset_import.append(helper.make_opsetid("own", 1))
        return changed

    def default_of(name, value):
        default = helper.make_attribute("given", value)
        asked = AttributeProto(name=name, ref_attr_name="given", type=default.type)
        return with_function(asked, default)

    found = {
        "initializer": with_node("Identity", ["hidden_W"]),
        "sparse initializer": with_node("Identity", ["hidden_W"]),
        "attribute": with_node(value=values),
        "sparse attribute": with_node(sparse_value=sparse),
        "rows of a sparse attribute": with_node(sparse_value=by_rows),
        "inner graph": with_graph(initializer=[values]),
        "sparse in an inner graph": with_graph(sparse_initializer=[sparse]),
        "function": with_function(helper.make_attribute("value", values)),
        "sparse in a function": with_function(helper.make_attribute("sparse_value", sparse)),
        "default of a function": default_of("value", values),
        "sparse default of a function": default_of("sparse_value", sparse),
        "training": with_node(value_float=1.0),
    }
    found["initializer"].graph.initializer.append(values)
    found["sparse initializer"].graph.sparse_initializer.append(sparse)
    found["training"].training_info.add().initialization.initializer.append(values)
    return found
