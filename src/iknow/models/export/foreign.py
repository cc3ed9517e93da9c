"""Foreign parts: what skl2onnx makes of a part, compared with the part itself.

Some of skl2onnx's converters fail in double precision, or are wrong. So a graph in the precision of
the examples is tried first, then one in the other, and a graph is taken only if it says the same
about the examples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.text import name as shown_name
from iknow.errors import ExportError, MissingExtraError
from iknow.locking import unforked
from iknow.models.export.onnx.answers import highest
from iknow.models.export.onnx.builder import TEXT, Builder, Tensor
from iknow.models.export.onnx.inputs import as_tensor
from iknow.models.export.parts import Answer, Part
from iknow.models.inputs import own_copy
from iknow.models.numbers import is_sparse
from iknow.models.onnx.file import read_file
from iknow.models.onnx.session import Session

CLOSE = 1e-4  # of the largest number: far above single precision, far below a wrong formula
X = "X"


def convert_transformer(part: Part) -> Tensor:
    """What a transformer makes."""
    if getattr(part.estimator, "analyzer", "word") != "word":
        raise ExportError(
            f"{type(part.estimator).__name__} with an analyzer other than 'word' cannot become "
            "ONNX: skl2onnx counts differently"
        )
    made = _as_array(part.estimator.transform(own_copy(part.sample)))
    return _convert(part, {}, [made.reshape(len(made), -1)])[0]


def convert_classifier(part: Part) -> Answer:
    """What a classifier says."""
    model, classes = part.estimator, np.asarray(part.estimator.classes_)
    labels = np.asarray(model.predict(own_copy(part.sample)))
    found: dict[str, Tensor] = {}
    belief = None
    for method, raw in (("predict_proba", False), ("decision_function", True)):
        if hasattr(model, method):
            said = np.asarray(getattr(model, method)(own_copy(part.sample)), np.float64)
            expected = [labels, said.reshape(len(said), -1)]
            try:
                label, found[method] = _convert(part, {"raw_scores": raw}, expected)
            except ExportError:
                if not found:
                    raise
                continue  # the probabilities are enough unless a layer is the decision function
            belief = belief or find_positions(part.b, label, classes)
    if belief is None:
        belief = find_positions(part.b, _convert(part, {}, [labels])[0], classes)
    return Answer(found.get("predict_proba"), found.get("decision_function"), belief)


def find_positions(b: Builder, label: Tensor, classes: NDArray[Any]) -> Tensor:
    """The positions of predicted labels among the classes, of shape (n,)."""
    if label.kind == TEXT:
        return b.op(
            "LabelEncoder",
            label,
            kind="int64",
            domain="ai.onnx.ml",
            keys_strings=classes.tolist(),
            values_int64s=list(range(len(classes))),
        )
    column = b.op("Reshape", b.cast(label, "float64"), np.array([-1, 1]), width=1)
    same = b.op("Equal", column, classes.astype(np.float64)[None], kind="bool", width=len(classes))
    return highest(b, b.cast(same, "float64"))


def _convert(part: Part, options: dict[str, Any], expected: list[NDArray[Any]]) -> list[Tensor]:
    """The first outputs of the graph that skl2onnx makes; numbers are in double precision.

    expected: what the part itself says about its sample.
    """
    convert_part = _load()
    b, x = part.b, as_tensor(part.b, part.value)
    kinds = [x.kind] if x.kind == TEXT else ["float64", "float32"]
    if _as_array(part.sample).dtype == np.float32:  # in which scikit-learn computes then
        kinds.reverse()
    reason = "it gave no graph"
    for kind in kinds:
        try:
            model = convert_part(part.estimator, kind, x.width, options)
            said = _run(model, part.sample, kind, len(expected))
            reason = _differs(said, expected) or ""
        except Exception as error:  # the package raises errors of all kinds
            reason = f"{type(error).__name__}: {error}"
            continue
        if not reason:
            names = b.join(model, {X: b.cast(x, kind)})
            return [
                _as_declared(part, names[output.name], got, wanted)
                for output, got, wanted in zip(model.graph.output, said, expected, strict=False)
            ]
    raise ExportError(
        f"{type(part.estimator).__name__} cannot become ONNX by skl2onnx: "
        f"{shown_name(reason, 400)}. Use another estimator in its place, or leave the model out "
        "of the bundle"
    )


def _load() -> Any:
    try:
        with unforked():
            from iknow.models.export.skl2onnx import convert_part
    except ImportError as error:
        raise MissingExtraError("a scikit-learn model as ONNX", "export") from error
    return convert_part


def _run(model: Any, sample: Any, kind: str, n_outputs: int) -> list[NDArray[Any]]:
    values = _as_array(sample)
    given = values.astype(object) if kind == TEXT else values.astype(kind)
    session = Session(read_file(model))
    names = [output.name for output in model.graph.output][:n_outputs]
    return [np.asarray(each) for each in session.run(names, {X: given})]


def _differs(said: list[NDArray[Any]], expected: list[NDArray[Any]]) -> str | None:
    """What is wrong with outputs, if anything is."""
    for got, wanted in zip(said, expected, strict=True):
        if wanted.ndim == 1:
            same = got.astype(wanted.dtype).ravel() == wanted
            if not same.all():
                return f"its graph answers differently for {int((~same).sum())} of {len(same)}"
            continue
        numbers = _columns_of(got, wanted.shape[1])
        if numbers.shape != wanted.shape:
            return f"its graph has shape {got.shape} in place of {wanted.shape}"
        if not np.allclose(numbers, wanted, CLOSE, CLOSE * _size(wanted), equal_nan=True):
            worst = np.nanmax(np.abs(numbers - wanted))
            return f"its graph differs from the estimator by up to {worst:.2g}"
    return None


def _size(wanted: NDArray[Any]) -> float:
    finite = np.abs(wanted[np.isfinite(wanted)])
    return float(min(1.0, finite.max())) if finite.size else 1.0


def _columns_of(values: NDArray[Any], n: int) -> NDArray[Any]:
    """The numbers of shape (n_samples, n); of two classes the second is the decision."""
    table = values.reshape(len(values), -1)
    return table[:, -1:] if n == 1 else table


def _as_declared(part: Part, name: str, got: NDArray[Any], wanted: NDArray[Any]) -> Tensor:
    """An output of a joined graph as a tensor with one row per sample."""
    b = part.b
    if wanted.ndim == 1:
        kind = TEXT if got.dtype.kind in "OU" else str(got.dtype)
        return b.op("Reshape", Tensor(name, kind, None), np.array([-1]))
    width = int(np.prod(got.shape[1:], dtype=int))
    flat = b.op("Reshape", Tensor(name, str(got.dtype), width), np.array([-1, width]))
    numbers = b.cast(flat, "float64")
    return numbers if width == wanted.shape[1] else b.columns(numbers, np.array([width - 1]))


def _as_array(values: Any) -> NDArray[Any]:
    return np.asarray(values.toarray() if is_sparse(values) else values)
