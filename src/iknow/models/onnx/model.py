"""OnnxModel: reads the tensors of an ONNX graph through onnxruntime; PortableModel: a bundle's own.

Layers are the names of tensors, "input" and "output" (the scores); a tensor of one of these names
comes first. A row may differ by some units in the last place between batch sizes, and the graph may
amplify that: with batch_size=1 every answer is the one that the sample gets alone.

A graph with one input takes an array; with several, a dict of arrays by their names, or a data
frame whose columns bear these names. Numbers become what the graph declares where nothing but
rounding is lost; a fraction never becomes a whole number.

The graph in a bundle is either one of our own (`iknow.models.export`), whose outputs are the
scores, the layers and, where the highest score is not the model's own answer, the belief. Or it is
the user's ONNX file as it was, and the bundle says how to read it. Anybody may have written it:
weights in other files are refused, and nothing is written to disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Ints, Labels
from iknow.core.codes import NO_BELIEF, UNKNOWN, positions_of
from iknow.core.robustness import Sensitivity
from iknow.core.text import name as shown_name
from iknow.core.text import names, shown
from iknow.errors import ExportError, IknowError, InputError, LayerError, RefusedError
from iknow.locking import cached_property
from iknow.metrics.table import code_of
from iknow.models.differences import compare_columns
from iknow.models.export import BELIEF, LAYER, SCORES
from iknow.models.inputs import (
    NUMERIC_KINDS,
    Fields,
    Sizes,
    as_array,
    as_fields,
    as_numbers,
    as_pandas,
    is_sparse,
)
from iknow.models.model import (
    Layer,
    Observation,
    check_layers,
    check_type,
    find_belief,
    mark_invalid,
)
from iknow.models.network import (
    INPUT,
    MASK,
    MOMENTS,
    OUTPUT,
    Network,
    Pass,
    Read,
    find_moments,
    without_moments,
)
from iknow.models.onnx.file import PRODUCTS, TEXT, Declared, listed, parse, read_bytes, read_file
from iknow.models.onnx.session import Session

Batch = NDArray[Any] | Fields

TAKES_MISSING = {"TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble", "Imputer",
                 "IsNaN"}  # fmt: skip


class Places(dict[str, str]):
    """The tensors of layers, by name. pooled: those of which only the moments are read."""

    pooled: frozenset[str] = frozenset()


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
        self._name = self._file.name
        places = self._locate(only or ())
        moments = (f"{name}{MOMENTS}" for name in self.tensors)
        self.pooling.check_names((INPUT, OUTPUT, *self.tensors, *moments), self._name)
        self._scores, self._label, self._labels = self._file.find_roles(self.scores)
        reads = None if only is None else [*places.values(), self._scores or ""]
        self._session = Session(self._file, device, reads)

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors that may be layers, in the order in which the graph makes them."""
        return self._file.tensors

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the graph's inputs."""
        return tuple(each.name for each in self._file.inputs)

    @property
    def classes(self) -> Labels | None:
        labels = self._labels
        # 0, 1, 2, ... may be codes, which the user knows the labels of.
        is_coded = labels is None or labels == tuple(range(len(labels)))
        return None if is_coded else np.array(labels)

    @property
    def is_elsewhere(self) -> bool:
        return self._session.device not in (None, "cpu")

    def prepare(self, inputs: Any) -> Batch:
        """Return `inputs` as an array, or as fields for a graph with several inputs."""
        several = len(self.inputs) > 1
        if isinstance(inputs, Fields):
            inputs = inputs.arrays
        inputs = as_pandas(inputs)
        if several and hasattr(inputs, "iloc") and getattr(inputs, "ndim", 0) == 2:
            inputs = {column: inputs[column] for column in inputs.columns}
        if not several and not isinstance(inputs, Mapping):
            inputs = {self.inputs[0]: inputs}
        if not isinstance(inputs, Mapping) or set(inputs) != set(self.inputs):
            by_name = isinstance(inputs, Mapping)
            got = names(inputs, 20) if by_name else type(inputs).__name__
            as_table = by_name and several
            told = compare_columns(inputs, self.inputs, "leave it out") + ": " if as_table else ""
            raise InputError(
                f"{told}{self._name} takes a dict of arrays by the names of its inputs, "
                f"{listed(self._file.inputs)}; got {got}"
            )
        arrays = {}
        for each in self._file.inputs:
            values, what = inputs[each.name], each.name if several else "X"
            array = as_array(values, what) if each.kind == TEXT else as_numbers(values, what)
            # A converter declares each column of a table as (n, 1).
            is_column = each.shape is not None and each.shape[1:] == (1,) and array.ndim == 1
            arrays[each.name] = array.reshape(-1, 1) if is_column else array
        return as_fields(arrays) if several else arrays[self.inputs[0]]

    def layers(self, batch: Any) -> tuple[Layer, ...]:
        """Describe the input if it is one array of floats, the ends of the middle stages, what
        enters the last product with weights, and the scores. Stages are found by the shapes that
        tensors have for a sample of `batch`.
        """
        scores, given = self._scores, self._file.input_layer
        raw = given.name if given is not None and given.is_float else None
        inside = None if scores is None else self._file.find_features(scores)
        hidden = [] if inside in (None, raw) else [Layer(str(inside), "hidden")]
        # Another tensor may be called "output".
        last = scores if scores is not None and OUTPUT in self.tensors else OUTPUT
        stages = [] if scores is None else self._file.find_stages(self._shapes(batch), scores)
        middle = [Layer(name + MOMENTS, "middle") for name in stages if name != inside]
        first = [Layer(INPUT, "input")] if raw else []
        return (*first, *middle, *hidden, Layer(last, "output"))

    def _shapes(self, batch: Any) -> dict[str, tuple[int, ...]]:
        """The shape of a sample in each tensor that has several vectors for it; {} if unknown.

        The graph runs on a few samples, and gives the shapes alone: all tensors at once are large.
        """
        if self._file.ops.isdisjoint({"Conv", *PRODUCTS}):
            return {}
        size = next((each.shape[0] for each in self._file.inputs if each.shape), None)
        arrays = batch.arrays if isinstance(batch, Fields) else {self.inputs[0]: batch}
        trial, kept = self._file.with_shapes(self.tensors), list[set[Any]]()
        with suppress(IknowError):  # of tensors that are sequences, say; others say what is wrong
            session = Session(trial, self._session.device)
            for n in (size,) if size else (2, 3):  # in both runs the rest of a shape is the same
                rows = np.arange(n) % len(batch)
                feeds = {each.name: _cast(arrays[each.name][rows], each) for each in trial.inputs}
                found = session.run([each.name for each in trial.outputs], feeds)
                shapes = zip(self.tensors, (tuple(each.tolist()) for each in found), strict=True)
                kept.append({(name, each[1:]) for name, each in shapes if each[:1] == (n,)})
        known = dict(set.intersection(*kept)) if kept else {}
        return {name: known[name] for name in self.tensors if len(known.get(name, ())) > 1}

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        found = super().observe(batch, layers)
        _, strange = self._take(batch)
        if strange is None or not TAKES_MISSING.isdisjoint(self._file.ops):
            return found
        # Nothing in the graph looks for missing values, yet one may vanish, as in max(NaN, 0).
        return mark_invalid(replace(found, invalid=found.invalid | strange))

    def sensitivity(self, layer: str, inputs: Sizes) -> Sensitivity | float:
        check_type(self, OnnxModel)
        given = self._file.input_layer
        plain = given is not None and given.kind in ("float32", "float64")
        alone = len(self.inputs) == 1 and self.pooling.of(INPUT) is None
        if layer == INPUT and INPUT not in self._file.makers and plain and alone:
            return 1.0  # the numbers as given, rounded to float32
        return super().sensitivity(layer, inputs)

    def reading(self, layers: Sequence[str]) -> Mapping[str, Any] | None:
        """Say in plain values where the scores are, and how each of the `layers` is pooled.

        `ExportError` if a function reads it.
        """
        ways = {layer: self.pooling.of(layer) for layer in layers}
        if callable(self.scores) or any(map(callable, ways.values())):
            raise ExportError(
                "scores= or pool= is a function, which cannot become a part of the graph: name a "
                "tensor and 'mean', 'cls' or 'last', or add the result to the graph as an output"
            )
        where = list(self.scores) if isinstance(self.scores, tuple) else self.scores
        return {"scores": where, "layers": ways}

    def _locate(self, layers: Iterable[str]) -> Places:
        """The tensors that are layers; `OUTPUT` itself for the scores."""
        asked = list(layers)
        plain = [without_moments(layer, self.tensors) for layer in asked]
        places = Places(zip(plain, plain, strict=True))
        places.pooled = frozenset(plain).difference(asked)
        check_layers(places, dict.fromkeys((INPUT, *self.tensors, OUTPUT)), self._name)
        if INPUT in places and INPUT not in self.tensors:
            if self._file.input_layer is None:
                raise LayerError(
                    f"the layer 'input' needs a single input of numbers; {self._name} has "
                    f"{listed(self._file.inputs)}: choose tensors after them"
                )
            places[INPUT] = self._file.input_layer.name
        return places

    def _in_precision(self, name: str, values: Any) -> Any:
        declared = self._file.inputs[self.inputs.index(name) if name else 0]
        return _cast(values, declared) if declared.is_float else values

    def _run(self, batch: Batch, layers: Sequence[str], places: Places) -> Pass:
        outputs = [] if self._scores else [each.name for each in self._file.outputs]
        inside = [places[each] for each in layers if places[each] in self._file.makers]
        needed = [*inside, *filter(None, (self._scores, self._label))]
        tensors, optional = [*dict.fromkeys([*needed, *outputs])], set(outputs) - set(needed)
        arrays = batch.arrays if isinstance(batch, Fields) else {self.inputs[0]: batch}
        feeds = {each.name: _cast(arrays[each.name], each) for each in self._file.inputs}
        channels = {name: self._file.has_channels(name) for name in places.pooled}
        pool = {  # now, before many of them fill the memory; tokens that a mask may hide later
            name: partial(find_moments, features_last=not first)
            for name, first in channels.items()
            if first or MASK not in arrays
        }
        ran = self._session.run_all(tensors, feeds, len(batch), optional, pool)
        found: dict[Any, Any] = ran | feeds
        scores: Any = found.get(self._scores)
        if callable(self.scores):
            given = {each: found[each] for each in outputs if each in found}
            scores = np.asarray(self.scores(given))
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
            read[layer] = Read(values, not self._file.has_channels(places[layer]))
        return Pass(scores, read, self._codes(found[self._label], scores) if self._label else None)

    def _codes(self, labels: Any, scores: Any) -> Ints | None:
        """The positions of predicted labels, of shape (n,); a graph of our own gives positions."""
        said, answered = np.asarray(labels), np.ones(len(labels), dtype=bool)
        if self._labels is not None:
            classes = np.array(self._labels)
            wanted = f"one of its classes, {names(classes.tolist())}"
        elif scores.ndim == 2 and scores.dtype.kind in NUMERIC_KINDS:
            classes, answered = np.arange(scores.shape[1]), find_belief(scores) != NO_BELIEF
            wanted = f"positions of {len(classes)} classes"
        else:
            return None  # which is refused later
        flat = said.astype(str).ravel() if said.dtype.kind == "O" else said.ravel()
        codes = positions_of(flat, classes)
        if len(flat) != len(said) or (answered & (codes == UNKNOWN)).any():
            raise InputError(
                f"{self._name} must predict {wanted}, one label per sample; got shape {said.shape}"
                f", with {names(flat[codes == UNKNOWN].tolist(), 1)} as unknown labels"
            )
        return np.where(answered, codes, NO_BELIEF)


