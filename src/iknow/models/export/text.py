"""Text: words are counted by a graph of skl2onnx, and weighed here in double precision.

Its own weights are single precision, so a copy of a training text would no longer lie at distance 0
from it. Counts are whole numbers, which are exact.
"""

from __future__ import annotations

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from iknow.models.export.foreign import convert_transformer
from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.onnx.inputs import as_numbers
from iknow.models.export.parts import Part


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
