"""Voting and stacking: classifiers beside each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.errors import ExportError
from iknow.models.export.members import answered
from iknow.models.export.onnx.answers import highest, one_hot
from iknow.models.export.onnx.builder import Tensor
from iknow.models.export.onnx.inputs import as_numbers
from iknow.models.export.parts import Answer, Part, classify


def read_voting(part: Part) -> Answer:
    """The mean of the probabilities, or the class with the most votes, the first of equals.

    Members are trained on positions, and know them as their classes.
    """
    b, voting = part.b, part.estimator
    weights = voting._weights_not_none or [1.0] * len(voting.estimators_)
    answers = [classify(part.of(member)) for member in voting.estimators_]
    if voting.voting == "soft":
        chances = [b.op("Mul", _given(each), np.array(float(w)))
                   for each, w in zip(answers, weights, strict=True)]  # fmt: skip
        total = b.op("Sum", *chances)
        return Answer(b.op("Div", total, np.array(float(np.sum(weights)))))
    n = len(voting.classes_)
    votes = [
        b.op("Mul", one_hot(b, _code(part, member, each), n), np.array(float(w)))
        for member, each, w in zip(voting.estimators_, answers, weights, strict=True)
    ]
    return Answer(belief=highest(b, b.op("Sum", *votes)))


def read_stacking(part: Part) -> Answer:
    """A classifier of what other classifiers say."""
    b, stacked = part.b, part.estimator
    members = [each for each in stacked.estimators_ if not isinstance(each, str)]
    said = [
        _read(part, member, method, len(stacked.classes_))
        for member, method in zip(members, stacked.stack_method_, strict=True)
    ]
    if stacked.passthrough:
        said.append(as_numbers(b, part.value))
    sample = stacked.transform(part.sample)
    return classify(Part(b, stacked.final_estimator_, b.concat(said), sample))


def _read(part: Part, member: Any, method: str, n_classes: int) -> Tensor:
    """What a member of a stack says to the last classifier."""
    b, answer = part.b, classify(part.of(member))
    if method == "predict_proba":
        chances = _given(answer)
        return b.columns(chances, np.array([1])) if n_classes == 2 else chances
    if method == "decision_function" and answer.decision is not None:
        return answer.decision
    if method == "predict":
        code = b.op("Reshape", _code(part, member, answer), np.array([-1, 1]), width=1)
        return b.cast(code, "float64")
    raise ExportError(f"{type(member).__name__}.{method} in a stack cannot become ONNX")


def _code(part: Part, member: Any, answer: Answer) -> Tensor:
    """What a member answers, as a position among the classes of the whole, of shape (n,)."""
    places = np.asarray(member.classes_)
    if places.dtype.kind not in "iu":
        raise ExportError(
            f"{type(member).__name__} was trained before it was put into "
            f"{type(part.estimator).__name__}, on labels that ONNX cannot follow: train the whole"
        )
    found = answered(part.b, answer)
    return part.b.op("Gather", places.astype(np.int64), found, kind="int64", width=None)


def _given(answer: Answer) -> Tensor:
    if answer.chances is None:
        raise ExportError("a member of an ensemble has no probabilities as ONNX")
    return answer.chances
