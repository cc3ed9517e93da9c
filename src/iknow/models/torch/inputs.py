"""Inputs of a torch module: one tensor, several by position, or several by name.

A dict, or what a tokenizer returns, is passed on by name, `module(**inputs)`; a tuple of arrays by
position, `module(*inputs)`. Inside, all are `Fields` of tensors, whose names are numbers if they
are positions. Floats are cast to the module's precision; whole numbers may be positions in an
embedding and stay as they are.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import chain
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iknow.core.arrays import Bools
from iknow.errors import InputError
from iknow.models.inputs import Fields, as_fields
from iknow.models.model import Layer
from iknow.models.numbers import as_numbers
from iknow.models.torch.calling import is_optional
from iknow.models.torch.tensors import describe, is_plain

MASK = "attention_mask"
LABELS = "labels"


def prepare(inputs: Any, module: nn.Module) -> Any:
    """The inputs as an array, a tensor, or `Fields` of these."""
    if isinstance(inputs, Fields):
        inputs = inputs.arrays
    if isinstance(inputs, tuple) and inputs and all(map(_is_array, inputs)):
        if len(inputs) == 1:
            return _prepare_one(inputs[0], "X")
        inputs = {str(place): values for place, values in enumerate(inputs)}
    if not isinstance(inputs, Mapping):
        return _prepare_one(inputs, "X")
    given = {name: values for name, values in inputs.items() if values is not None}
    if LABELS in given and is_optional(LABELS, module):
        del given[LABELS]  # of use in training alone, for the loss
    return as_fields({name: _prepare_one(values, f"X[{name!r}]") for name, values in given.items()})


def to_tensors(batch: Any, module: nn.Module) -> tuple[Fields, Bools | None]:
    """Copies on a module's device and in its precision, and which samples are not finite, a mask of
    shape (n,); None if all are.
    """
    like = next(chain(module.parameters(), module.buffers()), None)
    like = torch.empty(0) if like is None else like
    given = batch.arrays if isinstance(batch, Fields) else {"0": batch}
    tensors = {name: _to_tensor(values, like) for name, values in given.items()}
    strange: Bools | None = None
    for tensor in tensors.values():
        # An infinite term never leaves a sum, which takes less time than to look at each.
        if tensor.is_floating_point() and not isfinite(tensor.sum()):
            finite = torch.isfinite(tensor)
            bad = ~finite.flatten(1).all(dim=1) if tensor.ndim > 1 else ~finite
            strange = bad.cpu().numpy() | (False if strange is None else strange)
    return Fields(tensors), strange


def raw_input(tensors: Fields) -> Tensor | None:
    """The tensor that is the layer "input": the only one."""
    values: list[Tensor] = list(tensors.arrays.values())
    return values[0] if len(values) == 1 else None


def is_measurable(tensors: Fields) -> bool:
    """Whether nearness of inputs may mean something: of numbers or pixels, not of token numbers."""
    raw = raw_input(tensors)
    return raw is not None and (raw.is_floating_point() or raw.dtype == torch.uint8)


def describe_layers(
    hidden: str, head: str, tensors: Fields, parts: Container[str]
) -> tuple[Layer, ...]:
    """The input, if it can be measured, what enters the head, and the head.

    parts: names of the modules that are layers.
    """
    found = [Layer("input", "input")] if is_measurable(tensors) else []
    if hidden != "input" or (not found and "input" in parts):
        found.append(Layer(hidden, "hidden"))
    return (*found, Layer(head, "output"))


def find_mask(tensors: Fields) -> Any:
    """The attention mask, of shape (n, tokens), 0 where the inputs are padding; None without."""
    mask = tensors.arrays.get(MASK)
    return None if mask is None or mask.ndim != 2 else mask.cpu().numpy()


def without_values(tensors: Fields) -> Fields:
    """The same with 0 for all floats, which are finite then; whole numbers stay as they are."""
    values = tensors.arrays.items()
    zeros = {k: torch.zeros_like(v) if v.is_floating_point() else v.clone() for k, v in values}
    return Fields(zeros)


def describe_batch(tensors: Fields) -> str:
    """A batch in an error."""
    parts = {k: f"{tuple(v.shape)} and dtype {v.dtype}" for k, v in tensors.arrays.items()}
    if len(parts) == 1 and "0" in parts:
        return f"a batch of shape {parts['0']}"
    return "a batch of " + ", ".join(f"{name} of shape {text}" for name, text in parts.items())


def _prepare_one(values: Any, what: str) -> Any:
    if not isinstance(values, Tensor):
        _check_even(values, what)
        return as_numbers(values, what)
    if not is_plain(values) or values.ndim == 0:
        raise InputError(
            "a torch module's inputs must be a dense tensor of real numbers with samples along "
            f"its first axis; got {describe(values)}"
        )
    return values


def _check_even(values: Any, what: str) -> None:
    """Refuse a list of sequences of different lengths, as a tokenizer returns without padding."""
    if not isinstance(values, list | tuple):
        return
    lengths = {len(row) for row in values if isinstance(row, list | tuple)}
    lengths |= {len(row) for row in values if _is_array(row)}
    if len(lengths) > 1:
        raise InputError(
            f"{what} holds sequences of different lengths, from {min(lengths)} to {max(lengths)}: "
            "pad them, for example with tokenizer(texts, padding=True, return_tensors='pt')"
        )


def _is_array(values: Any) -> bool:
    return isinstance(values, Tensor | np.ndarray) and values.ndim > 0


def _to_tensor(values: Any, like: Tensor) -> Tensor:
    is_copy = not isinstance(values, Tensor)
    if is_copy:
        # torch takes no read-only, reversed or byte-swapped arrays.
        dtype = np.asarray(values).dtype.newbyteorder("=")
        values = torch.from_numpy(np.array(values, dtype=dtype, order="C"))
    precision = values.dtype
    if values.is_floating_point():
        precision = like.dtype if like.is_floating_point() else torch.get_default_dtype()
    tensor: Tensor = values.detach().to(like.device, precision, copy=not is_copy)
    return tensor
