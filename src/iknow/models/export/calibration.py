"""Calibrated probabilities: a curve for each class over what a classifier says.

A sigmoid is a formula. An isotonic curve is straight between its points (x_i, y_i); we add up the
share of each piece that lies below x, y_0 + sum of slope_i * clip(x - x_i, 0, x_{i+1} - x_i), which
differs from interpolation by rounding alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.errors import ExportError
from iknow.models.export.onnx.answers import both_columns, normalized, sigmoid
from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.parts import Answer, Part, classify


def read_calibrated(part: Part) -> Answer:
    """The mean over all calibrated classifiers."""
    b, members = part.b, part.estimator.calibrated_classifiers_
    chances = [_read(part, member) for member in members]
    total = chances[0] if len(chances) == 1 else b.op("Sum", *chances)
    return Answer(b.op("Div", total, np.array(float(len(members)))))


def _read(part: Part, member: Any) -> Tensor:
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
