"""Parts: pipelines, columns side by side, encoders, imputers, scalers; classifiers but for trees.

A category is found by comparing with each known one. Text is looked up in a list; numbers are
compared in double precision. What is unknown to an encoder that refuses unknown categories makes a
sample refused (`Builder.refused`).

A scaler works in the precision of its input: a table in single precision is rounded to it after
each operation. A learned number in double precision makes that one operation double.

Words are counted by a graph of skl2onnx, and weighed here in double precision. Its own weights are
single precision, so a copy of a training text would no longer lie at distance 0 from it. Counts are
whole numbers, which are exact.

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

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from iknow.core.arrays import Floats, Ints
from iknow.core.text import shown
from iknow.errors import ExportError
from iknow.models.adapt import has_base
from iknow.models.export.graph import TEXT, Builder, Tensor
from iknow.models.export.sklearn import Outputs, Part, Value, classify, convert_step, follow
from iknow.models.export.trees import Leaves, find_sklearn_leaves
from iknow.models.inputs import is_missing, is_sparse


def run_pipeline(part: Part) -> Value:
    return follow(part, [step for _, step in part.estimator.steps]).value


def end_pipeline(part: Part) -> Outputs:
    """The answer of a pipeline that ends in a classifier, inside another model."""
    *steps, (_, final) = part.estimator.steps
    return classify(follow(part, [step for _, step in steps]).of(final))


def join(part: Part) -> Tensor:
    """The outputs of a ColumnTransformer, or of a FeatureUnion, side by side."""
    whole, found = part.estimator, []
    weights = whole.transformer_weights or {}
    listed = whole.transformers_ if hasattr(whole, "transformers_") else whole.transformer_list
    for name, transformer, *columns in [each for each in listed if each[1] != "drop"]:
        inside = part
        if columns:  # of a ColumnTransformer
            which = np.asarray(whole._transformer_to_input_indices[name], np.int64)
            if not len(which):
                continue
            inside = part.select(which, is_one=isinstance(columns[0], (str, int, np.integer)))
        made = follow(inside, [transformer]).numbers
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


def read_linear(part: Part) -> Outputs:
    """A linear classifier; only SGD's has a loss, and probabilities for two of them."""
    b, model, chances = part.b, part.estimator, None
    decision = b.linear(part.numbers, np.atleast_2d(model.coef_).T, model.intercept_)
    if hasattr(model, "predict_proba"):
        loss = getattr(model, "loss", None)
        options = (getattr(model, "multi_class", None), getattr(model, "solver", None))
        apart = loss is not None or "ovr" in options or "liblinear" in options
        if loss == "modified_huber":  # (clip(decision, -1, 1) + 1) / 2
            chances = b.op("Div", b.op("Add", b.op("Clip", decision, -1.0, 1.0), 1.0), 2.0)
            chances = b.both_columns(chances) if chances.width == 1 else chances
        else:
            chances = b.chances(decision, apart=apart)
        chances = b.normalized(chances) if apart and decision.width != 1 else chances
    return Outputs(chances, decision, b.answer(decision))


def read_network(part: Part) -> Outputs:
    """A network; its layers are "hidden1", "hidden2", ... and "logits"."""
    b, network, values, layers = part.b, part.estimator, part.numbers, {}
    *hidden, last = zip(network.coefs_, network.intercepts_, strict=True)
    for i, learned in enumerate(hidden):
        values = _apply(b, network.activation, b.linear(values, *learned))
        layers[f"hidden{i + 1}"] = values
    layers["logits"] = b.linear(values, *last)
    chances = _apply(b, network.out_activation_, layers["logits"])
    belief = b.answer(chances, 0.5)  # scikit-learn compares the probability, not the logit
    return Outputs(b.both_columns(chances) if chances.width == 1 else chances, None, belief, layers)


def _apply(b: Builder, activation: str, values: Tensor) -> Tensor:
    """What identity, logistic, relu, softmax or tanh makes of values."""
    return b.sigmoid(values) if activation == "logistic" else b.op(activation.title(), values)


def read_bagging(part: Part) -> Outputs:
    """The mean of all members' probabilities, or of their votes."""
    b, bag, said, decisions = part.b, part.estimator, [], []
    members, columns, n = bag.estimators_, bag.estimators_features_, bag.n_classes_
    if leaves := _find_leaves(part, columns):
        shares = [each.tree_.value[:, 0] @ _places(part, each) for each in members]
        return Outputs(b.mean([leaves.add_up(shares)], len(members)), layers=leaves.layers)
    sample = part.sample if is_sparse(part.sample) else np.asarray(part.sample)
    for member, seen in zip(members, columns, strict=True):
        answer = classify(Part(b, member, b.columns(part.numbers, seen), sample[:, seen]))
        decisions += [] if answer.decision is None else [answer.decision]
        if answer.chances is None:
            said.append(b.look_up(_places(part, member), _belief(b, answer)))
        else:
            said.append(b.op("MatMul", answer.chances, _places(part, member), width=n))
    decision = b.mean(decisions, len(members)) if len(decisions) == len(members) else None
    return Outputs(b.mean(said, len(members)), decision)