class PortableModel(OnnxModel):
    """A classifier in the bytes of an ONNX file, with the labels of its score columns.

    Args:
        columns: Names of the features, if they have names: a table is matched with them.
        reading: How to read a file that is as its maker wrote it: "scores", as `OnnxModel` takes
            them, and "layers", how each is pooled by its name; None for a graph of our own.
    """

    def __init__(
        self,
        content: bytes,
        classes: Labels | None = None,
        columns: Sequence[str] | None = None,
        device: str | None = None,
        name: str = "model.onnx",
        reading: Mapping[str, Any] | None = None,
    ) -> None:
        file = read_bytes(content, name)
        self.content, self._classes, self._reading = content, classes, reading
        self._columns = None if columns is None else list(columns)
        outputs = [each.name for each in file.outputs]
        own = [each.removeprefix(LAYER) for each in outputs if each.startswith(LAYER)]
        self.layer_names = tuple(own if reading is None else reading["layers"])
        how = reading or {"layers": None, "scores": SCORES}
        super().__init__(file, how["layers"], how["scores"], device, only=self.layer_names)
        if reading is None and BELIEF in outputs:
            self._label = BELIEF

    @property
    def classes(self) -> Labels | None:
        return self._classes

    @cached_property
    def categories(self) -> Mapping[float, str]:
        nodes = parse(self.content, self._name).graph.node
        told = [{each.name: each for each in node.attribute} for node in nodes]
        pairs = [
            zip(each["keys_strings"].strings, each["values_floats"].floats, strict=True)
            for each in told
            if {"keys_strings", "values_floats"} <= each.keys()
        ]
        # Encoders look up texts too, but find other numbers.
        found = {value: key.decode() for key, value in chain.from_iterable(pairs)}
        return {value: key for value, key in found.items() if value == code_of(key)}

    @property
    def takes_text(self) -> bool:
        """Whether some of its inputs are text."""
        return any(each.kind == TEXT for each in self._file.inputs)

    def matches(self, inputs: Any) -> bool:
        """Whether `inputs` are a table with the names of the features, in any order."""
        found = getattr(inputs, "column_names", getattr(inputs, "columns", None))
        if self._columns is None or found is None or isinstance(inputs, Fields):
            return False
        return sorted(map(str, found)) == sorted(self._columns)

    def prepare(self, inputs: Any) -> Any:
        """Return `inputs` as the graph takes them.

        Several inputs come by name, or in order: in a tuple, or as the columns of a table. The
        columns of a table with the features' names are taken in the order of the features.
        """
        if is_sparse(inputs):  # first, as one format of them is a dict
            if len(self.inputs) == 1:
                return inputs.tocsr()
            inputs = inputs.toarray()
        if self.matches(inputs):
            inputs = as_pandas(inputs)[self._columns]
        given: Any = inputs.arrays if isinstance(inputs, Fields) else inputs
        ordered = self.inputs if self._columns is None else self._columns
        if isinstance(given, Mapping) and given and all(str(each).isdigit() for each in given):
            given = tuple(given.values()) if len(self.inputs) > 1 else next(iter(given.values()))
        if len(self.inputs) == 1:
            takes = self._file.inputs[0]
            flat = takes.kind == TEXT and takes.shape is not None and len(takes.shape) == 1
            if flat and hasattr(given, "iloc") and given.ndim == 2 and given.shape[1] == 1:
                given = given.iloc[:, 0]
        elif isinstance(given, tuple) and len(given) == len(self.inputs):
            given = dict(zip(self.inputs, given, strict=True))
        elif isinstance(given, (list, np.ndarray)) and set(ordered) == set(self.inputs):
            rows = np.array(given, dtype=object) if isinstance(given, list) else given
            if rows.ndim == 2 and rows.shape[1] == len(ordered):
                given = {name: rows[:, j] for j, name in enumerate(ordered)}
        return super().prepare(given)

    def layers(self, batch: Any) -> tuple[Layer, ...]:
        """Describe all layers that the graph gives; no `batch` is run."""
        return tuple(Layer(name, "hidden") for name in self.layer_names)

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        return super().observe(batch.toarray() if is_sparse(batch) else batch, layers)

    def reading(self, layers: Sequence[str]) -> Mapping[str, Any] | None:
        return self._reading

    def _locate(self, layers: Iterable[str]) -> Places:
        wanted = list(layers)
        check_layers(wanted, self.layer_names, self._name)
        if self._reading is not None:
            return super()._locate(wanted)
        return Places({layer: f"{LAYER}{layer}" for layer in wanted})


