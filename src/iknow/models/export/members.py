"""Bagging and AdaBoost: classifiers that each see some columns, or count by a weight.

Members are trees almost always; then the whole is one ensemble of trees, and has leaves. Others are
parts of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.geometry.hamming import LEAVES
from iknow.models.adapt import has_base
from iknow.models.export.forests import as_tree, find_in_single, shares_of
from iknow.models.export.onnx.answers import answer_of_decision, highest, one_hot
from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.onnx.inputs import as_numbers
from iknow.models.export.onnx.trees import add_up, leaf_numbers
from iknow.models.export.parts import Answer, Part, classify


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
    return classify(Part(part.b, member, x, np.asarray(part.sample)[:, columns]))


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
