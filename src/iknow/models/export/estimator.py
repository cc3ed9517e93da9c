"""A scikit-learn model and its layers as one graph.

The way is that of `SklearnModel`: through the steps of a pipeline to the classifier, and each layer
is read where the adapter reads it. The scores are the probabilities, else the decision function,
else the answer itself as 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from iknow.core.codes import NO_BELIEF
from iknow.core.text import shown
from iknow.errors import ExportError
from iknow.models.export import BELIEF, LAYER, SCORES
from iknow.models.export.columns import follow
from iknow.models.export.guard import guard, silence
from iknow.models.export.onnx.answers import both_signs, one_hot
from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.onnx.inputs import Frame, Value, as_numbers, declare
from iknow.models.export.parts import Answer, Part, classify
from iknow.models.inputs import own_copy, take_rows
from iknow.models.numbers import is_number
from iknow.models.sklearn import TABLE, SklearnModel

INPUT, OUTPUT = "input", "output"
MOST_EXAMPLES = 200


def to_onnx(adapter: SklearnModel, layers: Sequence[str], inputs: Any) -> bytes:
    """The ONNX file of a scikit-learn model, whose outputs are the scores and some layers.

    Args:
        adapter: The model.
        layers: Names of its layers.
        inputs: Some samples, as the adapter takes them; at least one with an answer.

    Returns:
        A serialized model with the outputs "scores", of shape (n, n_classes), "layer:NAME" for each
        layer, of shape (n, n_features), and "belief", of shape (n,), if the answer of the model
        need not be its highest score.

    Raises:
        ExportError: A part of the model cannot become ONNX.

    Examples:
        >>> import onnx
        >>> graph = onnx.load_from_string(to_onnx(SklearnModel(trained), ["input"], X)).graph
        >>> [output.name for output in graph.output]
        ['scores', 'layer:input', 'belief']
    """
    batch = adapter.prepare(inputs)
    sample = _answered(adapter, batch, layers)
    b = Builder()
    entrance = Part(b, None, declare(b, batch), own_copy(sample))
    found, end = _follow_steps(adapter, entrance, layers)
    answer = classify(end.of(adapter.final))
    guard(adapter, entrance, end)
    found = _own_layers(adapter, answer) | found
    scores, belief = _scores(adapter, b, answer)
    outputs = {SCORES: silence(b, scores)}
    for layer in layers:
        if layer not in found:
            raise ExportError(
                f"the layer {shown(layer)} of {type(adapter.final).__name__} cannot become ONNX; "
                f"{', '.join(map(repr, found))} can: choose other layers"
            )
        outputs[f"{LAYER}{layer}"] = b.cast(found[layer], "float32")
    return b.finish(outputs if belief is None else {**outputs, BELIEF: belief})


def _follow_steps(
    adapter: SklearnModel, part: Part, layers: Sequence[str]
) -> tuple[dict[str, Tensor], Part]:
    """The layers before the classifier, and what enters it."""
    b, found = part.b, {}
    if INPUT in layers:
        found[INPUT] = as_numbers(b, part.value)
    if TABLE in layers and TABLE not in dict(adapter.steps):
        found[TABLE] = _numbers(b, part.value, part.sample)
    for name, step in adapter.steps:
        part = follow(part.of(step))
        if name in layers:
            found[name] = as_numbers(b, part.value)
    return found, part


def _own_layers(adapter: SklearnModel, answer: Answer) -> dict[str, Tensor]:
    """The layers of the classifier itself."""
    decides = hasattr(adapter.final, "decision_function")
    output = answer.decision if decides else answer.chances
    return answer.layers if output is None else answer.layers | {OUTPUT: output}


def _answered(adapter: SklearnModel, batch: Any, layers: Sequence[str]) -> Any:
    """Some of the samples about which the model says something."""
    few = take_rows(batch, slice(0, MOST_EXAMPLES))
    said = adapter.observe(few, layers).belief != NO_BELIEF
    if not said.any():
        raise ExportError(
            "a model is exported with examples that it answers; it refuses all that were given"
        )
    return take_rows(few, np.flatnonzero(said))


def _scores(adapter: SklearnModel, b: Builder, answer: Answer) -> tuple[Tensor, Tensor | None]:
    """The scores as the adapter gives them, and the belief if it need not be the highest."""
    if answer.chances is not None:
        return answer.chances, answer.belief
    if answer.belief is None:
        raise ExportError(f"{type(adapter.final).__name__} gives no answer as ONNX")
    n, decision = len(adapter.classes), answer.decision
    if decision is not None and decision.width == 1:
        return both_signs(b, decision), answer.belief
    if decision is not None and decision.width == n:
        return decision, answer.belief
    return one_hot(b, answer.belief, n), None


def _numbers(b: Builder, value: Value, sample: Any) -> Tensor:
    """The columns of numbers, 0 where one is missing, each with a flag (`iknow.models.sklearn`)."""
    if isinstance(value, Frame):
        kept = [
            each
            for each, dtype in zip(value.columns.values(), sample.dtypes, strict=True)
            if is_number(dtype)
        ]
        x = b.concat(kept)
    else:
        x = as_numbers(b, value)
    gaps = b.op("IsNaN", x, kind="bool")
    filled = b.op("Where", gaps, np.array(0.0), x, kind="float64", width=x.width)
    return b.concat([filled, b.cast(gaps, "float64")])
