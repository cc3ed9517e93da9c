"""To ONNX: a torch module and its layers as one graph, by torch's own exporter.

`TorchModel` reads layers as numpy arrays. To become a graph, everything after the module has to be
torch's too: scores as columns, pooling, flattening. So a `Readout` returns what iknow reads of a
module as tensors, and `torch.export` makes a program of it: that proves that the graph holds for
any number of samples, and refuses a module whose branches depend on its data.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iknow.core.text import name as shown_name
from iknow.errors import ExportError, IknowError
from iknow.models.export import BELIEF, LAYER, SCORES
from iknow.models.inputs import Fields
from iknow.models.network import (
    MASK,
    find_mask,
    find_moments,
    find_output,
    pool_places,
    split,
    without_moments,
)
from iknow.models.onnx.file import serialize
from iknow.models.torch.layers import WatchedParts, copy_at_rest, forward_pass
from iknow.models.torch.model import TorchModel, arguments, raw_input

SINGLE = "X"
LOGS = ("torch", "torch.onnx", "torch.export", "torch._export", "torch.fx", "onnxscript")


def to_onnx(model: TorchModel, layers: Sequence[str], inputs: Any) -> bytes:
    """The ONNX file of a torch module; see `iknow.models.export`."""
    name = type(model.module).__name__
    if isinstance(model.module, torch.jit.ScriptModule):
        raise ExportError("TorchScript cannot become ONNX: give the module that it was made of")
    # Two, or three if there are two, so that no comparison has as many; 0 and 1 may be special.
    rows = np.arange(3 if len(inputs) == 2 else 2) % len(inputs)
    tensors, _ = model._take(inputs[rows])
    names = _name_inputs(tuple(tensors.arrays))
    last = _find_axes(model, layers, tensors)
    try:
        with _quiet(), torch.no_grad():
            readout = Readout(model, last, tensors)
            return _export(readout, tensors, names, [f"{LAYER}{layer}" for layer in layers])
    except IknowError:
        raise
    except Exception as error:  # the exporter, or a module that is copied, may raise anything
        raise ExportError(
            f"{name} cannot become ONNX by torch.export, which wants a module that can be copied "
            f"and has no branch on its data. {_in_a_line(error)}. If you can export it "
            "yourself, wrap the .onnx file instead"
        ) from error


def _name_inputs(names: Sequence[str]) -> list[str]:
    """Names in the graph of inputs by name or by position; X, or X0, X1, ... for positions."""
    if len(names) == 1 and names[0].isdigit():
        return [SINGLE]
    found = [f"{SINGLE}{name}" if name.isdigit() else name for name in names]
    for name in found:
        if name in (SCORES, BELIEF) or name.startswith(LAYER):
            raise ExportError(f"the graph has an output {name!r}: give the input another name")
    return found


class Readout(nn.Module):
    """The scores and some layers of a torch module, copied to the CPU, for inputs by position.

    features_last: by layer, whether its last axis holds the features. tensors: a few samples.
    """

    def __init__(self, model: TorchModel, features_last: dict[str, bool], tensors: Fields) -> None:
        super().__init__()
        self._names, self._model, self._features_last = tuple(tensors.arrays), model, features_last
        floats = [t.dtype for t in tensors.arrays.values() if t.is_floating_point()]
        self._precision = floats[0] if floats else torch.float32
        self.module = copy_at_rest(model.module).cpu().eval()

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        # A graph's inputs are cast to the module's own precision, which numpy may lack.
        cast = [t.to(self._precision) if t.is_floating_point() else t for t in tensors]
        fields = Fields(dict(zip(self._names, cast, strict=True)))
        pooling, n = self._model.pooling, tensors[0].shape[0]
        watch = WatchedParts(dict(self.module.named_modules()), tuple(self._features_last), pooling)
        # Copies, as something may overwrite the tensors later.
        act, read = watch.reader(n, lambda seen, _: seen.clone())
        raw = raw_input(fields)
        found: dict[str, Any] = {} if raw is None else {"input": raw.clone()}
        placed, named = arguments(fields, self.module)
        with forward_pass(self.module, watch, act):
            returned = self.module(*placed, **named)
        output = find_output(returned, self._model.scores, n, type(self.module).__name__)
        scores = _as_columns(output, split(self._model.scores)[1])
        found |= {"output": scores, **{layer: each[0] for layer, each in read.items()}}
        mask = fields.arrays.get(MASK)
        results = [scores]
        for layer, last in self._features_last.items():
            plain = without_moments(layer, watch)
            way, values = pooling.of(layer), found[plain]
            seen = mask != 0 if last and mask is not None and mask.ndim == 2 else None
            if layer != plain:
                values = find_moments(values, features_last=last, seen=seen)
            elif isinstance(way, str) and values.ndim > 2:
                values = pool_places(way, values, features_last=last, seen=seen)
            results.append((values if values.ndim > 1 else values[:, None]).flatten(1))
        return tuple(each if each.dtype == torch.float64 else each.float() for each in results)


def _find_axes(model: TorchModel, layers: Sequence[str], tensors: Fields) -> dict[str, bool]:
    """For each layer, whether its last axis holds the features, seen in an ordinary pass."""
    model._ask(tensors.copy(), layers)  # it raises what is wrong with a layer
    found = model._run(tensors.copy(), layers, model._locate(layers))
    arrays, last = tensors.arrays, dict.fromkeys(layers, True)
    mask = find_mask(arrays[MASK]) if MASK in arrays else None
    for layer in layers:
        plain = without_moments(layer, found.layers)
        if (read := found.layers.get(plain)) is None:
            continue
        shape, last[layer] = read.values.shape, read.features_last
        way = model.pooling.of(layer) if layer == plain else "mean"
        if read.mask is not None:
            raise ExportError(
                f"layer {layer!r} holds sequences of different lengths, which a graph cannot: "
                "choose another layer"
            )
        if callable(way) and (len(shape) > 2 or model.pooling.is_by_layer):
            raise ExportError(
                f"layer {layer!r} is pooled by a function of arrays, which cannot become a graph: "
                "use 'mean', 'cls' or 'last', or a module that pools"
            )
        fits = mask is None or (len(shape) == 3 and shape[1] == mask.shape[1])
        if way is not None and len(shape) > 2 and last[layer] and not fits:
            raise ExportError(
                f"layer {layer!r} of shape {shape} does not hold the tokens of the attention mask: "
                "choose another layer"
            )
    return last


def _as_columns(scores: Any, meaning: str | None) -> Tensor:
    """Scores with a column for each class, as `as_columns` makes them."""
    if not isinstance(scores, Tensor):
        raise ExportError(f"scores= must give a tensor to be exported; got {type(scores).__name__}")
    if scores.ndim > 1 and scores.shape[1] != 1:
        return scores
    column = scores.reshape(-1).double()
    pair = (-column / 2, column / 2) if meaning == "logit" else (1 - column, column)
    return torch.stack(pair, dim=1)


def _export(readout: Readout, tensors: Fields, names: list[str], layers: list[str]) -> bytes:
    """A graph of any number of samples, and of any length of token numbers and their masks."""
    auto, shapes, examples = torch.export.Dim.AUTO, [], []
    for each in tensors.arrays.values():
        has_tokens = each.ndim == 2 and not each.is_floating_point()
        shapes.append({0: auto, 1: auto} if has_tokens else {0: auto})
        is_half = each.is_floating_point() and each.element_size() < 4  # single outside the graph
        examples.append(each.cpu().float() if is_half else each.cpu())
    program = torch.onnx.export(
        readout,
        tuple(examples),
        dynamo=True,
        input_names=names,
        output_names=[SCORES, *layers],
        dynamic_shapes=(tuple(shapes),),
        verbose=False,
    )
    assert program is not None  # as dynamo=True
    return serialize(program.model_proto)


def _in_a_line(error: BaseException) -> str:
    """What the exporter failed of: the first cause, without colors."""
    while error.__cause__ is not None:
        error = error.__cause__
    said = re.sub("\x1b\\[[0-9;]*m", "", f"{type(error).__name__}: {error}")
    return shown_name(" ".join(said.split()), 300)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter from warning and logging: what fails is in the error."""
    before = {log: log.level for log in map(logging.getLogger, LOGS)}
    nowhere = io.StringIO()
    try:
        for log in before:
            log.setLevel(logging.CRITICAL)
        with redirect_stdout(nowhere), redirect_stderr(nowhere), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in before.items():
            log.setLevel(level)
