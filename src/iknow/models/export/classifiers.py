"""Classifiers that are no trees: linear ones, networks, and those made of others.

The answer of a linear classifier is that of the product itself, not of the probabilities: far from
the boundary these are all 0 or 1 in double precision, while the product still has a highest column.

Members of bagging and AdaBoost are trees almost always; then the whole is one ensemble of trees,
and has leaves. Others are parts of their own.

Calibration has a curve for each class over what a classifier says. A sigmoid is a formula. An
isotonic curve is straight between its points (x_i, y_i); we add up the share of each piece that
lies below x, y_0 + sum of slope_i * clip(x - x_i, 0, x_{i+1} - x_i), which differs from
interpolation by rounding alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.errors import ExportError
from iknow.models.adapt import has_base
from iknow.models.export.graph import Builder, Tensor
from iknow.models.export.sklearn import Answer, Part, classify
from iknow.models.export.trees import find_sklearn_leaves, shares_of
from iknow.models.numbers import is_sparse


def read_linear(part: Part) -> Answer:
    """A linear classifier; only SGD's has a loss, and probabilities for two of them."""
    b, model, chances = part.b, part.estimator, None
    decision = b.linear(part.numbers, np.atleast_2d(model.coef_).T, model.intercept_)
    if hasattr(model, "predict_proba"):
        loss = getattr(model, "loss", None)
        if loss not in (None, "log_loss", "modified_huber"):
            raise ExportError(f"SGDClassifier with the probabilities of {loss!r} is not known here")
        is_apart = getattr(model, "multi_class", None) == "ovr" or loss is not None
        if decision.width != 1 and not is_apart and getattr(model, "solver", None) != "liblinear":
            return Answer(b.op("Softmax", decision, axis=1), decision, b.highest(decision))
        if loss == "modified_huber":  # (clip(decision, -1, 1) + 1) / 2
            chances = b.op("Div", b.op("Add", b.op("Clip", decision, -1.0, 1.0), 1.0), 2.0)
        else:
            chances = b.sigmoid(decision)
        chances = b.both_columns(chances) if chances.width == 1 else b.normalized(chances)
    return Answer(chances, decision, b.answer(decision))


OPS = {"identity": "Identity", "logistic": "Sigmoid", "tanh": "Tanh", "relu": "Relu",
       "softmax": "Softmax"}  # fmt: skip


def read_network(part: Part) -> Answer:
    """A network; its layers are "hidden1", "hidden2", ... and "logits"."""
    b, network = part.b, part.estimator
    if network.out_activation_ not in OPS or network.activation not in OPS:
        raise ExportError(f"an MLPClassifier with {network.out_activation_!r} is not known here")
    values, layers = part.numbers, {}
    *hidden, last = zip(network.coefs_, network.intercepts_, strict=True)
    for i, learned in enumerate(hidden):
        values = _apply(b, network.activation, b.linear(values, *learned))
        layers[f"hidden{i + 1}"] = values
    layers["logits"] = logits = b.linear(values, *last)
    chances = _apply(b, network.out_activation_, logits)
    if chances.width == 1:  # scikit-learn compares the probability, not the logit
        return Answer(b.both_columns(chances), None, b.is_above(chances, 0.5), layers)
    return Answer(chances, None, b.highest(chances), layers)


def _apply(b: Builder, activation: str, values: Tensor) -> Tensor:
    return b.sigmoid(values) if activation == "logistic" else b.op(OPS[activation], values)


def read_bagging(part: Part) -> Answer:
    """The mean of all members' probabilities, or of their votes."""
    b, bag, decision, layers = part.b, part.estimator, None, {}
    members, columns, n = bag.estimators_, bag.estimators_features_, bag.n_classes_
    if _are_trees(members):
        leaves = find_sklearn_leaves(part, members, columns)
        total = leaves.add_up([shares_of(each) @ _places(each, n) for each in members])
        layers = leaves.layers
    else:
        answers = [_ask(part, *each) for each in zip(members, columns, strict=True)]
        total = b.sum([_vote(b, m, a, n) for m, a in zip(members, answers, strict=True)])
        decisions = [each.decision for each in answers if each.decision is not None]
        if len(decisions) == len(answers):
            decision = b.op("Div", b.sum(decisions), float(len(members)))
    return Answer(b.op("Div", total, float(len(members))), decision, layers=layers)


