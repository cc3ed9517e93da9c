"""OnnxModel: reads the tensors of an ONNX graph through onnxruntime.

Layers are the names of tensors, "input" and "output" (the scores); a tensor of one of these names
comes first. A row may differ by some units in the last place between batch sizes, and the graph may
amplify that: with batch_size=1 every answer is the one that the sample gets alone.

A graph with one input takes an array; with several, a dict of arrays by their names, or a data
frame whose columns bear these names. Numbers become what the graph declares where nothing but
rounding is lost; a fraction never becomes a whole number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Bools, Ints, Labels
from iknow.core.codes import UNKNOWN, positions_of
from iknow.core.robustness import Sensitivity
from iknow.core.text import names, shown
from iknow.errors import ExportError, InputError, LayerError, RefusedError
from iknow.models.inputs import Fields, Sizes, as_fields
from iknow.models.model import Layer, Observation, check_type, mark_invalid
from iknow.models.network import INPUT, MASK, OUTPUT, Network, Pass, Read
from iknow.models.numbers import as_array, as_numbers
from iknow.models.onnx.file import read_file
from iknow.models.onnx.roles import (
    TEXT,
    Declared,
    Graph,
    Roles,
    find_features,
    find_roles,
    has_channels,
    input_layer,
)
from iknow.models.onnx.session import Session

Batch = NDArray[Any] | Fields

TAKES_MISSING = {"TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble", "Imputer",
                 "IsNaN"}  # fmt: skip


class OnnxModel(Network):
    """A classifier in an ONNX file. The file is read once, and never written to.

    Args:
        model: The path of the file, or an onnx.ModelProto.
        pool: How to turn a layer's activations into one vector per sample: "mean", "cls", "last"
            or a function, for all layers or in a mapping.
        scores: Where the scores are: the name of a tensor, the position of an output, "logit" or
            "probability" for one number per sample, or a function of all outputs in a dict by name.
            Default: the last output that looks like class scores.
        device: "cpu", "cuda", "cuda:1" or "mps". Default: the CPU.
        only: The only layers that will be read: then onnxruntime may fuse nodes between them.

    Examples:
        >>> from onnx.parser import parse_model
        >>> rectifier = parse_model('''<ir_version: 8, opset_import: ["" : 17]>
        ...     rectifier (float[n, 2] x) => (float[n, 2] scores)
        ...     { hidden = Relu(x)  scores = Neg(hidden) }''')
        >>> OnnxModel(rectifier).observe(np.array([[-1.0, 2.0]]), ["hidden"]).activations["hidden"]
        array([[0., 2.]], dtype=float32)
    """

    def __init__(
        self,
        model: Any,
        pool: Any = None,
        scores: Any = None,
        device: str | None = None,
        *,
        only: Collection[str] | None = None,
    ) -> None:
        super().__init__(pool, scores)
        self._file = read_file(model)
        self._graph = self._file.graph
        places = self._locate(only or ())
        self.pooling.check_names((INPUT, OUTPUT, *self.tensors), self._name)
        self._roles = self._find_roles()
        needed = None if only is None else self._needed(places.values())
        self._session = Session(self._file, device, needed)

    @property
    def _name(self) -> str:
        return self._file.name

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors that may be layers, in the order in which the graph makes them."""
        return self._graph.tensors

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the graph's inputs."""
        return tuple(each.name for each in self._graph.inputs)

    @property
    def classes(self) -> Labels | None:
        labels = self._roles.classes
        # 0, 1, 2, ... may be codes, which the user knows the labels of.
        is_coded = labels is None or labels == tuple(range(len(labels)))
        return None if is_coded else np.array(labels)

    @property
    def is_elsewhere(self) -> bool:
        return self._session.device not in (None, "cpu")

    def prepare(self, inputs: Any) -> Batch:
        """Return `inputs` as an array, or as fields for a graph with several inputs."""
        declared = {each.name: each for each in self._graph.inputs}
        if isinstance(inputs, Fields):
            inputs = inputs.arrays
        if len(declared) > 1 and hasattr(inputs, "iloc") and getattr(inputs, "ndim", 0) == 2:
            inputs = {column: inputs[column] for column in inputs.columns}
        if not isinstance(inputs, Mapping):
            if len(declared) > 1:
                raise InputError(
                    f"{self._name} has {len(declared)} inputs: give a dict of arrays by their "
                    f"names, {names(declared)}; got {type(inputs).__name__}"
                )
            return _as_declared(inputs, self._graph.inputs[0], "X")
        if set(inputs) != set(declared):
            raise InputError(
                f"the inputs of {self._name} are {', '.join(map(str, self._graph.inputs[:20]))}; "
                f"got {names(inputs, 20)}"
            )
        arrays = {each: _as_declared(inputs[each], declared[each], each) for each in declared}
        return as_fields(arrays) if len(arrays) > 1 else next(iter(arrays.values()))

    def layers(self, batch: Any) -> tuple[Layer, ...]:
        """Describe the input if it is one array of floats, what enters the last product with
        weights, and the scores; no `batch` is run.
        """
        scores, given = self._roles.scores, input_layer(self._graph)
        raw = given.name if given is not None and given.is_float else None
        inside = None if scores is None else find_features(self._graph, scores)
        hidden = [] if inside in (None, raw) else [Layer(str(inside), "hidden")]
        # Another tensor may be called "output".
        last = scores if scores is not None and OUTPUT in self.tensors else OUTPUT
        return (*([Layer(INPUT, "input")] if raw else []), *hidden, Layer(last, "output"))

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        found = super().observe(batch, layers)
        _, strange = self._take(batch)
        if strange is None or not TAKES_MISSING.isdisjoint(self._graph.ops):
            return found
        # Nothing in the graph looks for missing values, yet one may vanish, as in max(NaN, 0).
        return mark_invalid(replace(found, invalid=found.invalid | strange))

    def sensitivity(self, layer: str, inputs: Sizes) -> Sensitivity | float:
        check_type(self, OnnxModel)
        given = input_layer(self._graph)
        plain = given is not None and given.kind in ("float32", "float64")
        alone = len(self._graph.inputs) == 1 and self.pooling.of(INPUT) is None
        if layer == INPUT and INPUT not in self._graph.makers and plain and alone:
            return 1.0  # the numbers as given, rounded to float32
        return super().sensitivity(layer, inputs)

    def reading(self, layers: Sequence[str], inputs: Any) -> Mapping[str, Any] | None:
        """Say in plain values where the scores are, and how each of the `layers` is pooled.

        `inputs`: some samples, as `prepare` gives them.

        Raises:
            ExportError: A function reads it.
        """
        if callable(self.scores):
            raise ExportError(
                "scores= is a function, which cannot become a part of the graph: name a tensor, or "
                "add the scores to the graph as an output"
            )
        ways = {layer: self.pooling.of(layer) for layer in layers}
        for layer in [each for each, way in ways.items() if callable(way)]:
            few, place = inputs[np.arange(1)], self._locate([layer])
            if (
                self.pooling.is_by_layer
                or self._run(few, [layer], place).layers[layer].values.ndim > 2
            ):
                raise ExportError(
                    f"layer {layer!r} is pooled by a function of arrays, which cannot become a "
                    "graph: use 'mean', 'cls' or 'last'"
                )
            ways[layer] = None  # it leaves one vector per sample as it is
        where = list(self.scores) if isinstance(self.scores, tuple) else self.scores
        return {"scores": where, "layers": ways}

    def _find_roles(self) -> Roles:
        return find_roles(self._graph, self.scores, self._name)

    def _locate(self, layers: Iterable[str]) -> dict[str, str]:
        """The tensors that are layers; `OUTPUT` itself for the scores."""
        places = {layer: layer for layer in layers}
        if unknown := [each for each in places if each not in {INPUT, OUTPUT, *self.tensors}]:
            near = get_close_matches(str(unknown[0]), self.tensors, 5, 0.5)
            raise LayerError(
                f"{self._name} has no tensor {shown(unknown[0])}"
                f"{f': did you mean {names(near)}?' if near else '.'} It has "
                f"{len(self.tensors)} tensors, the last of them {names(self.tensors[-8:])}; "
                "OnnxModel(model).tensors lists them all, and 'input' and 'output' are layers too"
            )
        if INPUT in places and INPUT not in self.tensors:
            given = input_layer(self._graph)
            if given is None:
                raise LayerError(
                    f"the layer 'input' needs a single input of numbers; {self._name} has "
                    f"{', '.join(map(str, self._graph.inputs[:20]))}: choose tensors after them"
                )
            places[INPUT] = given.name
        return places

    def _take(self, batch: Batch) -> tuple[Batch, Bools | None]:
        """A batch as it is, and which samples have a number that is not finite in the graph's
        precision.
        """
        strange = np.zeros(len(batch), dtype=bool)
        for declared, values in _by_input(batch, self._graph):
            if values.dtype.kind == "f":
                seen = _cast(values, declared) if declared.is_float else values
                strange |= ~np.isfinite(seen).reshape(len(seen), -1).all(axis=1)
        return batch, strange if strange.any() else None

    def _run(self, batch: Batch, layers: Sequence[str], places: Mapping[str, str]) -> Pass:
        said, label = self._roles.scores, self._roles.label
        outputs = [] if said else [each.name for each in self._graph.outputs]
        needed = self._needed(places[layer] for layer in layers)
        feeds = feed(batch, self._graph)
        tensors, optional = list(dict.fromkeys([*needed, *outputs])), set(outputs) - set(needed)
        found = self._session.run_all(tensors, feeds, len(batch), optional) | feeds
        if said:
            scores = found[said]
        else:
            given, function = {each: found[each] for each in outputs if each in found}, self.scores
            assert callable(function)
            scores = np.asarray(function(given))
        if len(scores) != len(batch):
            raise InputError(
                f"scores= must give one row for each of {len(batch)} samples; got {scores.shape}"
            )
        read = {}
        for layer in [each for each in layers if places[each] in found]:
            values = found[places[layer]]
            if not isinstance(values, np.ndarray):
                raise LayerError(
                    f"{shown(layer)} of {self._name} is a sequence or a map, not a tensor: choose "
                    "the tensor that it is made from"
                )
            read[layer] = Read(values, features_last=not has_channels(self._graph, places[layer]))
        mask = batch.arrays.get(MASK) if isinstance(batch, Fields) else None
        return Pass(scores, read, mask, self._codes(found[label], scores) if label else None)

    def _needed(self, places: Iterable[str]) -> list[str]:
        """The tensors to compute for layers, of which these are the places, and for the answer."""
        inside = [each for each in places if each in self._graph.makers]
        return [*inside, *(each for each in (self._roles.scores, self._roles.label) if each)]

    def _codes(self, labels: Any, scores: Any) -> Ints | None:
        """The positions of predicted labels among the classes, of shape (n,)."""
        classes = np.array(self._roles.classes)
        said = np.asarray(labels)
        if said.size != len(said):
            raise InputError(
                f"{self._name} must predict one label per sample; got shape {said.shape}"
            )
        said = said.ravel()
        codes = positions_of(said.astype(str) if said.dtype.kind == "O" else said, classes)
        if (codes == UNKNOWN).any():
            raise InputError(
                f"{self._name} must predict one of its classes, {names(classes.tolist())}; got "
                f"{shown(said[codes == UNKNOWN][0])}"
            )
        return codes


