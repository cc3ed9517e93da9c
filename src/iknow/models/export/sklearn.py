"""A scikit-learn model and its layers as one graph.

As in `SklearnModel`, we go through the steps of a pipeline to the classifier, and read each layer
where the adapter reads it. The scores are the probabilities, else the decision function,
else the answer itself as 0 and 1.

A model is a tree of parts: a pipeline holds steps, a voting classifier holds classifiers. A
transformer becomes a tensor, a classifier its `Outputs`. The parts in the tables below are written
here, in double precision and with scikit-learn's own rules for ties. skl2onnx converts all others.
Some of its converters fail in double precision, or are wrong. So a graph in the precision of the
examples is tried first, then one in the other, and a graph is taken only if it says the same about
the examples as the part itself.

A graph computes something for every input, also where the model would raise an error: for a missing
value that a forest never saw, for an infinite number. Which of them a model refuses we ask the
model itself, with a sample into which such values are put. Where the graph meets one, its scores
are NaN, which is no answer.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator

from iknow.core.codes import NO_BELIEF
from iknow.core.text import name as shown_name
from iknow.core.text import shown
from iknow.errors import ExportError, MissingExtraError
from iknow.locking import unforked
from iknow.metrics.table import A_CATEGORY, A_GAP, code_of
from iknow.models.adapt import has_base
from iknow.models.export import BELIEF, LAYER, SCORES
from iknow.models.export.graph import LABELS, OPSETS, TEXT, Builder, Tensor
from iknow.models.inputs import is_missing, is_number, is_sparse, own_copy, take_rows
from iknow.models.model import is_refusal
from iknow.models.onnx.file import read_file
from iknow.models.onnx.session import Session
from iknow.models.sklearn import TABLE, SklearnModel

TRANSFORMERS = {
    "parts.run_pipeline": "Pipeline",
    "parts.join": "ColumnTransformer FeatureUnion",
    "parts.call_function": "FunctionTransformer",
    "parts.encode_one_hot": "OneHotEncoder",
    "parts.encode_ordinal": "OrdinalEncoder",
    "parts.read_tfidf": "TfidfVectorizer",
    "parts.weigh": "TfidfTransformer",
    "parts.impute": "SimpleImputer",
    "parts.scale": "StandardScaler MinMaxScaler MaxAbsScaler RobustScaler Binarizer",
}
CLASSIFIERS = {
    "parts.end_pipeline": "Pipeline",
    "parts.read_linear": (
        "LogisticRegression LogisticRegressionCV LinearDiscriminantAnalysis SGDClassifier LinearSVC"
        " Perceptron PassiveAggressiveClassifier RidgeClassifier RidgeClassifierCV"
    ),
    "parts.read_network": "MLPClassifier",
    "parts.read_bagging": "BaggingClassifier",
    "parts.read_boosting": "AdaBoostClassifier",
    "parts.read_voting": "VotingClassifier",
    "parts.read_stacking": "StackingClassifier",
    "parts.read_calibrated": "CalibratedClassifierCV",
    "trees.read_forest": (
        "DecisionTreeClassifier ExtraTreeClassifier RandomForestClassifier ExtraTreesClassifier"
    ),
    "trees.read_gradient_boosting": "GradientBoostingClassifier",
    "trees.read_histograms": "HistGradientBoostingClassifier",
    "trees.read_xgboost": "XGBClassifier XGBRFClassifier XgboostBooster",
    "trees.read_lightgbm": "LGBMClassifier LightgbmBooster",
    "trees.read_catboost": "CatBoostClassifier CatboostBooster",
}
"""Which function writes which classes, by their names: a subclass may compute anything."""
PACKAGES = ("sklearn", "xgboost", "lightgbm", "catboost", "iknow")
INPUT, OUTPUT = "input", "output"
MOST_EXAMPLES = 200
LARGE, TOO_LARGE = 1e39, 2.0**128 - 2.0**103  # the second becomes infinite in single precision
STRANGE = (np.nan, np.inf, -np.inf, LARGE)
SPLITS_COLUMNS = ("ColumnTransformer", "FeatureUnion")
X = "X"  # the input that is no data frame
UNKNOWN_TEXT = -1.0  # in place of a code
CLOSE = 1e-4  # of the largest number: far above single precision, far below a wrong formula
LOCALE = "C.UTF-8"  # lower case without a language that a machine may lack
# What scikit-learn takes for words unless told, and the same for onnxruntime's expressions;
# skl2onnx would take the letters of English alone.
WORDS, SAME_WORDS = r"(?u)\b\w\w+\b", r"[\p{L}\p{N}_]{2,}"

Value = Tensor | list[Tensor]
"""What enters a part: one tensor, or the columns of a data frame, each of shape (n, 1)."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """What a classifier says; without a belief, it is the highest score, the first of equals."""

    chances: Tensor | None = None  # probabilities of shape (n, n_classes)
    decision: Tensor | None = None  # the decision function, of shape (n, n_columns)
    belief: Tensor | None = None  # the position of its answer, of shape (n,)
    layers: Mapping[str, Tensor] = field(default_factory=dict)  # inner ones by name


@dataclass(frozen=True, eq=False)
class Part:
    """A fitted transformer or classifier, with what enters it."""

    b: Builder
    estimator: Any
    value: Value  # what enters it, as a part of the graph
    sample: Any  # what enters it for the example inputs

    def of(self, estimator: Any) -> Part:
        """Return a part inside this one that gets the same input."""
        return replace(self, estimator=estimator)

    @property
    def columns(self) -> list[Tensor]:
        """The columns that enter, each of shape (n, 1)."""
        if not isinstance(self.value, Tensor):
            return self.value
        return [self.b.columns(self.value, [i]) for i in range(self.value.width or 0)]

    def select(self, which: Any, is_one: bool = False) -> Part:
        """Return the part with some columns; one named by itself is an array of one axis."""
        sample, value = self.sample, self.value
        rows = sample.iloc[:, which] if hasattr(sample, "iloc") else sample[:, which]
        if isinstance(value, Tensor):
            value = self.b.columns(value, which)
        else:
            value = [value[i] for i in which]
        if is_one:
            rows = rows.iloc[:, 0] if hasattr(rows, "iloc") else rows[:, 0]
            value = self.b.flat(replace(self, value=value).columns[0])
        return replace(self, value=value, sample=rows)

    @property
    def tensor(self) -> Tensor:
        """All columns side by side."""
        if isinstance(self.value, Tensor):
            return self.value
        text = [each.name for each in self.value if each.kind == TEXT]
        if 0 < len(text) < len(self.value):
            raise ExportError(
                f"ONNX cannot put text ({shown(text[0])}) and numbers into one table: encode the "
                "text in a ColumnTransformer"
            )
        return self.b.concat(self.value)

    @property
    def numbers(self) -> Tensor:
        """All columns side by side, in double precision."""
        tensor = self.tensor
        if tensor.kind == TEXT:
            raise ExportError("these inputs are text, and a step that takes numbers reads them")
        return self.b.cast(tensor, "float64")


def classify(part: Part) -> Outputs:
    """What a classifier says about its input."""
    found: Outputs = _lower(part, CLASSIFIERS, "convert_classifier")
    return found


def transform(part: Part) -> Any:
    """What a transformer makes of its input: a tensor, or a `Value` as it is."""
    return _lower(part, TRANSFORMERS, "convert_step")


def _lower(part: Part, table: Mapping[str, str], otherwise: str) -> Any:
    inside = part.estimator
    while isinstance(inside, FrozenEstimator):
        inside = inside.estimator
    kind = type(inside)
    is_known = kind.__module__.partition(".")[0] in PACKAGES
    places = (place for place, names in table.items() if kind.__name__ in names.split())
    place = next(places, None) if is_known else None
    module, _, name = (place or f"sklearn.{otherwise}").partition(".")
    return getattr(import_module(f"{__package__}.{module}"), name)(part.of(inside))


def follow(part: Part, steps: Iterable[Any]) -> Part:
    """What leaves some steps; its estimator is the last of them."""
    for step in steps:
        part = part.of(step)
        if not (step is None or isinstance(step, str)):  # "passthrough"
            value = transform(part)
            part = replace(part, value=value, sample=step.transform(own_copy(part.sample)))
    return part


def to_onnx(
    adapter: SklearnModel,
    layers: Sequence[str],
    inputs: Any,
    samples: Iterable[Any] = (),
    wanted: Collection[float] | None = None,
) -> bytes:
    """The ONNX file of a scikit-learn model; see `iknow.models.export`.

    samples, wanted: what the layer "table" needs to know about categories; see `_read_table`.
    """
    b, batch = Builder(), adapter.prepare(inputs)
    few = take_rows(batch, slice(0, MOST_EXAMPLES))
    said = adapter.observe(few, layers).belief != NO_BELIEF
    if not said.any():
        raise ExportError("an export needs examples that the model answers; it refuses all given")
    sample = own_copy(take_rows(few, np.flatnonzero(said)))
    entrance = end = Part(b, None, _declare(b, batch), sample)
    found = {INPUT: end.numbers} if INPUT in layers else {}
    for name, step in adapter.steps:
        end = follow(end, [step])
        if name in layers:
            found[name] = end.numbers
    answer = classify(end.of(adapter.final))
    if TABLE in layers and TABLE not in dict(adapter.steps):
        found[TABLE] = _read_table(entrance, (batch, *samples), wanted)
    first = adapter.steps[0][1] if adapter.steps else adapter.final
    alike = not any(has_base(first, name, "sklearn") for name in SPLITS_COLUMNS)
    _refuse(entrance.of(adapter.estimator), alike)
    if adapter.steps:
        _refuse(end.of(adapter.final), alike=True)
    output = answer.decision if hasattr(adapter.final, "decision_function") else answer.chances
    found = {**answer.layers, **({} if output is None else {OUTPUT: output}), **found}
    # As the adapter gives them; a belief is left out where it is the highest.
    scores, belief, n = answer.chances, answer.belief, len(adapter.classes)
    if scores is None and answer.decision is not None and answer.decision.width in (1, n):
        scores = b.both_signs(answer.decision) if answer.decision.width == 1 else answer.decision
    elif scores is None:
        assert belief is not None  # or there would be chances
        scores, belief = b.look_up(np.eye(n), belief), None
    for which in b.refused:
        scores = b.where(b.column(which), np.nan, scores)
    outputs = {SCORES: scores}
    for layer in layers:
        if layer not in found:
            raise ExportError(
                f"the layer {shown(layer)} of {type(adapter.final).__name__} cannot become ONNX; "
                f"{', '.join(map(repr, found))} can: choose other layers"
            )
        outputs[f"{LAYER}{layer}"] = b.cast(found[layer], "float32")
    return b.finish(outputs if belief is None else {**outputs, BELIEF: belief})


def _read_table(part: Part, samples: Iterable[Any], wanted: Collection[float] | None) -> Tensor:
    """The values of all columns and then their flags, as `find_table` gives them.

    A graph cannot compute the code of a text, so it looks up those of the texts that some part of
    the model or some sample knows. Any other gets `UNKNOWN_TEXT`, the code of no category, and is
    as new in the graph as to the original. wanted: the codes of all categories in the training
    data; `ExportError` if the graph lacks one.
    """
    b, value = part.b, part.value
    are_numbers = isinstance(value, Tensor) and value.kind != TEXT
    columns = [value] if isinstance(value, Tensor) and are_numbers else part.columns
    dtypes = getattr(part.sample, "dtypes", [None] * len(columns))
    labels = [list(getattr(dtype, "categories", ())) for dtype in dtypes]
    texts = b.texts.union(*map(_texts_in, samples), *labels)
    codes = {each: code_of(each) for each in sorted(filter(_is_told, texts))}
    lacking = set(wanted or ()).difference(codes.values(), map(code_of, chain(*labels)))
    if lacking:
        raise ExportError(
            f"{len(lacking):,} categories of the training data are unknown to the model's own "
            "encoders, and a graph could not tell them from new ones: pass samples= that have all "
            "of them, or save without onnx=True and give the model to load"
        )
    codes.setdefault("", code_of(""))  # there must be one
    pairs: Any = {"keys_strings": [*codes], "values_floats": [*codes.values()]}
    values, flags = list[Tensor](), list[Tensor]()
    for column, names in zip(columns, labels, strict=True):
        if column.kind == TEXT:
            found = b.op(LABELS, column, kind="float32", default_float=UNKNOWN_TEXT, **pairs)
            values.append(b.cast(found, "float64"))
            flags.append(b.op("Add", b.op("Mul", values[-1], 0.0), A_CATEGORY))
        elif names:  # numbers that are names
            at = b.codes(column, [*names, np.nan])
            of_names = [[code_of(each), A_CATEGORY] for each in names]
            both = b.look_up(np.array([*of_names, [0, A_GAP], [UNKNOWN_TEXT, A_CATEGORY]]), at)
            values.append(b.columns(both, [0]))
            flags.append(b.columns(both, [1]))
        else:
            x = b.cast(column, "float64")
            gaps = b.op("IsNaN", x)
            values.append(b.where(gaps, 0.0, x))
            flags.append(b.cast(gaps, "float64"))
    return b.concat([*values, *flags])


def _texts_in(batch: Any) -> set[Any]:
    """The texts in an array, or in the columns of a data frame."""
    parts = [batch]
    if hasattr(batch, "iloc"):
        parts = [batch.iloc[:, j].array for j in range(batch.shape[1])]
    others = (np.asarray(each, object).ravel() for each in parts if not is_number(each.dtype))
    return set(chain.from_iterable(each.tolist() for each in others))


def _is_told(value: Any) -> bool:
    """Whether a graph can hold a value as text, which must be valid Unicode."""
    return isinstance(value, str) and value.encode("utf-8", "ignore").decode() == value


def _declare(b: Builder, inputs: Any) -> Value:
    """The inputs of a graph for samples like these.

    An array is one input of numbers in double precision, which holds all numbers of fewer bits;
    texts are one input of text. A data frame is an input for each column, of the column's name, so
    that their order does not matter; a column of categories holds their labels.
    """
    if hasattr(inputs, "iloc") and inputs.ndim == 2:
        names = list(inputs.columns)
        if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise ExportError(
                "the columns of a data frame become inputs by name: each must have a text of its "
                f"own as its name; got {shown(names[:10])}"
            )
        return [b.input(name, _kind_of(inputs[name], shown(name)), 1) for name in names]
    values = inputs if is_sparse(inputs) else np.asarray(inputs)
    return b.input(X, _kind_of(values, X), None if values.ndim == 1 else int(values.shape[1]))


def _kind_of(values: Any, name: str) -> str:
    """What an array or a column holds, missing values aside."""
    labels = getattr(values.dtype, "categories", values)
    if values.ndim < 3:
        if labels is values and getattr(values.dtype, "kind", "O") in "fiub":
            return "float64"
        listed = labels.ravel() if isinstance(labels, np.ndarray) else labels
        present = [each for each in listed.tolist() if not is_missing(each)]
        kinds: tuple[tuple[str, Any], ...] = ((TEXT, str), ("float64", (int, float)))
        for kind, types in kinds:
            if all(isinstance(each, types) for each in present):
                return kind
    raise ExportError(
        f"ONNX takes texts, or tables of numbers; {name} has dtype {values.dtype} and shape "
        f"{values.shape}: convert it before the model, or pass a data frame, whose columns may be "
        "of different kinds"
    )


def _refuse(part: Part, alike: bool) -> None:
    """Refuse strange numbers in columns where a part does; alike: asking about all is enough."""
    b, value = part.b, part.value
    tensors = [value] * (value.width or 0) if isinstance(value, Tensor) else value
    columns = np.flatnonzero([each.kind != TEXT for each in tensors])
    row = take_rows(part.sample, slice(0, 1))
    for strange in STRANGE if len(columns) else ():
        if not _refuses(part.estimator, row, columns, strange):
            continue
        found = [] if alike else [i for i in columns if _refuses(part.estimator, row, [i], strange)]
        x = part.select(np.array(found or columns)).tensor
        if strange == LARGE:
            size = b.op("Abs", x)
            met = b.op("And", b.op("GreaterOrEqual", size, TOO_LARGE), b.op("Less", size, np.inf))
        else:
            met = b.op("IsNaN", x) if np.isnan(strange) else b.op("Equal", x, strange)
        worst = b.reduce("ReduceMax", b.cast(met, "float32"))
        b.refused.append(b.op("Greater", worst, 0.5))


def _refuses(model: Any, row: Any, columns: Any, strange: float) -> bool:
    """Whether a model refuses a sample with a strange value in some columns."""
    if hasattr(row, "iloc"):
        asked = own_copy(row)
        for i in columns:
            if not hasattr(row.dtypes.iloc[i], "categories"):
                asked.isetitem(i, np.array([strange]))
    else:
        dense = row.toarray() if is_sparse(row) else row
        asked = np.array(dense, dtype=object if row.dtype.kind == "O" else np.float64)
        asked[:, columns] = strange
        asked = type(row)(asked) if is_sparse(row) else asked
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model.predict(asked)
        except Exception as error:
            if not is_refusal(error):
                raise
            return True
    return False


def convert_step(part: Part) -> Tensor:
    if getattr(part.estimator, "analyzer", "word") != "word":
        raise ExportError(
            f"{type(part.estimator).__name__} with an analyzer other than 'word' cannot become "
            "ONNX: skl2onnx counts differently"
        )
    made = _as_array(part.estimator.transform(own_copy(part.sample)))
    return _convert(part, {}, [made.reshape(len(made), -1)])[0]


def convert_classifier(part: Part) -> Outputs:
    model = part.estimator
    found: dict[str, Tensor] = {}
    if getattr(model, "break_ties", False):
        raise ExportError(
            f"{type(model).__name__} with break_ties=True cannot become ONNX: leave it out"
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
    return Outputs(found.get("predict_proba"), found.get("decision_function"), belief)


def _convert(part: Part, options: dict[str, Any], expected: list[NDArray[Any]]) -> list[Tensor]:
    """The first outputs of skl2onnx's graph, in double precision, if they are as expected."""
    b, x, values = part.b, part.tensor, _as_array(part.sample)
    try:
        with unforked():
            import_module("skl2onnx")
    except ImportError as error:
        raise MissingExtraError("a scikit-learn model as ONNX", "export") from error
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
    import skl2onnx
    from skl2onnx.common import data_types

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
