"""PortableModel: reads the ONNX graph that a bundle holds.

Its outputs are the scores, the layers and, where the highest score is not the model's own answer,
the belief (`iknow.models.export`). It is an ONNX model like any other, read by the same code with
the same checks, but for the names of its layers. It comes from a file that anybody may have
written: weights in other files are refused, and nothing is written to disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from iknow.core.arrays import Ints, Labels
from iknow.core.codes import NO_BELIEF
from iknow.core.text import names
from iknow.errors import InputError
from iknow.models.export import BELIEF, LAYER, SCORES
from iknow.models.inputs import Fields
from iknow.models.model import Layer, Model, Observation, check_layers
from iknow.models.numbers import as_pandas, is_sparse
from iknow.models.onnx.file import read_bytes
from iknow.models.onnx.graph import TEXT
from iknow.models.onnx.model import OnnxModel


def to_onnx(model: PortableModel, layers: Sequence[str], inputs: Any) -> bytes:
    """The file that a portable model is; see `iknow.models.export`."""
    check_layers(layers, model.layer_names, model._name)
    return model.content


class PortableModel(Model):
    """A classifier whose ONNX graph returns its scores and its layers.

    Args:
        content: The bytes of the ONNX file.
        classes: Labels of the score columns, of shape (n_classes,).
        columns: Names of the features, if they have names: a table is matched with them.
        device: "cpu", "cuda", "cuda:1" or "mps". Default: the CPU.
        name: What the file is called in errors.
    """

    def __init__(
        self,
        content: bytes,
        classes: Labels | None = None,
        columns: Sequence[str] | None = None,
        device: str | None = None,
        name: str = "model.onnx",
    ) -> None:
        file = read_bytes(content, name)
        outputs = [each.name for each in file.graph.outputs]
        if SCORES not in outputs:
            raise InputError(f"{name} must have an output {SCORES!r}; it has {names(outputs)}")
        self.content, self._classes, self._name = content, classes, name
        self._columns = None if columns is None else list(columns)
        of_layers = [each for each in outputs if each.startswith(LAYER)]
        self.layer_names = tuple(each.removeprefix(LAYER) for each in of_layers)
        self._inputs = tuple(each.name for each in file.graph.inputs)
        self._believes = [BELIEF] if BELIEF in outputs else []
        self._model = OnnxModel(file, scores=SCORES, device=device, optimized=True)

    @property
    def classes(self) -> Labels | None:
        return self._classes

    @property
    def takes_text(self) -> bool:
        """Whether some of its inputs are text."""
        return any(each.kind == TEXT for each in self._model._graph.inputs)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the graph's inputs."""
        return self._inputs

    @property
    def is_elsewhere(self) -> bool:
        return self._model.is_elsewhere

    def prepare(self, inputs: Any) -> Any:
        """Return `inputs` as the graph takes them.

        Several inputs come by name, or in order: in a tuple, or as the columns of a table. The
        columns of a table with the features' names are taken in the order of the features.
        """
        if is_sparse(inputs):  # first, as one format of them is a dict
            return inputs.tocsr()
        if self.matches(inputs):
            inputs = as_pandas(inputs)[self._columns]
        return self._model.prepare(self._by_name(inputs))

    def _by_name(self, inputs: Any) -> Any:
        """Inputs by the names that a graph with several of them has; others as they are."""
        given: Any = inputs.arrays if isinstance(inputs, Fields) else inputs
        by_place = isinstance(given, Mapping) and all(str(each).isdigit() for each in given)
        if by_place:
            given = tuple(given.values())
        if len(self._inputs) == 1:
            return self._only_column(given[0] if by_place else given)
        listed = self._inputs if self._columns is None else self._columns
        fits = set(listed) == set(self._inputs)
        if isinstance(given, tuple) and len(given) == len(self._inputs):
            return dict(zip(self._inputs, given, strict=True))
        if isinstance(given, (list, np.ndarray)) and fits:
            rows = np.array(given, dtype=object) if isinstance(given, list) else given
            if rows.ndim == 2 and rows.shape[1] == len(listed):
                return {name: rows[:, j] for j, name in enumerate(listed)}
        return given

    def _only_column(self, given: Any) -> Any:
        """The column of a table with a single one, if the graph takes texts of shape (n,)."""
        only = self._model._graph.inputs[0]
        is_table = hasattr(given, "iloc") and given.ndim == 2 and given.shape[1] == 1
        flat = only.kind == TEXT and only.shape is not None and len(only.shape) == 1
        return given.iloc[:, 0] if is_table and flat else given

    def matches(self, inputs: Any) -> bool:
        """Whether `inputs` are a table with the names of the features, in any order."""
        found = getattr(inputs, "column_names", getattr(inputs, "columns", None))
        if self._columns is None or found is None or isinstance(inputs, Fields):
            return False
        return sorted(map(str, found)) == sorted(self._columns)

    def layers(self, batch: Any) -> tuple[Layer, ...]:
        """Describe all layers that the graph gives; no `batch` is run."""
        return tuple(Layer(name, "hidden") for name in self.layer_names)

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        check_layers(layers, self.layer_names, self._name)
        batch = batch.toarray() if is_sparse(batch) else batch
        read = {layer: f"{LAYER}{layer}" for layer in layers}
        found = self._model.observe(batch, [*read.values(), *self._believes])
        belief = self._find_belief(batch, found) if self._believes else found.belief
        activations = {layer: found.activations[place] for layer, place in read.items()}
        return replace(found, belief=belief, activations=activations)

    def _find_belief(self, batch: Any, found: Observation) -> Ints:
        """The belief as the graph gives it, of shape (n,), where there are scores."""
        if found.invalid.any():  # their activations are 0, because of other layers
            found = self._model.observe(batch, self._believes)
        said = found.activations[BELIEF]
        codes, n_classes = said[:, 0].astype(np.int64), found.scores.shape[1]
        answered = ~found.invalid & (found.belief != NO_BELIEF)
        if said.shape[1] != 1 or ((codes < 0) | (codes >= n_classes))[answered].any():
            raise InputError(f"{self._name} must give positions of {n_classes} classes as belief")
        return np.where(answered, codes, found.belief)
