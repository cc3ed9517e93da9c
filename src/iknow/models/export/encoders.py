"""Encoders of categories and of text.

A category is found by comparing with each known one. Text is looked up in a list; numbers are
compared in double precision. What is unknown to an encoder that refuses unknown categories makes a
sample refused (`Builder.refuse`).

Words are counted by a graph of skl2onnx, and weighed here in double precision. Its own
weights are single precision, so a copy of a training text would no longer lie at distance 0 from
it. Counts are whole numbers, which are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer

from iknow.core.text import shown
from iknow.errors import ExportError
from iknow.models.export.foreign import convert_transformer
from iknow.models.export.onnx.builder import TEXT, Builder, Tensor
from iknow.models.export.onnx.inputs import Frame, as_numbers
from iknow.models.export.parts import Part
from iknow.models.numbers import is_missing


def encode_one_hot(part: Part) -> Tensor:
    """A column for each category of each input column."""
    encoder = part.estimator
    rare = getattr(encoder, "_infrequent_enabled", False)
    if rare and encoder.drop is not None:
        return convert_transformer(part)
    found = []
    for i, (column, known) in enumerate(zip(_columns(part), encoder.categories_, strict=True)):
        codes = find_codes(part.b, column, known)
        if encoder.handle_unknown == "error":
            refuse_unknown(part.b, codes, len(known))
        table = _with_rare(encoder, i) if rare else np.eye(len(known) + 1, len(known))
        if encoder.drop_idx_ is not None and encoder.drop_idx_[i] is not None:
            table = np.delete(table, int(encoder.drop_idx_[i]), axis=1)
        found.append(_look_up(part.b, codes, table))
    kept = [each for each in found if each.width]
    if not kept:
        raise ExportError("OneHotEncoder leaves no column")
    return part.b.concat(kept)


def encode_ordinal(part: Part) -> Tensor:
    """The position of each category."""
    encoder = part.estimator
    if getattr(encoder, "_infrequent_enabled", False):
        return convert_transformer(part)
    found = []
    for column, known in zip(_columns(part), encoder.categories_, strict=True):
        codes = find_codes(part.b, column, known)
        if encoder.handle_unknown == "error":
            refuse_unknown(part.b, codes, len(known))
        unknown = np.nan if encoder.unknown_value is None else float(encoder.unknown_value)
        table = np.append(np.arange(len(known), dtype=np.float64), unknown)
        gaps = [i for i, each in enumerate(known) if is_missing(each)]
        table[gaps] = encoder.encoded_missing_value
        found.append(_look_up(part.b, codes, table[:, None]))
    return part.b.concat(found)


def _with_rare(encoder: Any, i: int) -> NDArray[np.float64]:
    """What each category becomes if those that are rare share the last column."""
    n, shared = len(encoder.categories_[i]), encoder._default_to_infrequent_mappings[i]
    if shared is None:
        return np.eye(n + 1, n)
    width = int(shared.max()) + 1
    table = np.vstack([np.eye(width)[shared], np.zeros(width)])
    if encoder.handle_unknown in ("infrequent_if_exist", "warn"):
        table[-1, -1] = 1.0
    return table


def find_codes(b: Builder, column: Tensor, known: Any) -> Tensor:
    """The position of each value among the known ones, their number if it is none of them.

    column: of shape (n, 1). The result has shape (n,).
    """
    flat = b.op("Reshape", column, np.array([-1]), width=None)
    values = list(np.asarray(known, dtype=object).ravel().tolist())
    if column.kind == TEXT:
        # A missing text cannot enter a graph, so nothing compares equal to it.
        present = [(each, i) for i, each in enumerate(values) if not is_missing(each)]
        if not present or not all(isinstance(each, str) for each, _ in present):
            raise ExportError(f"a column of text was encoded as {shown(values[:5])}")
        return b.op(
            "LabelEncoder",
            flat,
            kind="int64",
            domain="ai.onnx.ml",
            keys_strings=[each for each, _ in present],
            values_int64s=[i for _, i in present],
            default_int64=len(values),
        )
    return _position(b, b.cast(column, "float64"), _as_floats(values))


def refuse_unknown(b: Builder, codes: Tensor, n_known: int) -> None:
    """Refuse samples without a known category."""
    b.refuse(b.op("Equal", codes, np.array(n_known), kind="bool"))


def _position(b: Builder, column: Tensor, known: NDArray[np.float64]) -> Tensor:
    n = len(known)
    same = b.op("Equal", column, known[None], kind="bool", width=n)
    if np.isnan(known).any():
        gap = b.op("And", b.op("IsNaN", column, kind="bool"), np.isnan(known)[None], width=n)
        same = b.op("Or", same, gap)
    padded = b.op("Pad", b.cast(same, "float64"), np.array([0, 0, 0, 1]), np.array(0.5),
                  width=n + 1)  # fmt: skip
    return b.op("ArgMax", padded, kind="int64", width=None, axis=1, keepdims=0)


def _as_floats(values: list[Any]) -> NDArray[np.float64]:
    try:
        return np.array([np.nan if is_missing(each) else float(each) for each in values])
    except (TypeError, ValueError) as error:
        raise ExportError(f"a column of numbers was encoded as {shown(values[:5])}") from error


def _columns(part: Part) -> list[Tensor]:
    """The columns that enter, each of shape (n, 1)."""
    if isinstance(part.value, Frame):
        return list(part.value.columns.values())
    n = part.value.width or 0
    return [part.b.columns(part.value, np.array([i])) for i in range(n)]


def _look_up(b: Builder, codes: Tensor, table: NDArray[np.float64]) -> Tensor:
    return b.op("Gather", table, codes, kind="float64", width=table.shape[1], axis=0)


def read_tfidf(part: Part) -> Tensor:
    """A TfidfVectorizer: a CountVectorizer and a TfidfTransformer in one."""
    whole = part.estimator
    shared = set(CountVectorizer().get_params()) & set(whole.get_params())
    counter = CountVectorizer(**{name: getattr(whole, name) for name in shared})
    counter.set_params(dtype=np.float64)
    counter.vocabulary_ = whole.vocabulary_
    counts = convert_transformer(part.of(counter))
    return _weigh(part.b, counts, whole._tfidf)


def weigh(part: Part) -> Tensor:
    """A TfidfTransformer of counts."""
    return _weigh(part.b, as_numbers(part.b, part.value), part.estimator)


def _weigh(b: Builder, counts: Tensor, weights: object) -> Tensor:
    x = counts
    if getattr(weights, "sublinear_tf", False):
        is_there = b.op("Greater", x, np.array(0.0), kind="bool")
        some = b.op("Where", is_there, x, np.array(1.0), kind="float64", width=x.width)
        grown = b.op("Add", b.op("Log", some), np.array(1.0))
        x = b.op("Where", is_there, grown, np.array(0.0), kind="float64", width=x.width)
    if getattr(weights, "use_idf", True):
        x = b.op("Mul", x, np.asarray(weights.idf_, np.float64)[None])  # type: ignore[attr-defined]
    norm = getattr(weights, "norm", None)
    if norm is None:
        return x
    size = b.reduce("ReduceSumSquare" if norm == "l2" else "ReduceL1", x)
    size = b.op("Sqrt", size) if norm == "l2" else size
    is_empty = b.op("Equal", size, np.array(0.0), kind="bool")  # a text without a known word
    whole = b.op("Where", is_empty, np.array(1.0), size, kind="float64", width=1)
    return b.op("Div", x, whole)
