"""Classifiers made of others: bagging and AdaBoost, voting and stacking, calibration.

Members of bagging and AdaBoost are trees almost always; then the whole is one ensemble of trees,
and has leaves. Others are parts of their own.

Calibration has a curve for each class over what a classifier says. A sigmoid is a
formula. An isotonic curve is straight between its points (x_i, y_i); we add up the share of each
piece that lies below x, y_0 + sum of slope_i * clip(x - x_i, 0, x_{i+1} - x_i), which differs from
interpolation by rounding alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.errors import ExportError
from iknow.metrics.metric import LEAVES
from iknow.models.adapt import has_base
from iknow.models.export.onnx.answers import (
    answer_of_decision,
    both_columns,
    highest,
    normalized,
    one_hot,
    sigmoid,
)
from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.onnx.inputs import as_numbers
from iknow.models.export.onnx.trees import add_up, leaf_numbers
from iknow.models.export.parts import Answer, Part, classify
from iknow.models.export.trees import as_tree, find_in_single, shares_of
from iknow.models.numbers import is_sparse


def read_bagging(part: Part) -> Answer:
    """The mean of all members' probabilities, or of their votes."""
    b, bag = part.b, part.estimator
    decision, layers, number = None, {}, np.array(float(len(bag.estimators_)))
    columns = [None if _sees_all(bag, each) else each for each in bag.estimators_features_]
    if _are_trees(bag.estimators_):
        trees = [as_tree(m.tree_, c) for m, c in zip(bag.estimators_, columns, strict=True)]
        found = find_in_single(b, trees, as_numbers(b, part.value))
        held = [_spread(shares_of(m), m, bag.n_classes_) for m in bag.estimators_]
        leaves = [each[tree.leaves] for each, tree in zip(held, trees, strict=True)]
        total = add_up(b, found, np.concatenate(leaves))
        layers = {LEAVES: leaf_numbers(b, found, trees)}
    else:
        answers = [_ask(part, *each) for each in _members(bag)]
        total = _sum(b, [_vote(part, m, a) for m, a in zip(bag.estimators_, answers, strict=True)])
        decisions = [each.decision for each in answers if each.decision is not None]
        if len(decisions) == len(answers):
            decision = b.op("Div", _sum(b, decisions), number)
    return Answer(b.op("Div", total, number), decision, layers=layers)


def read_boosting(part: Part) -> Answer:
    """AdaBoost: each member votes for its answer, by its weight, and against all others."""
    b, boosted = part.b, part.estimator
    n, weights = boosted.n_classes_, boosted.estimator_weights_
    members, layers = boosted.estimators_, {}
    if _are_trees(members):
        trees = [as_tree(m.tree_) for m in members]
        found = find_in_single(b, trees, as_numbers(b, part.value))
        held = [
            _votes(shares_of(m)[tree.leaves].argmax(axis=1), n) * w
            for m, tree, w in zip(members, trees, weights, strict=False)
        ]
        total = add_up(b, found, np.concatenate(held))
        layers = {LEAVES: leaf_numbers(b, found, trees)}
    else:
        votes = [_weighted_vote(part.of(m), n, w) for m, w in zip(members, weights, strict=False)]
        total = _sum(b, votes)
    decision = b.op("Div", total, np.array(float(weights.sum())))
    if n == 2:
        first, second = b.columns(decision, np.array([0])), b.columns(decision, np.array([1]))
        decision = b.op("Sub", second, first)
        logits = b.concat([b.op("Neg", decision), decision])
        logits = b.op("Div", logits, np.array(2.0))
    else:
        logits = b.op("Div", decision, np.array(float(n - 1)))
    chances = b.op("Softmax", logits, axis=1)
    return Answer(chances, decision, answer_of_decision(b, decision), layers)


def answered(b: Builder, answer: Answer) -> Tensor:
    """The position of a classifier's answer, of shape (n,)."""
    if answer.belief is not None:
        return answer.belief
    assert answer.chances is not None  # or there would be a belief
    return highest(b, answer.chances)


def _members(bag: Any) -> list[tuple[Any, Any]]:
    return list(zip(bag.estimators_, bag.estimators_features_, strict=True))


def _ask(part: Part, member: Any, columns: Any) -> Answer:
    x = part.b.columns(as_numbers(part.b, part.value), np.asarray(columns, np.int64))
    sample = part.sample if is_sparse(part.sample) else np.asarray(part.sample)
    return classify(Part(part.b, member, x, sample[:, columns]))