def read_boosting(part: Part) -> Outputs:
    """AdaBoost: each member votes for its answer, by its weight, and against all others."""
    b, boosted, layers = part.b, part.estimator, {}
    members, n = boosted.estimators_, boosted.n_classes_
    votes = np.where(np.eye(n, dtype=bool), 1.0, -1 / (n - 1))
    tables = [votes * weight for weight in boosted.estimator_weights_[: len(members)]]
    if leaves := _find_leaves(part):
        answers = [each.tree_.value[:, 0].argmax(axis=1) for each in members]
        said = [leaves.add_up([t[a] for t, a in zip(tables, answers, strict=True)])]
        layers = leaves.layers
    else:
        beliefs = [_belief(b, classify(part.of(each))) for each in members]
        said = [b.look_up(t, each) for t, each in zip(tables, beliefs, strict=True)]
    decision = b.mean(said, boosted.estimator_weights_.sum())
    if n == 2:
        decision = b.op("Sub", b.columns(decision, [1]), b.columns(decision, [0]))
    both = b.both_signs(decision) if n == 2 else decision
    chances = b.chances(b.op("Div", both, 2.0 if n == 2 else float(n - 1)))
    return Outputs(chances, decision, b.answer(decision), layers)


def read_voting(part: Part) -> Outputs:
    """The mean of the probabilities, or the class with the most votes, the first of equals."""
    b, voting, members = part.b, part.estimator, part.estimator.estimators_
    weights = voting._weights_not_none or [1.0] * len(members)
    pairs = [*zip(members, [classify(part.of(each)) for each in members], weights, strict=True)]
    if voting.voting == "soft":
        said = [b.op("Mul", _given(a.chances, each), float(w)) for each, a, w in pairs]
        return Outputs(b.mean(said, np.sum(weights)))
    votes = [b.look_up(_places(part, each) * w, _belief(b, answer)) for each, answer, w in pairs]
    return Outputs(belief=b.answer(b.mean(votes, 1)))


def read_stacking(part: Part) -> Outputs:
    """A classifier of what other classifiers say."""
    b, stacked, said = part.b, part.estimator, []
    members = [each for each in stacked.estimators_ if not isinstance(each, str)]
    for member, method in zip(members, stacked.stack_method_, strict=True):
        answer = classify(part.of(member))
        if method == "predict":
            codes = _codes(part, member).astype(np.float64)
            said.append(b.look_up(codes[:, None], _belief(b, answer)))
        elif method == "predict_proba":
            chances = _given(answer.chances, member)
            said.append(b.columns(chances, [1]) if len(stacked.classes_) == 2 else chances)
        else:
            said.append(_given(answer.decision, member))
    if stacked.passthrough:
        said.append(part.numbers)
    sample = stacked.transform(part.sample)
    return classify(Part(b, stacked.final_estimator_, b.concat(said), sample))


def _find_leaves(part: Part, columns: Any = None) -> Leaves | None:
    """The leaves of an ensemble's members if all are trees; columns: of each, which it sees."""
    members = part.estimator.estimators_
    are_trees = all(has_base(each, "BaseDecisionTree", "sklearn") for each in members)
    return find_sklearn_leaves(part, members, columns) if are_trees else None


def _codes(part: Part, member: Any) -> Ints:
    """The positions of a member's classes, on which it is trained, among those of the whole."""
    codes = np.asarray(member.classes_)
    if codes.dtype.kind not in "iu":
        raise ExportError(
            f"{type(member).__name__} was trained before it was put into "
            f"{type(part.estimator).__name__}, on labels that ONNX cannot follow: train the whole"
        )
    return codes.astype(np.int64)


def _places(part: Part, member: Any) -> Floats:
    """1 in the column of each of a member's classes: it may not have seen all of them."""
    places: Floats = np.eye(len(part.estimator.classes_))[_codes(part, member)]
    return places


def _belief(b: Builder, answer: Outputs) -> Tensor:
    """The position of a classifier's answer, of shape (n,)."""
    return b.answer(_given(answer.chances)) if answer.belief is None else answer.belief


def _given(said: Tensor | None, member: Any = None) -> Tensor:
    if said is None:
        kind = "a classifier" if member is None else type(member).__name__
        raise ExportError(f"{kind} inside another one gives no such numbers as ONNX")
    return said


def read_calibrated(part: Part) -> Outputs:
    """The mean over all calibrated classifiers."""
    members = part.estimator.calibrated_classifiers_
    return Outputs(part.b.mean([_read_curves(part, each) for each in members], len(members)))


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
    says = answer.decision if hasattr(inner, "decision_function") else answer.chances
    said = _given(says, inner)
    columns = [(said.width or 1) - 1] if n == 2 else range(n)
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
