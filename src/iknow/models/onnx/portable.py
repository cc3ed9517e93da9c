"""PortableModel: reads the ONNX graph that a bundle holds.

Either it is a graph of our own (`iknow.models.export`), whose outputs are the scores, the layers
and, where the highest score is not the model's own answer, the belief. Or it is the user's ONNX
file as it was, and the bundle says how to read it. It comes from a file that anybody may have
written: weights in other files are refused, and nothing is written to disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from iknow.core.arrays import Ints, Labels
from iknow.core.codes import NO_BELIEF
from iknow.core.text import name as shown_name
from iknow.core.text import names
from iknow.errors import ExportError, InputError
from iknow.models.export import BELIEF, LAYER, SCORES
from iknow.models.inputs import Fields
from iknow.models.model import Layer, Observation, check_layers, find_belief
from iknow.models.numbers import as_pandas, is_sparse
from iknow.models.onnx.file import read_bytes
from iknow.models.onnx.model import OnnxModel
from iknow.models.onnx.roles import TEXT


def to_onnx(model: OnnxModel, layers: Sequence[str], inputs: Any) -> bytes:
    """The file of a model that is ONNX already; see `iknow.models.export`."""
    model._locate(layers)
    try:
        return model._file.with_weights()
    except Exception as error:  # of weights that cannot be read, or of more than 2 GB
        raise ExportError(f"{model._name} cannot become ONNX: {shown_name(error, 600)}") from error


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
        outputs = [each.name for each in file.graph.outputs]
        if reading is None and SCORES not in outputs:
            raise InputError(f"{name} must have an output {SCORES!r}; it has {names(outputs)}")
        own = [each.removeprefix(LAYER) for each in outputs if each.startswith(LAYER)]
        self.layer_names = tuple(own if reading is None else reading["layers"])
        how = reading or {"layers": None, "scores": SCORES}
        super().__init__(file, how["layers"], how["scores"], device, only=self.layer_names)
        if reading is None and BELIEF in outputs:
            self._roles = replace(self._roles, label=BELIEF)

    @property
    def classes(self) -> Labels | None:
        return self._classes

    @property
    def takes_text(self) -> bool:
        """Whether some of its inputs are text."""
        return any(each.kind == TEXT for each in self._graph.inputs)

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
            return inputs.tocsr()
        if self.matches(inputs):
            inputs = as_pandas(inputs)[self._columns]
        given: Any = inputs.arrays if isinstance(inputs, Fields) else inputs
        ordered = self.inputs if self._columns is None else self._columns
        if isinstance(given, Mapping) and given and all(str(each).isdigit() for each in given):
            given = tuple(given.values()) if len(self.inputs) > 1 else next(iter(given.values()))
        if len(self.inputs) == 1:
            takes = self._graph.inputs[0]
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

    def reading(self, layers: Sequence[str], inputs: Any) -> Mapping[str, Any] | None:
        return self._reading

    def _locate(self, layers: Iterable[str]) -> dict[str, str]:
        wanted = list(layers)
        check_layers(wanted, self.layer_names, self._name)
        if self._reading is not None:
            return super()._locate(wanted)
        return {layer: f"{LAYER}{layer}" for layer in wanted}

    def _codes(self, labels: Any, scores: Any) -> Ints | None:
        if self._roles.classes is not None:
            return super()._codes(labels, scores)
        if scores.ndim != 2 or scores.dtype.kind not in "fiu":
            return None  # which is refused later
        codes, n_classes = np.asarray(labels).ravel(), scores.shape[1]
        answered = find_belief(scores) != NO_BELIEF
        fits = codes.dtype.kind in "iu" and len(codes) == len(scores)
        if not fits or ((codes < 0) | (codes >= n_classes))[answered].any():
            raise InputError(f"{self._name} must give positions of {n_classes} classes as belief")
        return np.where(answered, codes, NO_BELIEF)