def to_onnx(model: OnnxModel, layers: Sequence[str], inputs: Any) -> bytes:
    """The file of a model that is ONNX already; see `iknow.models.export`."""
    model._locate(layers)
    try:
        return model._file.with_weights()
    except Exception as error:  # of weights that cannot be read, or of more than 2 GB
        raise ExportError(f"{model._name} cannot become ONNX: {shown_name(error, 600)}") from error


def _cast(values: NDArray[Any], declared: Declared) -> NDArray[Any]:
    """Values in the type of an input, if nothing but rounding is lost."""
    if declared.kind == TEXT:
        cast, strange = values.astype(object), [v for v in values.flat if not isinstance(v, str)]
    else:
        dtype = np.dtype(np.sctypeDict.get(declared.kind, object))  # none for sequences and maps
        if dtype.kind not in NUMERIC_KINDS:
            raise InputError(
                f"input {declared} takes neither numbers that numpy has nor text: export the model "
                "with inputs of float32"
            )
        with np.errstate(over="ignore", invalid="ignore"):  # what becomes infinite is marked
            cast = np.ascontiguousarray(values, dtype=dtype)
        if declared.is_float:
            return cast
        # Compared as numbers: numpy would say that -1 equals what uint64 makes of it.
        strange = values[(cast != values) | ((cast < 0) != (values < 0))].tolist()
    if strange:
        raise RefusedError(
            f"input {declared} takes {declared.kind}; got {shown(strange[0], 60)} of type "
            f"{type(strange[0]).__name__}"
        )
    return cast
