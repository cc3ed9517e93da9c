"""Steps: pipelines, columns side by side, encoders, imputers, scalers.

A category is found by comparing with each known one. Text is looked up in a list; numbers are
compared in double precision. What is unknown to an encoder that refuses unknown categories makes a
sample refused (`Builder.refused`).

A scaler works in the precision of its input: a table in single precision is rounded to it after
each operation. A learned number in double precision makes that one operation double.

Words are counted by a graph of skl2onnx, and weighed here in double precision. Its own weights are
single precision, so a copy of a training text would no longer lie at distance 0 from it. Counts are
whole numbers, which are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from iknow.core.text import shown
from iknow.errors import ExportError
from iknow.models.export.graph import TEXT, Tensor
from iknow.models.export.sklearn import Answer, Part, Value, classify, convert_step, follow
from iknow.models.numbers import is_missing, is_sparse


def run_pipeline(part: Part) -> Value:
    return follow(part, [step for _, step in part.estimator.steps]).value


def end_pipeline(part: Part) -> Answer:
    """The answer of a pipeline that ends in a classifier, inside another model."""
    *steps, (_, final) = part.estimator.steps
    return classify(follow(part, [step for _, step in steps]).of(final))


def join_columns(part: Part) -> Tensor:
    """The outputs of a ColumnTransformer side by side."""
    inner, places = {}, part.estimator._transformer_to_input_indices
    for name, transformer, columns in part.estimator.transformers_:
        which = np.asarray(places[name], np.int64)
        if len(which) and transformer != "drop":
            is_one = isinstance(columns, (str, int, np.integer))
            inner[name] = part.select(which, is_one=is_one).of(transformer)
    return _join(part, inner)


def join_union(part: Part) -> Tensor:
    """The outputs of a FeatureUnion side by side."""
    pairs = part.estimator.transformer_list
    return _join(part, {name: part.of(each) for name, each in pairs if each != "drop"})


def _join(part: Part, inner: Mapping[str, Part]) -> Tensor:
    found, weights = [], part.estimator.transformer_weights or {}
    for name, each in inner.items():
        made = follow(each, [each.estimator]).numbers
        found.append(part.b.op("Mul", made, float(weights[name])) if name in weights else made)
    return part.b.concat(found)


def call_function(part: Part) -> Value:
    """The input itself, if a FunctionTransformer has no function: ONNX holds no Python."""
    if part.estimator.func is not None:
        called = getattr(part.estimator.func, "__name__", part.estimator.func)
        raise ExportError(
            f"a FunctionTransformer calls Python ({shown(called)}), which ONNX cannot hold: apply "
            "the function before the model"
        )
    return part.value


def encode_one_hot(part: Part) -> Tensor:
    """A column for each category of each input column; those that are rare share the last one."""
    encoder, found = part.estimator, []
    has_rare = getattr(encoder, "_infrequent_enabled", False)
    if has_rare and encoder.drop is not None:
        return convert_step(part)
    for i, codes in enumerate(_find_all_codes(part)):
        rare = encoder._default_to_infrequent_mappings[i] if has_rare else None
        own = np.arange(len(encoder.categories_[i])) if rare is None else rare
        table = np.eye(own.max() + 1)[[*own, 0]]
        table[-1] = 0.0  # for what is unknown
        if rare is not None and encoder.handle_unknown in ("infrequent_if_exist", "warn"):
            table[-1, -1] = 1.0
        if encoder.drop_idx_ is not None and encoder.drop_idx_[i] is not None:
            table = np.delete(table, int(encoder.drop_idx_[i]), axis=1)
        found.append(part.b.look_up(table, codes))
    return part.b.concat(found)


def encode_ordinal(part: Part) -> Tensor:
    """The position of each category."""
    encoder, found = part.estimator, []
    if getattr(encoder, "_infrequent_enabled", False):
        return convert_step(part)
    unknown = np.nan if encoder.unknown_value is None else float(encoder.unknown_value)
    for codes, known in zip(_find_all_codes(part), encoder.categories_, strict=True):
        table = np.array([*range(len(known)), unknown], np.float64)
        table[:-1][[is_missing(each) for each in known]] = encoder.encoded_missing_value
        found.append(part.b.look_up(table[:, None], codes))
    return part.b.concat(found)


def _find_all_codes(part: Part) -> list[Tensor]:
    """The codes of each column; a sample without a known category is refused if need be."""
    refuses = part.estimator.handle_unknown == "error"
    pairs = zip(part.columns, part.estimator.categories_, strict=True)
    return [part.b.codes(column, known, refuses=refuses) for column, known in pairs]


def read_tfidf(part: Part) -> Tensor:
    """A TfidfVectorizer: a CountVectorizer and a TfidfTransformer in one."""
    whole = part.estimator
    shared = set(CountVectorizer().get_params()) & set(whole.get_params())
    counter = CountVectorizer(**{name: getattr(whole, name) for name in shared})
    counter.set_params(dtype=np.float64)
    counter.vocabulary_ = whole.vocabulary_
    counts = convert_step(part.of(counter))
    return weigh(replace(part, estimator=whole._tfidf, value=counts))


def weigh(part: Part) -> Tensor:
    """A TfidfTransformer of counts."""
    b, x, weights = part.b, part.numbers, part.estimator
    if weights.sublinear_tf:
        is_there = b.op("Greater", x, 0.0)
        x = b.where(is_there, b.op("Add", b.op("Log", b.where(is_there, x, 1.0)), 1.0), 0.0)
    if weights.use_idf:
        x = b.op("Mul", x, np.asarray(weights.idf_, np.float64)[None])
    if weights.norm is None:
        return x
    size = b.reduce(f"Reduce{weights.norm.title()}", x)
    is_empty = b.op("Equal", size, 0.0)  # a text without a known word
    return b.op("Div", x, b.where(is_empty, 1.0, size))


def impute(part: Part) -> Value:
    """A SimpleImputer; text passes, since none that is missing can enter a graph."""
    b, imputer = part.b, part.estimator
    looks_for_gaps = is_missing(imputer.missing_values)
    if part.tensor.kind == TEXT:
        if not looks_for_gaps or imputer.add_indicator:
            raise ExportError(
                f"a SimpleImputer that replaces the text {imputer.missing_values!r} cannot become "
                "ONNX: replace it before the model"
            )
        return part.value
    x = part.numbers
    gaps = b.op("IsNaN", x) if looks_for_gaps else b.op("Equal", x, float(imputer.missing_values))
    learned = np.asarray(imputer.statistics_, dtype=np.float64)
    filled = b.where(gaps, learned[None], x)
    if imputer.strategy != "constant" and not imputer.keep_empty_features:
        kept = np.flatnonzero(~np.isnan(learned))
        filled = b.columns(filled, kept) if len(kept) < len(learned) else filled
    if not imputer.add_indicator:
        return filled
    flags = b.columns(gaps, imputer.indicator_.features_)
    return b.concat([filled, b.cast(flags, "float64")])


SCALERS = {
    "StandardScaler": (("Sub", "mean_", "with_mean"), ("Div", "scale_", "with_std")),
    "MinMaxScaler": (("Mul", "scale_", ""), ("Add", "min_", "")),
    "MaxAbsScaler": (("Div", "scale_", ""),),
    "RobustScaler": (("Sub", "center_", "with_centering"), ("Div", "scale_", "with_scaling")),
    "Binarizer": (("Greater", "threshold", ""),),
}
"""What scalers do: an operation, the numbers they learned, and the option that switches it."""
ROUNDED = ("StandardScaler", "Binarizer")  # whose numbers are rounded to their input's precision


def scale(part: Part) -> Tensor:
    """One of the `SCALERS`."""
    b, scaler, x = part.b, part.estimator, part.numbers
    if not is_sparse(part.sample) and np.asarray(part.sample).dtype == np.float32:
        x = b.cast(x, "float32")
    kind = type(scaler).__name__
    for op, learned, switch in SCALERS[kind]:
        if switch and not getattr(scaler, switch):
            continue
        by = np.atleast_1d(np.asarray(getattr(scaler, learned)))
        by = by.astype(x.kind) if kind in ROUNDED else by
        if op == "Div" and is_sparse(part.sample):  # for which scikit-learn multiplies
            op, by = "Mul", 1 / by
        wide = "float32" if by.dtype == x.kind == "float32" else "float64"
        x = b.cast(b.op(op, b.cast(x, wide), by.astype(wide)), x.kind)
    if getattr(scaler, "clip", False):
        x = b.op("Clip", x, *map(float, getattr(scaler, "feature_range", (-1, 1))))
    return b.cast(x, "float64")
