"""scikit-learn's gradient boosting.

The trees add up to raw predictions, of which the loss makes probabilities. Of two classes there is
one column, whose sign is the answer; 0 is the second class, other than on histograms.
"""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Floats
from iknow.errors import ExportError
from iknow.geometry.hamming import LEAVES
from iknow.models.export.forests import as_tree, find_in_single
from iknow.models.export.onnx.answers import answer_of_decision, both_columns, is_above, sigmoid
from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.onnx.inputs import as_numbers
from iknow.models.export.onnx.trees import add_up_by_class, leaf_numbers
from iknow.models.export.parts import Answer, Part

LEAST = np.nextafter(0.0, -1.0)


def read_gradient_boosting(part: Part) -> Answer:
    """A GradientBoostingClassifier."""
    b, boosted = part.b, part.estimator
    members = boosted.estimators_
    trees = [as_tree(member.tree_) for member in members.ravel()]
    found = find_in_single(b, trees, as_numbers(b, part.value))
    held = np.concatenate(
        [m.tree_.value[t.leaves, 0, 0] for m, t in zip(members.ravel(), trees, strict=True)]
    )
    owners = [k for _ in range(len(members)) for k in range(members.shape[1])]
    total = add_up_by_class(b, found, boosted.learning_rate * held, owners)
    raw = b.op("Add", total, _start(part))
    # 0 is the second class here; the numbers above the largest negative one are 0 and more.
    belief = is_above(b, raw, LEAST) if raw.width == 1 else answer_of_decision(b, raw)
    layers = {LEAVES: leaf_numbers(b, found, trees)}
    return Answer(chances_of(b, boosted.loss, raw), raw, belief, layers)


def _start(part: Part) -> Floats:
    """The raw prediction before the first tree, of shape (1, n_columns)."""
    rows: Floats = np.asarray(part.estimator._raw_predict_init(part.sample), np.float64)
    known = type(part.estimator.init_).__name__ in ("DummyClassifier", "str")
    if not known:
        raise ExportError(
            f"gradient boosting that starts from {type(part.estimator.init_).__name__} cannot "
            "become ONNX: train it without init="
        )
    return rows[:1]


def chances_of(b: Builder, loss: str, raw: Tensor) -> Tensor:
    """The probabilities that a loss makes of raw predictions, of shape (n, n_classes)."""
    if raw.width != 1:
        return b.op("Softmax", raw, axis=1)
    if loss == "exponential":
        raw = b.op("Mul", raw, np.array(2.0))
    return both_columns(b, sigmoid(b, raw))