def _vote(part: Part, member: Any, answer: Answer) -> Tensor:
    """What a member of a bag adds, of shape (n, n_classes)."""
    b, n = part.b, part.estimator.n_classes_
    if answer.chances is None:
        places = np.asarray(member.classes_, np.int64)
        code = b.op("Gather", places, answered(b, answer), kind="int64", width=None)
        return one_hot(b, code, n)
    if len(member.classes_) == n:
        return answer.chances
    matrix = np.eye(n)[np.asarray(member.classes_, np.int64)]
    return b.op("MatMul", answer.chances, matrix, width=n)


def _weighted_vote(part: Part, n: int, weight: float) -> Tensor:
    code = answered(part.b, classify(part))
    table = _votes(np.arange(n), n) * weight
    return part.b.op("Gather", table, code, kind="float64", width=n, axis=0)


def _votes(codes: Any, n: int) -> Floats:
    """1 for the class of each code and -1 / (n - 1) for all others."""
    votes: Floats = np.where(np.eye(n, dtype=bool)[codes], 1.0, -1 / (n - 1))
    return votes


def _spread(shares: Floats, member: Any, n: int) -> Floats:
    """Shares with a column for every class, also those that a member never saw."""
    if len(member.classes_) == n:
        return shares
    spread = np.zeros((len(shares), n))
    spread[:, np.asarray(member.classes_, np.int64)] = shares
    return spread


def _sum(b: Builder, parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else b.op("Sum", *parts)


def _sees_all(bag: Any, columns: Any) -> bool:
    return np.array_equal(columns, np.arange(bag.n_features_in_))


def _are_trees(members: Any) -> bool:
    return all(has_base(member, "BaseDecisionTree", "sklearn") for member in members)


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


def read_calibrated(part: Part) -> Answer:
    """The mean over all calibrated classifiers."""
    b, members = part.b, part.estimator.calibrated_classifiers_
    chances = [_read_curves(part, member) for member in members]
    total = chances[0] if len(chances) == 1 else b.op("Sum", *chances)
    return Answer(b.op("Div", total, np.array(float(len(members)))))


def _read_curves(part: Part, member: Any) -> Tensor:
    """The probabilities of one calibrated classifier, of shape (n, n_classes)."""
    b, n = part.b, len(member.classes)
    inner = member.estimator
    if member.method not in ("sigmoid", "isotonic") or not np.array_equal(
        inner.classes_, member.classes
    ):
        raise ExportError(
            f"calibration by {member.method!r} of {len(inner.classes_)} of {n} classes cannot "
            "become ONNX: use method='sigmoid', and all classes in every fold"
        )
    answer = classify(part.of(inner))
    said = answer.decision if hasattr(inner, "decision_function") else answer.chances
    if said is None:
        raise ExportError(f"{type(inner).__name__} inside a calibration gives no numbers as ONNX")
    if n == 2:
        second = b.columns(said, np.array([(said.width or 1) - 1]))
        return _capped(b, both_columns(b, _curve(b, second, member.calibrators[0])))
    columns = [
        _curve(b, b.columns(said, np.array([i])), curve)
        for i, curve in enumerate(member.calibrators)
    ]
    return _capped(b, normalized(b, b.concat(columns)))


def _curve(b: Builder, x: Tensor, calibrator: Any) -> Tensor:
    if hasattr(calibrator, "a_"):
        raised = b.op("Add", b.op("Mul", x, np.array(calibrator.a_)), np.array(calibrator.b_))
        return sigmoid(b, b.op("Neg", raised))
    knots = np.asarray(calibrator.X_thresholds_, np.float64)
    heights = np.asarray(calibrator.y_thresholds_, np.float64)
    if len(heights) == 1:
        return b.op("Add", b.op("Mul", x, np.array(0.0)), heights)
    widths = np.diff(knots)[None]
    beyond = b.op("Max", b.op("Sub", x, knots[None, :-1], width=len(knots) - 1), np.array(0.0))
    share = b.op("Div", b.op("Min", beyond, widths), widths)
    risen = b.op("MatMul", share, np.diff(heights)[:, None], width=1)
    return b.op("Add", risen, heights[:1])


def _capped(b: Builder, chances: Tensor) -> Tensor:
    """Probabilities that rounding has put above 1 are 1."""
    return b.op("Min", chances, np.array(1.0))
