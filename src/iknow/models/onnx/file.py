"""File: an ONNX model as bytes, checked before onnxruntime sees them, and what it says of itself.

A file from outside may be wrong in any way, or hostile. So every protobuf message in it is looked
at, wherever it is: in nodes, inner graphs, functions and their defaults, sparse tensors, training
information. Weights in other files, which could be any file of this machine, must be in the model's
own folder; a model without a folder, as in a bundle, must hold them all. No library of custom
operations is loaded, and operations that read files or run code by themselves are refused. Of the
graph we check what we rely on: names are text, and no node uses what a later one makes. The rest is
for onnxruntime to refuse.

Two protobuf messages, one behind the other, are read as one: lists are joined. So a graph gets more
outputs by a few bytes behind its own, and what the user gave is never changed.

From its nodes we find the tensors, what each depends on, which never change, and which have a role:

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

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, SparseTensorProto, TensorProto
from onnx.external_data_helper import load_external_data_for_tensor

from iknow.core.text import name as shown_name
from iknow.core.text import shown
from iknow.errors import ExportError, IknowError, InputError
from iknow.locking import cached_property
from iknow.models.network import SINGLE, USUAL_NAME
from iknow.models.stages import Step, some_stages, stages_by_blocks, stages_by_resolution

# Compiled contexts of accelerators are files; the others run what they name, in some builds.
UNSAFE = {"EPContext", "Snpe", "PyOp", "PythonOp", "PythonOpGrad", "ATen", "TritonOp"}
IN_PLACE_OF_A_FILE = "_MEM_ADDR_"  # onnxruntime takes it for an address in memory
SHAPE = "shape of "
LABEL_ATTRIBUTES = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
MOST_LABELS = 1_000_000
TEXT = "text"
PRODUCTS = {"MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "QGemm", "FusedMatMul", "FusedGemm",
            "MatMulNBits", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"}  # fmt: skip
CLASSICAL = {"LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier", "TreeEnsembleRegressor",
             "TreeEnsemble", "LinearRegressor", "SVMRegressor"}  # fmt: skip
SIZES = {"Shape", "Size"}  # what they return says nothing of a sample
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

Classes = tuple[Any, ...] | None
"""The classes that a node names; None if it names none."""


class Declared(NamedTuple):
    """An input or an output of a graph as the file declares it."""

    name: str
    kind: str  # the name of numpy's dtype, `TEXT`, or for anything but a tensor a word for it
    shape: tuple[int | None, ...] | None  # None where a size varies, or for an unknown rank

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


class Operation(NamedTuple):
    """A node of a graph, with the class labels that it holds."""

    op: str
    inputs: tuple[str, ...]  # tensors, including those that graphs inside it use
    outputs: tuple[str, ...]
    labels: Classes


@dataclass(frozen=True)
class File:
    """An ONNX model, and what it says about itself without being run."""

    name: str  # in errors
    content: bytes
    folder: str | None  # of weights outside of it; None if there are none
    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]
    nodes: tuple[Operation, ...]  # each uses only what earlier ones made
    weights: frozenset[str]  # the names of the tensors that the file holds
    ops: frozenset[str]  # of all nodes, also in functions and in graphs inside nodes

    def with_outputs(self, tensors: Iterable[str]) -> bytes:
        """The model with further outputs, which onnxruntime finds the types of."""
        present = {output.name for output in self.outputs}
        more = [onnx.ValueInfoProto(name=name) for name in tensors if name not in present]
        addition = ModelProto(graph=onnx.GraphProto(output=more)).SerializeToString()
        return self.content + addition if more else self.content

    def with_shapes(self, tensors: Sequence[str]) -> File:
        """The model with the shapes of these tensors as its outputs, by their names."""
        outputs = [f"{SHAPE}{name}" for name in tensors]
        nodes = [
            onnx.NodeProto(op_type="Shape", input=[tensor], output=[output])
            for tensor, output in zip(tensors, outputs, strict=True)
        ]
        infos = [onnx.ValueInfoProto(name=name) for name in outputs]
        addition = ModelProto(graph=onnx.GraphProto(node=nodes, output=infos))
        content = self.content + addition.SerializeToString()
        declared = tuple(Declared(name, "int64", None) for name in outputs)
        return replace(self, content=content, outputs=declared)

    def with_weights(self) -> bytes:
        """The model with all its weights inside; the same bytes if they are."""
        if self.folder is None:
            return self.content
        model = parse(self.content, self.name)
        for tensor in _external(_messages(model)):
            if tensor.data_location == TensorProto.EXTERNAL:
                load_external_data_for_tensor(tensor, self.folder)
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")
        return serialize(model)

    @cached_property
    def makers(self) -> Mapping[str, Operation]:
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

    def find_stages(self, shapes: Mapping[str, tuple[int, ...]], scores: str) -> list[str]:
        """The tensors that end the middle stages; shapes: of one sample in each tensor."""
        steps = [
            Step(node.op, node.inputs, node.outputs, node.op in PRODUCTS or node.op == "Conv")
            for node in self.nodes
            if node.op not in SIZES
        ]
        tokens, places = dict[str, tuple[int, int]](), dict[str, tuple[int, ...]]()
        for name, shape in shapes.items():
            if name in self.makers and (set(shape[1:]) == {1} or self.has_channels(name)):
                places[name] = shape[1:]
            elif len(shape) == 2:
                tokens[name] = shape
        pictures = {name: size for name, size in places.items() if len(size) > 1}
        blocks = stages_by_blocks(steps, tokens, scores)
        return some_stages(blocks or stages_by_resolution(pictures or places))

    def find_roles(self, option: Any) -> tuple[str | None, str | None, Classes]:
        """Return the tensor of the scores, None if a function of all outputs gives them; the output
        that names the predicted class, and the labels of the score columns.

        option: as the user gave `scores=`.
        """
        found = where = option[0] if isinstance(option, (tuple, list)) else option
        outputs, tensors, has = self.outputs, self.tensors, listed(self.outputs)
        if callable(where):
            return None, None, None
        if where is None:
            found = self._find_usual()
        elif where in SINGLE and where not in tensors:
            floats = [each for each in outputs if each.is_float]
            single = [each.name for each in floats if set((each.shape or ())[1:]) <= {1, None}]
            if not single:
                raise InputError(f"no output of {self.name} holds one number per sample: {has}")
            return single[-1], None, None
        elif not isinstance(where, str) and -len(outputs) <= where < len(outputs):
            found = outputs[where].name
        if found not in tensors:
            what = f"tensor {shown(found)}" if isinstance(found, str) else f"output {where}"
            raise InputError(f"{self.name} has no {what}: its outputs are {has}")
        label, labels = self._find_label()
        maker = self.makers.get(found)
        if maker is not None and maker.op == "ZipMap":
            return maker.inputs[0], label, maker.labels
        widths = [each.shape[-1] for each in outputs if each.name == found and each.shape]
        fits = labels is not None and (not widths or widths[0] in (None, len(labels)))
        # Where the user says which, the labels may be those of another output.
        return (found, label, labels) if fits and where is None else (found, None, None)

    def find_features(self, scores: str) -> str | None:
        """The tensor that enters the last product with weights; None for the input."""
        way = self.ancestors(scores)
        for node in reversed([each for each in self.nodes if not way.isdisjoint(each.outputs)]):
            if node.op in CLASSICAL and node.inputs:
                given = self.input_layer
                return None if given is not None and given.is_float else node.inputs[0]
            varying = [each for each in node.inputs[:2] if each not in self.constants]
            if node.op in PRODUCTS and len(varying) == 1:
                return self.before(varying[0], PASSING)
        return None

    def _find_usual(self) -> str:
        """The last output that looks like class scores; the one called `USUAL_NAME` comes first."""
        likely = []
        for each in self.outputs:
            zipped = each.name in self.makers and self.makers[each.name].op == "ZipMap"
            wide = each.shape is None or (len(each.shape) == 2 and each.shape[1] != 1)
            if zipped or (each.is_float and wide and each.name not in self.constants):
                likely.append(each.name)
        if USUAL_NAME in likely:
            return USUAL_NAME
        feeding = {up for each in likely for up in self.ancestors(each) - {each}}
        if last := [each for each in likely if each not in feeding]:
            return last[-1]
        raise InputError(
            f"none of the outputs of {self.name} looks like class scores, floats of shape (n, "
            f"n_classes): it has {listed(self.outputs)}. Say where they are by scores=: the name "
            "of a tensor, 'logit' or 'probability' if an output holds one number per sample, or a "
            "function of all outputs in a dict by name"
        )

    def _find_label(self) -> tuple[str | None, Classes]:
        """The first output that a node with labels gives, and these labels."""
        for output in [each for each in self.outputs if each.kind in (TEXT, "int64", "int32")]:
            origin = self.before(output.name, RESHAPING)
            node = self.makers.get(origin)
            if node is not None and node.labels is not None and origin == node.outputs[0]:
                return output.name, node.labels
        return None, None


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
    parsed = parse(content, name)
    graph, messages = parsed.graph, list(_messages(parsed))
    _check_weights(messages, name, folder)
    nodes = [each for each in messages if isinstance(each, NodeProto)]
    texts = [text for node in nodes for text in (node.op_type, *node.input, *node.output)]
    texts += [value.name for value in (*graph.input, *graph.output)]
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
    held = [*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)]
    weights = {tensor.name: tensor for tensor in held}
    inputs = tuple(_declared(value) for value in graph.input if value.name not in weights)
    if not inputs or not graph.node:
        raise InputError(f"{name} has no inputs or no nodes: it is not a classifier")
    return File(
        name,
        content,
        str(folder) if _external(messages) else None,
        inputs,
        tuple(map(_declared, graph.output)),
        tuple(_read_nodes(graph, weights, name)),
        frozenset(weights),
        frozenset(node.op_type for node in nodes),
    )


def serialize(model: Any, error: type[IknowError] = ExportError, advice: str = "") -> bytes:
    """The bytes of an onnx.ModelProto; error: what is raised if it is too large."""
    try:
        return bytes(model.SerializeToString())
    except Exception as cause:  # protobuf's own error, or a ValueError
        raise error(
            f"the ONNX model takes more than 2 GB, which no protobuf message can{advice} ({cause})"
        ) from cause


def parse(content: bytes, name: str) -> Any:
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


def _read_nodes(graph: Any, weights: Mapping[str, Any], name: str) -> Iterator[Operation]:
    """The nodes of a graph; weights: its tensors by name."""
    later = {output for node in graph.node for output in node.output}
    for node in graph.node:
        if early := later.intersection(node.input) - {""}:
            raise InputError(
                f"{name} is damaged: {node.op_type} uses {shown(min(early))} before it is made"
            )
        later.difference_update(node.output)
        # Inner graphs use tensors from outside by their names.
        inside = (each for each in _messages(node) if isinstance(each, NodeProto))
        used = tuple(tensor for each in inside for tensor in each.input if tensor)
        made = tuple(filter(None, node.output))
        yield Operation(node.op_type, used, made, _labels(node, weights))


def _labels(node: Any, weights: Mapping[str, Any]) -> Classes:
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
