"""OnnxModel: reads the tensors of an ONNX graph through onnxruntime.

Layers are the names of tensors, "input" and "output" (the scores); a tensor of one of these names
comes first. A row may differ by some units in the last place between batch sizes, and the graph may
amplify that: with batch_size=1 every answer is the one that the sample gets alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from iknow.core.arrays import Ints, Labels
from iknow.core.codes import UNKNOWN, positions_of
from iknow.core.robustness import Sensitivity
from iknow.core.text import names, shown
from iknow.errors import InputError, LayerError
from iknow.models.inputs import Fields, Sizes
from iknow.models.model import Layer, Model, Observation, check_type, make_observation, mark_invalid
from iknow.models.onnx.feeding import Batch, feed, find_strange, prepare, without_numbers
from iknow.models.onnx.file import read_file
from iknow.models.onnx.graph import has_channels
from iknow.models.onnx.roles import find_features, find_roles, input_layer
from iknow.models.onnx.running import run
from iknow.models.onnx.session import Session
from iknow.models.pooling import Pooling
from iknow.models.refused import observe_apart
from iknow.models.scores import as_columns

INPUT, OUTPUT, MASK = "input", "output", "attention_mask"
TAKES_MISSING = {"TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble", "Imputer",
                 "IsNaN"}  # fmt: skip


class OnnxModel(Model):
    """A classifier in an ONNX file. The file is read once, and never written to.

    Args:
        model: The path of the file, or an onnx.ModelProto.
        pool: How to turn a layer's activations into one vector per sample: "mean", "cls", "last"
            or a function, for all layers or in a mapping.
        scores: Where the scores are: the name of a tensor, the position of an output, "logit" or
            "probability" for one number per sample, or a function of all outputs in a dict by name.
            Default: the last output that looks like class scores.
        device: "cpu", "cuda", "cuda:1" or "mps". Default: the CPU.
        optimized: Let onnxruntime fuse nodes, if no layers but the graph's own outputs are read.

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
        optimized: bool = False,
    ) -> None:
        self._file = read_file(model)
        self._graph, self._name = self._file.graph, self._file.name
        self._pooling, self._option = Pooling(pool), scores
        self._pooling.check_names((INPUT, OUTPUT, *self.tensors), self._name)
        self._roles = find_roles(self._graph, scores, self._name)
        self._session = Session(self._file, device, optimized=optimized)

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
        return prepare(inputs, self._graph, self._name)

    def layers(self, batch: Any) -> tuple[Layer, ...]:
        """Describe the input if it is one array of floats, what enters the last product with
        weights, and the scores; no `batch` is run.
        """
        features, scores, given = self._features, self._roles.scores, input_layer(self._graph)
        raw = [Layer(INPUT, "input")] if given is not None and given.is_float else []
        hidden = [Layer(features, "hidden")] if features not in (None, INPUT) else []
        # Another tensor may be called "output".
        last = scores if scores is not None and OUTPUT in self.tensors else OUTPUT
        return (*raw, *hidden, Layer(last, "output"))

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        self._check_layers(layers)
        strange = find_strange(batch, self._graph)
        if not strange.any():
            return self._ask(batch, layers)
        found = observe_apart(
            self._ask,
            batch,
            layers,
            strange.astype(np.int64),
            substitute=lambda: without_numbers(batch),
        )
        if not TAKES_MISSING.isdisjoint(self._graph.ops):
            return found
        # Nothing in the graph looks for missing values, yet one may vanish, as in max(NaN, 0).
        return mark_invalid(replace(found, invalid=found.invalid | strange))

    def sensitivity(self, layer: str, inputs: Sizes) -> Sensitivity | float:
        check_type(self, OnnxModel)
        given = input_layer(self._graph)
        plain = given is not None and given.kind in ("float32", "float64")
        alone = len(self._graph.inputs) == 1 and self._pooling.of(INPUT) is None
        if layer == INPUT and INPUT not in self._graph.makers and plain and alone:
            return 1.0  # the numbers as given, rounded to float32
        return super().sensitivity(layer, inputs)

    @property
    def _features(self) -> str | None:
        """The layer that enters the last product, None if there is none."""
        given = input_layer(self._graph)
        scores = self._roles.scores
        found = None if scores is None else find_features(self._graph, scores)
        if found is None or (given is not None and found == given.name):
            return INPUT if given is not None and given.is_float else found
        return found

    def _check_layers(self, layers: Sequence[str]) -> None:
        unknown = [each for each in layers if each not in {INPUT, OUTPUT, *self.tensors}]
        if unknown:
            near = get_close_matches(str(unknown[0]), self.tensors, 5, 0.5)
            raise LayerError(
                f"{self._name} has no tensor {shown(unknown[0])}"
                f"{f': did you mean {names(near)}?' if near else '.'} It has "
                f"{len(self.tensors)} tensors, the last of them {names(self.tensors[-8:])}; "
                "OnnxModel(model).tensors lists them all, and 'input' and 'output' are layers too"
            )

    def _ask(self, batch: Any, layers: Sequence[str]) -> Observation:
        """The model's answer for a prepared batch as it is."""
        places = {layer: self._place(layer) for layer in layers}
        inside = [each for each in places.values() if each in self._graph.makers]
        said, label = self._roles.scores, self._roles.label
        outputs = [each.name for each in self._graph.outputs] if said is None else []
        needed = [*inside, *([said] if said else []), *([label] if label else [])]
        tensors = list(dict.fromkeys([*needed, *outputs]))
        feeds = feed(batch, self._graph)
        optional = set(outputs) - set(needed)
        found = run(self._session, tensors, feeds, len(batch), optional) | feeds
        given = {name: found[name] for name in outputs if name in found}
        scores = as_columns(found[said] if said else self._option(given), self._option, self._name)
        if len(scores) != len(batch):
            raise InputError(
                f"scores= must give one row for each of {len(batch)} samples; got {scores.shape}"
            )
        activations = {
            layer: self._read(layer, found.get(place, scores), batch)
            for layer, place in places.items()
        }
        belief = self._codes(found[label]) if label else None
        return make_observation(scores, activations, belief=belief)

    def _read(self, layer: str, values: Any, batch: Batch) -> Any:
        """The activations of a layer with one vector per sample."""
        if not isinstance(values, np.ndarray):
            raise LayerError(
                f"{shown(layer)} of {self._name} is a sequence or a map, not a tensor: choose the "
                "tensor that it is made from"
            )
        mask = batch.arrays.get(MASK) if isinstance(batch, Fields) else None
        last = not has_channels(self._graph, layer)
        return self._pooling(layer, values, features_last=last, mask=mask)

    def _place(self, layer: str) -> str:
        """The tensor that is a layer; `OUTPUT` itself for the scores."""
        if layer in self.tensors or layer != INPUT:
            return layer
        given = input_layer(self._graph)
        if given is None:
            raise LayerError(
                f"the layer 'input' needs a single input of numbers; {self._name} has "
                f"{', '.join(map(str, self._graph.inputs[:20]))}: choose tensors after them"
            )
        return given.name

    def _codes(self, labels: Any) -> Ints:
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