def _ask(part: Part, member: Any, columns: Any) -> Answer:
    x = part.b.columns(part.numbers, columns)
    sample = part.sample if is_sparse(part.sample) else np.asarray(part.sample)
    return classify(Part(part.b, member, x, sample[:, columns]))


def _vote(b: Builder, member: Any, answer: Answer, n: int) -> Tensor:
    """What a member of a bag adds, of shape (n_samples, n)."""
    if answer.chances is None:
        return b.look_up(_places(member, n), _belief(b, answer))
    if len(member.classes_) == n:
        return answer.chances
    return b.op("MatMul", answer.chances, _places(member, n), width=n)


def _places(member: Any, n: int) -> Floats:
    """1 in the column of each of a member's classes: it may not have seen all n."""
    places: Floats = np.eye(n)[np.asarray(member.classes_, np.int64)]
    return places


def read_boosting(part: Part) -> Answer:
    """AdaBoost: each member votes for its answer, by its weight, and against all others."""
    b, boosted, layers = part.b, part.estimator, {}
    members, n = boosted.estimators_, boosted.n_classes_
    votes = np.where(np.eye(n, dtype=bool), 1.0, -1 / (n - 1))
    tables = [votes * weight for weight in boosted.estimator_weights_[: len(members)]]
    if _are_trees(members):
        leaves = find_sklearn_leaves(part, members)
        answers = [shares_of(each).argmax(axis=1) for each in members]
        total = leaves.add_up([t[a] for t, a in zip(tables, answers, strict=True)])
        layers = leaves.layers
    else:
        said = [_belief(b, classify(part.of(each))) for each in members]
        total = b.sum([b.look_up(t, code) for t, code in zip(tables, said, strict=True)])
    decision = b.op("Div", total, float(boosted.estimator_weights_.sum()))
    if n == 2:
        decision = b.op("Sub", b.columns(decision, [1]), b.columns(decision, [0]))
        logits = b.op("Div", b.both_signs(decision), 2.0)
    else:
        logits = b.op("Div", decision, float(n - 1))
    return Answer(b.op("Softmax", logits, axis=1), decision, b.answer(decision), layers)


def _are_trees(members: Any) -> bool:
    return all(has_base(member, "BaseDecisionTree", "sklearn") for member in members)


def _belief(b: Builder, answer: Answer) -> Tensor:
    """The position of a classifier's answer, of shape (n,)."""
    if answer.belief is not None:
        return answer.belief
    assert answer.chances is not None  # or there would be a belief
    return b.highest(answer.chances)


def read_voting(part: Part) -> Answer:
    """The mean of the probabilities, or the class with the most votes, the first of equals.

    Members are trained on positions, and know them as their classes.
    """
    b, voting = part.b, part.estimator
    weights = voting._weights_not_none or [1.0] * len(voting.estimators_)
    pairs = [(member, classify(part.of(member))) for member in voting.estimators_]
    if voting.voting == "soft":
        said = [_given(answer) for _, answer in pairs]
    else:
        said = [b.look_up(np.eye(len(voting.classes_)), _code(part, *each)) for each in pairs]
    weighted = [b.op("Mul", each, float(w)) for each, w in zip(said, weights, strict=True)]
    total = b.op("Sum", *weighted)
    if voting.voting == "soft":
        return Answer(b.op("Div", total, float(np.sum(weights))))
    return Answer(belief=b.highest(total))


