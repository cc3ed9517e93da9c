"""Tensors: what of torch's values can be read as numbers, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from iknow.errors import LayerError


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is dense and holds real numbers."""
    dense = tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_meta
    return dense and not tensor.is_complex() and not tensor.is_quantized


def describe(tensor: Tensor) -> str:
    """A tensor in an error."""
    if tensor.is_nested:
        return "a nested tensor"
    return f"{tensor.dtype}, {tensor.layout}, {tuple(tensor.shape)} on {tensor.device}"


def first_tensor(values: Any) -> Any:
    """The first tensor in what a module takes or returns; what came if there is none.

    A recurrent layer returns its output and then its state, attention its output and then its
    weights, a block of a transformer its hidden states first of all.
    """
    if isinstance(values, Tensor | PackedSequence):
        return values
    if isinstance(values, Mapping):
        parts = list(values.values())
    elif isinstance(values, tuple | list):
        parts = list(values)
    elif is_dataclass(values) and not isinstance(values, type):
        parts = [getattr(values, field.name) for field in fields(values)]
    else:
        return values
    found = map(first_tensor, parts)
    return next((each for each in found if isinstance(each, Tensor | PackedSequence)), values)


def unnest(values: Any) -> tuple[Any, Any]:
    """Sequences of different lengths padded with 0, and which tokens are theirs.

    A recurrent layer may get them packed, and torch's encoder nests them. Returns shapes
    (n, tokens, ...) and (n, tokens); for any other value itself and None.
    """
    if isinstance(values, PackedSequence):
        padded, lengths = pad_packed_sequence(values, batch_first=True)
    elif isinstance(values, Tensor) and values.is_nested:
        padded = values.to_padded_tensor(0.0)
        lengths = torch.tensor([len(part) for part in values.unbind()])
    else:
        return values, None
    return padded, (torch.arange(padded.shape[1]) < lengths[:, None]).numpy()


def to_array(output: Any, what: str) -> Any:
    """A copy of a tensor as an array, which no later in-place operation can change."""
    is_tensor = isinstance(output, Tensor)
    if not is_tensor or not is_plain(output):
        got = describe(output) if is_tensor else type(output).__name__
        raise LayerError(
            f"{what} must be a dense tensor of real numbers; got {got}: choose another layer, or "
            "wrap the module so that it returns one"
        )
    wide = torch.float64 if output.dtype == torch.float64 else torch.float32
    if output.dtype == wide and output.device.type == "cpu":  # numpy copies with less around it
        return output.detach().numpy().copy("K")
    return output.detach().to("cpu", wide, copy=True).numpy()
