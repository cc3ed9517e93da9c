"""Export: a model and its chosen layers as one ONNX graph.

A portable graph has the model's own inputs. Its outputs have fixed names, so that reading it needs
no special cases:

    scores        of shape (n, n_classes), in the order of the model's own columns
    layer:NAME    of shape (n, n_features), for each layer, "input" too: pooled and flattened
    belief        of shape (n,), the position of the model's answer; left out where that is the
                  highest score, the first of equals

Each framework has a function that makes such a graph, in the file that bears its name. It gets the
adapter, the names of the layers, and some inputs as the adapter's `prepare` gives them, and returns
the serialized model, with its weights inside. It may raise `ExportError` for what it cannot
express; whether the graph says the same as the model is for others to compare. A model that is ONNX
already stays as it is, with a record of how to read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from iknow.errors import ExportError, MissingExtraError
from iknow.locking import unforked
from iknow.models.model import Model
from iknow.models.views import with_views

SCORES, LAYER, BELIEF = "scores", "layer:", "belief"
"""The names of a portable graph's outputs; that of a layer comes after `LAYER`."""

EXPORTERS = {
    "TorchModel": "iknow.models.torch.to_onnx",
    "OnnxModel": "iknow.models.onnx.model",
    "PortableModel": "iknow.models.onnx.model",
    "SklearnModel": "iknow.models.export.sklearn",
}
"""Where the function `to_onnx` for an adapter is, by the name of the adapter's class."""
WHY_NOT = {
    "PrecomputedModel": (
        "there is no model to export, only its outputs: load the bundle with its model, or "
        "name that with --model"
    ),
    "FunctionModel": (
        "a function can be any code, so it cannot become ONNX: give the torch module, the "
        "scikit-learn classifier or the .onnx file behind it"
    ),
}


def as_portable(model: Model, layers: Sequence[str], inputs: Any) -> Model:
    """The exported model, to fit a classifier around it: then nothing is computed in another way.

    model, layers: such as `ec.model_`, `ec.layers_`. inputs: samples in any form the model takes.
    """
    some = model.prepare(inputs)
    content, reading = find_exporter(model)(tuple(layers), some)
    with unforked():
        from iknow.models.onnx.model import PortableModel

    return with_views(PortableModel(content, model.classes, reading=reading), model.views)


def find_exporter(model: Model) -> Callable[..., tuple[bytes, Any]]:
    """What makes of layers, and of some inputs as the model's `prepare` gives them, the ONNX file
    with the scores and these layers, and how one that was ONNX already is read, else None. What
    else it may be told depends on the model.

    Raises:
        ExportError: The model, or, when it is called, one of the layers, cannot become ONNX.
        MissingExtraError: A package that converts it is not installed.
    """
    kind = type(model).__name__
    if kind not in EXPORTERS:
        otherwise = (
            f"a model read by {kind} cannot become ONNX: export it with the tools of its "
            "framework, and give the path of the .onnx file"
        )
        raise ExportError(WHY_NOT.get(kind, otherwise))
    try:
        with unforked():
            found = import_module(EXPORTERS[kind]).to_onnx
    except ImportError as error:
        raise MissingExtraError("a bundle that holds its model as ONNX", "export") from error
    read: Any = getattr(model, "reading", lambda _: None)
    return lambda layers, inputs, **told: (found(model, layers, inputs, **told), read(layers))
