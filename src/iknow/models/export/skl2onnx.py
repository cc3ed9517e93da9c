"""skl2onnx converts the parts of scikit-learn models that we do not write ourselves."""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any

import skl2onnx
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, StringTensorType

from iknow.models.export.onnx.builder import OPSETS, TEXT, make_attribute

LOCALE = "C.UTF-8"
WORDS, SAME_WORDS = r"(?u)\b\w\w+\b", r"[\p{L}\p{N}_]{2,}"
"""What scikit-learn takes for words unless told, and the same for onnxruntime's expressions; the
converter would take the letters of English alone.
"""
TYPES = {"float64": DoubleTensorType, "float32": FloatTensorType, TEXT: StringTensorType}


def convert_part(estimator: Any, kind: str, width: int | None, options: dict[str, Any]) -> Any:
    """The graph of one estimator as an onnx.ModelProto.

    Args:
        estimator: A fitted transformer or classifier; it is left as it is.
        kind: The type of the graph's only input, "X".
        width: The number of its columns; None if it has one axis.
        options: What skl2onnx is told about a classifier, if it has these options.
    """
    own = deepcopy(estimator)  # some converters write to what they convert
    declared = [("X", TYPES[kind]([None] if width is None else [None, width]))]
    is_classifier = hasattr(own, "classes_") and hasattr(own, "predict")
    wanted = {**options, "zipmap": False} if is_classifier else {}
    if getattr(own, "token_pattern", None) == WORDS:
        wanted["tokenexp"] = SAME_WORDS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while True:
            try:
                return _anywhere(
                    skl2onnx.convert_sklearn(
                        own,
                        initial_types=declared,
                        options={id(own): wanted} if wanted else None,
                        target_opset=OPSETS,
                    )
                )
            except NameError as error:  # how it says that it lacks an option
                lacking = [
                    name for name in wanted if str(error).startswith(f"Option {name!r} not in")
                ]
                if not lacking:
                    raise
                wanted = {name: wanted[name] for name in wanted if name not in lacking}


def _anywhere(model: Any) -> Any:
    """A graph that lower-cases text without a language that a machine may lack, such as en_US."""
    for node in model.graph.node:
        if node.op_type == "StringNormalizer":
            kept = [each for each in node.attribute if each.name != "locale"]
            del node.attribute[:]
            node.attribute.extend([*kept, make_attribute("locale", LOCALE)])
    return model