def feed(batch: Batch, graph: Graph) -> dict[str, NDArray[Any]]:
    """A prepared batch by the names of a graph's inputs, in their types."""
    return {each.name: _cast(values, each) for each, values in _by_input(batch, graph)}


def _by_input(batch: Batch, graph: Graph) -> list[tuple[Declared, NDArray[Any]]]:
    if isinstance(batch, Fields):
        return [(each, batch.arrays[each.name]) for each in graph.inputs]
    return [(graph.inputs[0], batch)]


def _as_declared(values: Any, declared: Declared, what: str) -> NDArray[Any]:
    array = as_array(values, what) if declared.kind == TEXT else as_numbers(values, what)
    # A converter declares each column of a table as (n, 1).
    is_column = declared.shape is not None and len(declared.shape) == 2 and declared.shape[1] == 1
    return array.reshape(-1, 1) if is_column and array.ndim == 1 else array


def _cast(values: NDArray[Any], declared: Declared) -> NDArray[Any]:
    if declared.kind == TEXT:
        return _as_text(values, declared)
    dtype = _find_dtype(declared)
    if declared.is_float:
        with np.errstate(over="ignore"):  # what becomes infinite is marked
            return np.ascontiguousarray(values, dtype=dtype)
    with np.errstate(invalid="ignore"):
        cast = values.astype(dtype)
    # Compared as numbers: numpy would say that -1 equals what uint64 makes of it.
    lost = (cast != values) | ((cast < 0) != (values < 0)) if dtype.kind in "iu" else cast != values
    if lost.any():
        raise RefusedError(
            f"input {declared} takes {declared.kind}, and {shown(values[lost][0].item())} is no "
            "such number"
        )
    return np.ascontiguousarray(cast)


def _as_text(values: NDArray[Any], declared: Declared) -> NDArray[Any]:
    strange = [each for each in values.ravel().tolist() if not isinstance(each, str)][:1]
    if strange:
        raise RefusedError(
            f"input {declared} takes text; got {shown(strange[0], 60)} of type "
            f"{type(strange[0]).__name__}"
        )
    return values.astype(object)


def _find_dtype(declared: Declared) -> np.dtype[Any]:
    try:
        dtype = np.dtype(declared.kind)
    except TypeError:  # a sequence, a map
        dtype = np.dtype(object)
    if dtype.kind not in "fiub":
        raise InputError(
            f"input {declared} takes neither numbers that numpy has nor text: export the model "
            "with inputs of float32"
        )
    return dtype
