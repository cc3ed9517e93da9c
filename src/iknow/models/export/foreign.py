"""Foreign parts: what skl2onnx makes of a part, compared with the part itself.

Some of skl2onnx's converters fail in double precision, or are wrong. So a graph in the precision of
the examples is tried first, then one in the other, and a graph is taken only if it says the same
about the examples.
"""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.text import name as shown_name
from iknow.errors import ExportError, MissingExtraError
from iknow.locking import unforked
from iknow.models.export.graph import OPSETS, TEXT, Builder, Tensor
from iknow.models.export.sklearn import Answer, Part
from iknow.models.inputs import own_copy
from iknow.models.numbers import is_sparse
from iknow.models.onnx.file import read_file
from iknow.models.onnx.session import Session

CLOSE = 1e-4  # of the largest number: far above single precision, far below a wrong formula
X = "X"
LOCALE = "C.UTF-8"  # lower case without a language that a machine may lack
# What scikit-learn takes for words unless told, and the same for onnxruntime's expressions; the
# converter would take the letters of English alone.
WORDS, SAME_WORDS = r"(?u)\b\w\w+\b", r"[\p{L}\p{N}_]{2,}"


def convert_transformer(part: Part) -> Tensor:
    if getattr(part.estimator, "analyzer", "word") != "word":
        raise ExportError(
            f"{type(part.estimator).__name__} with an analyzer other than 'word' cannot become "
            "ONNX: skl2onnx counts differently"
        )
    made = _as_array(part.estimator.transform(own_copy(part.sample)))
    return _convert(part, {}, [made.reshape(len(made), -1)])[0]


def convert_classifier(part: Part) -> Answer:
    model = part.estimator
    found: dict[str, Tensor] = {}
    if getattr(model, "break_ties", False):
        raise ExportError(
            f"{type(model).__name__} with break_ties=True cannot become ONNX: train it without"
        )
    labels, label = np.asarray(model.predict(own_copy(part.sample))), None
    for method in ("predict_proba", "decision_function"):
        if hasattr(model, method):
            said = np.asarray(getattr(model, method)(own_copy(part.sample)), np.float64)
            options = {"raw_scores": method == "decision_function", "zipmap": False}
            try:
                made = _convert(part, options, [labels, said.reshape(len(said), -1)])
            except ExportError:
                if not found:
                    raise
                continue  # the probabilities are enough unless a layer is the decision function
            label, found[method] = label or made[0], made[1]
    label = label or _convert(part, {"zipmap": False}, [labels])[0]
    belief = part.b.codes(part.b.column(label), model.classes_)
    return Answer(found.get("predict_proba"), found.get("decision_function"), belief)


def _convert(part: Part, options: dict[str, Any], expected: list[NDArray[Any]]) -> list[Tensor]:
    """The first outputs of skl2onnx's graph, in double precision, if they are as expected."""
    b, x, values = part.b, part.tensor, _as_array(part.sample)
    kinds = [x.kind] if x.kind == TEXT else ["float64", "float32"]
    if values.dtype == np.float32:  # in which scikit-learn computes then
        kinds.reverse()
    for kind in kinds:
        try:
            model = _ask_skl2onnx(part.estimator, kind, x.width, options)
            names = [output.name for output in model.graph.output][: len(expected)]
            said = Session(read_file(model)).run(names, {X: values.astype(kind)})
            pairs = list(zip(map(np.asarray, said), expected, strict=True))
            reason = next(filter(None, (_differs(*pair) for pair in pairs)), None)
        except MissingExtraError:
            raise
        except Exception as error:  # the package raises errors of all kinds
            reason = f"{type(error).__name__}: {error}"
        if reason is None:
            joined = b.join(model, b.cast(x, kind))
            return [_as_declared(b, joined[n], *pair) for n, pair in zip(names, pairs, strict=True)]
    raise ExportError(
        f"{type(part.estimator).__name__} cannot become ONNX by skl2onnx: "
        f"{shown_name(reason, 400)}. Use another estimator in its place, or leave the model out "
        "of the bundle"
    )


def _ask_skl2onnx(estimator: Any, kind: str, width: int | None, options: dict[str, Any]) -> Any:
    """The graph of an estimator as an onnx.ModelProto; options are told if skl2onnx knows them."""
    try:
        with unforked():
            import skl2onnx
            from skl2onnx.common import data_types
    except ImportError as error:
        raise MissingExtraError("a scikit-learn model as ONNX", "export") from error
    types = {"float64": data_types.DoubleTensorType, "float32": data_types.FloatTensorType}
    shape = [None] if width is None else [None, width]
    declared = [(X, types.get(kind, data_types.StringTensorType)(shape))]
    own, wanted = deepcopy(estimator), dict(options)  # some converters write to what they convert
    if options.get("raw_scores") and hasattr(own, "_probA"):  # else it gives probabilities
        own._probA = own._probB = np.empty(0)
    if hasattr(own, "token_pattern"):
        wanted["locale"] = LOCALE
        wanted |= {"tokenexp": SAME_WORDS} if own.token_pattern == WORDS else {}
    model = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while model is None:
            told = {"options": {id(own): wanted} if wanted else None, "target_opset": OPSETS}
            try:
                model = skl2onnx.convert_sklearn(own, initial_types=declared, **told)
            except NameError as error:  # how it says that it lacks an option
                unknown = [each for each in wanted if str(error).startswith(f"Option {each!r} not")]
                if not unknown:
                    raise
                wanted.pop(unknown[0])
    return model


def _differs(got: NDArray[Any], wanted: NDArray[Any]) -> str | None:
    """What is wrong with an output, if anything is."""
    if wanted.ndim == 1:
        wrong = int((got.astype(wanted.dtype).ravel() != wanted).sum())
        return f"its graph answers differently for {wrong} of {len(wanted)}" if wrong else None
    numbers = got.reshape(len(got), -1)
    if wanted.shape[1] == 1:  # of two classes the second is the decision
        numbers = numbers[:, -1:]
    if numbers.shape != wanted.shape:
        return f"its graph has shape {got.shape} in place of {wanted.shape}"
    sizes = np.where(np.isfinite(wanted), np.abs(wanted), 0.0)
    allowed = CLOSE * np.maximum(sizes.max(axis=0), min(1.0, sizes.max(initial=0.0)))
    if np.allclose(numbers, wanted, CLOSE, allowed, equal_nan=True):
        return None
    return f"its graph differs from the estimator by up to {np.nanmax(abs(numbers - wanted)):.2g}"


def _as_declared(b: Builder, name: str, got: NDArray[Any], wanted: NDArray[Any]) -> Tensor:
    """An output of a joined graph as a tensor with one row per sample."""
    kind = TEXT if got.dtype.kind == "U" else str(got.dtype)
    if wanted.ndim == 1:
        return b.flat(Tensor(name, kind, None))
    width = int(np.prod(got.shape[1:], dtype=int))
    flat = b.op("Reshape", Tensor(name, kind, width), np.array([-1, width]))
    numbers = b.cast(flat, "float64")
    return numbers if width == wanted.shape[1] else b.columns(numbers, [width - 1])


def _as_array(values: Any) -> NDArray[Any]:
    return np.asarray(values.toarray() if is_sparse(values) else values)
