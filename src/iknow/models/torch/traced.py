"""Traced: a torch module that returns what iknow reads of another, as tensors.

`TorchModel` reads layers as numpy arrays. To become a graph, everything after the module has to be
torch's too: scores as columns, pooling, flattening. What depends on the shapes of real activations,
such as the axis of the features, is found by one ordinary pass before.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from iknow.errors import ExportError
from iknow.models.inputs import Fields
from iknow.models.network import ENTRANCE, MASK
from iknow.models.pooling import Pool, pool_places
from iknow.models.scores import find_output, meaning_of
from iknow.models.torch import inputs as given
from iknow.models.torch.layers import Reading, readable_parts
from iknow.models.torch.model import TorchModel
from iknow.models.torch.passes import copy_at_rest, forward_pass

Outputs = tuple[Tensor, ...]
TracerWarning: type[Warning] = torch.jit.TracerWarning  # type: ignore[attr-defined]
"""What torch says when a trace fixes something that may vary."""


class Traced(nn.Module):
    """The scores and some layers of a torch module, for its inputs by position.

    Args:
        model: The adapter. Its module is copied to the CPU, in eval mode.
        layers: Names of the layers.
        tensors: A few samples as the module takes them.
    """

    def __init__(self, model: TorchModel, layers: Sequence[str], tensors: Fields) -> None:
        super().__init__()
        self._names, self._layers = tuple(tensors.arrays), tuple(layers)
        self._model, self._features_last = model, _find_axes(model, layers, tensors)
        floats = [t.dtype for t in tensors.arrays.values() if t.is_floating_point()]
        self._precision = floats[0] if floats else torch.float32
        self.module = copy_at_rest(model.module).cpu().eval()
        for part in self.module.modules():
            if vars(part).get("_compiled_call_impl") is not None:
                part._compiled_call_impl = None

    def forward(self, *tensors: Tensor) -> Outputs:
        fields = Fields(dict(zip(self._names, map(self._cast, tensors), strict=True)))
        with _shapes_are_facts():
            parts = readable_parts(self.module)
            pooling, n = self._model.pooling, tensors[0].shape[0]
            reading = Reading(parts, self._layers, pooling, n, keep=_keep)
            raw = given.raw_input(fields)
            found: dict[str, Any] = {} if raw is None else {"input": raw.clone()}
            placed, named = given.arguments(fields, self.module)
        with forward_pass(self.module, reading.watched, reading.act, reading.entered):
            returned = self.module(*placed, **named)
        with _shapes_are_facts():
            output = find_output(returned, self._model.scores, n, type(self.module).__name__)
            scores = _as_columns(output, meaning_of(self._model.scores))
            inside = {layer: read[0] for layer, read in reading.found.items()}
            found |= {"output": scores, **inside}
            mask = _find_mask(fields)
            pooled = [self._pool(layer, found[layer], mask) for layer in self._layers]
            return _as_read(scores), *(_as_read(values).flatten(1) for values in pooled)

    def _cast(self, tensor: Tensor) -> Tensor:
        """A graph's input in the module's own precision, which numpy may lack."""
        return tensor.to(self._precision) if tensor.is_floating_point() else tensor

    def _pool(self, layer: str, values: Tensor, mask: Tensor | None) -> Tensor:
        way = self._model.pooling.of(layer)
        pooled = pool(way, values, features_last=self._features_last[layer], mask=mask)
        return pooled if pooled.ndim > 1 else pooled[:, None]


def pool(
    way: Pool | None, values: Tensor, *, features_last: bool = True, mask: Tensor | None = None
) -> Tensor:
    """What `Pooling` makes of the activations of a layer, with torch's operations.

    mask: of shape (n, tokens), 0 for tokens that are padding.
    """
    if not isinstance(way, str) or values.ndim < 3:
        return values
    seen = None if mask is None or not features_last else mask != 0
    pooled: Tensor = pool_places(way, values, features_last=features_last, seen=seen)
    return pooled


@contextmanager
def _shapes_are_facts() -> Iterator[None]:
    """Let our own code look at shapes in a trace: all but the number of samples are the layers'."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TracerWarning)
        yield


def _find_axes(model: TorchModel, layers: Sequence[str], tensors: Fields) -> dict[str, bool]:
    """For each layer, whether its last axis holds the features, seen in an ordinary pass."""
    parts = model._locate(layers)
    model._ask(tensors.copy(), layers, parts)  # it raises what is wrong with a layer
    found = model._run(tensors.copy(), layers, parts)
    mask, last = found.mask, dict.fromkeys(layers, True)
    for layer, read in found.layers.items():
        if layer.removesuffix(ENTRANCE) not in parts:
            continue
        shape, way = read.values.shape, model.pooling.of(layer)
        last[layer] = read.features_last
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


def _find_mask(fields: Fields) -> Tensor | None:
    mask: Tensor | None = fields.arrays.get(MASK)
    return mask if mask is not None and mask.ndim == 2 else None


def _keep(tensor: Tensor, what: str) -> Tensor:
    """A copy that nothing can overwrite later."""
    if not isinstance(tensor, Tensor):
        raise ExportError(f"{what} is no tensor but {type(tensor).__name__}: choose another layer")
    return tensor.clone()


def _as_read(tensor: Tensor) -> Tensor:
    """A tensor in the precision in which `TorchModel` reads it."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