def read_stacking(part: Part) -> Answer:
    """A classifier of what other classifiers say."""
    stacked = part.estimator
    members = [each for each in stacked.estimators_ if not isinstance(each, str)]
    said = [
        _read(part, member, method, len(stacked.classes_))
        for member, method in zip(members, stacked.stack_method_, strict=True)
    ]
    if stacked.passthrough:
        said.append(part.numbers)
    sample = stacked.transform(part.sample)
    return classify(Part(part.b, stacked.final_estimator_, part.b.concat(said), sample))


def _read(part: Part, member: Any, method: str, n_classes: int) -> Tensor:
    """What a member of a stack says to the last classifier."""
    b, answer = part.b, classify(part.of(member))
    if method == "predict_proba":
        chances = _given(answer)
        return b.columns(chances, [1]) if n_classes == 2 else chances
    if method == "decision_function" and answer.decision is not None:
        return answer.decision
    if method == "predict":
        return b.cast(b.column(_code(part, member, answer)), "float64")
    raise ExportError(f"{type(member).__name__}.{method} in a stack cannot become ONNX")


def _code(part: Part, member: Any, answer: Answer) -> Tensor:
    """What a member answers, as a position among the classes of the whole, of shape (n,)."""
    places = np.asarray(member.classes_)
    if places.dtype.kind not in "iu":
        raise ExportError(
            f"{type(member).__name__} was trained before it was put into "
            f"{type(part.estimator).__name__}, on labels that ONNX cannot follow: train the whole"
        )
    return part.b.look_up(places.astype(np.int64), _belief(part.b, answer))


def _given(answer: Answer) -> Tensor:
    if answer.chances is None:
        raise ExportError("a member of an ensemble has no probabilities as ONNX")
    return answer.chances


def read_calibrated(part: Part) -> Answer:
    """The mean over all calibrated classifiers."""
    members = part.estimator.calibrated_classifiers_
    total = part.b.sum([_read_curves(part, member) for member in members])
    return Answer(part.b.op("Div", total, float(len(members))))


def _read_curves(part: Part, member: Any) -> Tensor:
    """The probabilities of one calibrated classifier, of shape (n, n_classes)."""
    b, n, inner = part.b, len(member.classes), member.estimator
    is_known = member.method in ("sigmoid", "isotonic")
    if not is_known or not np.array_equal(inner.classes_, member.classes):
        raise ExportError(
            f"calibration by {member.method!r} of {len(inner.classes_)} of {n} classes cannot "
            "become ONNX: use method='sigmoid', and all classes in every fold"
        )
    answer = classify(part.of(inner))
    said = answer.decision if hasattr(inner, "decision_function") else answer.chances
    if said is None:
        raise ExportError(f"{type(inner).__name__} inside a calibration gives no numbers as ONNX")
    last = (said.width or 1) - 1
    columns = [last] if n == 2 else range(n)
    curves = [
        _curve(b, b.columns(said, [i]), curve)
        for i, curve in zip(columns, member.calibrators, strict=True)
    ]
    chances = b.both_columns(*curves) if n == 2 else b.normalized(b.concat(curves))
    return b.op("Min", chances, 1.0)  # rounding may have put them above


def _curve(b: Builder, x: Tensor, calibrator: Any) -> Tensor:
    if hasattr(calibrator, "a_"):
        raised = b.op("Add", b.op("Mul", x, float(calibrator.a_)), float(calibrator.b_))
        return b.sigmoid(b.op("Neg", raised))
    knots = np.asarray(calibrator.X_thresholds_, np.float64)
    heights = np.asarray(calibrator.y_thresholds_, np.float64)
    if len(heights) == 1:
        return b.op("Add", b.op("Mul", x, 0.0), heights)
    widths = np.diff(knots)[None]
    beyond = b.op("Max", b.op("Sub", x, knots[None, :-1], width=len(knots) - 1), 0.0)
    share = b.op("Div", b.op("Min", beyond, widths), widths)
    risen = b.op("MatMul", share, np.diff(heights)[:, None], width=1)
    return b.op("Add", risen, heights[:1])
