"""Inputs of a torch module: one tensor, several by position, or several by name.

A dict, or what a tokenizer returns, is passed on by name, `module(**inputs)`; a tuple of arrays by
position, `module(*inputs)`. Inside, all are `Fields` of tensors, whose names are numbers if they
are positions. Floats are cast to the module's precision; whole numbers may be positions in an
embedding and stay as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from itertools import chain
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iknow.core.arrays import Bools
from iknow.core.text import names
from iknow.errors import InputError
from iknow.models.inputs import Fields, as_fields
from iknow.models.numbers import as_numbers
from iknow.models.torch.layers import describe, is_plain

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
    loss = _parameters(module).get(LABELS)
    if LABELS in given and loss is not None and loss.default is None:
        del given[LABELS]  # of use in training alone
    return as_fields({name: _prepare_one(values, f"X[{name!r}]") for name, values in given.items()})


def to_tensors(batch: Any, module: nn.Module) -> tuple[Fields, Bools | None]:
    """Copies on a module's device and in its precision, and which samples are not finite."""
    like = next(chain(module.parameters(), module.buffers(), [torch.empty(0)]))
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


def describe_batch(tensors: Fields) -> str:
    """A batch in an error."""
    parts = {k: f"{tuple(v.shape)} and dtype {v.dtype}" for k, v in tensors.arrays.items()}
    if len(parts) == 1 and "0" in parts:
        return f"a batch of shape {parts['0']}"
    return "a batch of " + ", ".join(f"{name} of shape {text}" for name, text in parts.items())


def as_call(tensors: Fields) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Tensors by position and by name."""
    placed = tuple(values for name, values in tensors.arrays.items() if name.isdigit())
    return placed, {n: values for n, values in tensors.arrays.items() if not n.isdigit()}


def arguments(tensors: Fields, module: nn.Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What to call a module with: tensors by position and by name, or one dict of them.

    A module with a single parameter, which is none of the names, takes the dict as a whole.
    """
    placed, named = as_call(tensors)
    taken = _parameters(module)
    is_single = len(taken) == 1 and not any(x.kind is x.VAR_KEYWORD for x in taken.values())
    whole = is_single and not placed and taken.keys().isdisjoint(named)
    return ((named,), {}) if whole else (placed, named)


def check_complete(placed: tuple[Any, ...], named: dict[str, Any], module: nn.Module) -> None:
    """Refuse inputs that are fewer or more than a module takes."""
    taken = _parameters(module)
    try:
        inspect.Signature(list(taken.values())).bind(*placed, **named)
    except TypeError as error:
        raise InputError(
            f"{type(module).__name__} takes {names(taken, 30)}: {error}; got "
            f"{len(placed)} inputs by position and {names(named)} by name"
        ) from error


def _parameters(module: nn.Module) -> Mapping[str, inspect.Parameter]:
    """What the forward of a module takes; nothing if that is unknown, as for compiled code."""
    try:
        is_script = isinstance(module, torch.jit.ScriptModule)
        return {} if is_script else inspect.signature(module.forward).parameters
    except (TypeError, ValueError):
        return {}


def _prepare_one(values: Any, what: str) -> Any:
    if isinstance(values, Tensor):
        if is_plain(values) and values.ndim:
            return values
        raise InputError(
            "a torch module's inputs must be a dense tensor of real numbers with samples along "
            f"its first axis; got {describe(values)}"
        )
    rows = values if isinstance(values, list | tuple) else ()
    lengths = {len(row) for row in rows if isinstance(row, list | tuple) or _is_array(row)}
    if len(lengths) > 1:  # as a tokenizer returns without padding
        raise InputError(
            f"{what} holds sequences of different lengths, from {min(lengths)} to {max(lengths)}: "
            "pad them, for example with tokenizer(texts, padding=True, return_tensors='pt')"
        )
    return as_numbers(values, what)


def _is_array(values: Any) -> bool:
    return isinstance(values, Tensor | np.ndarray) and values.ndim > 0


def _to_tensor(values: Any, like: Tensor) -> Tensor:
    if is_copy := not isinstance(values, Tensor):
        # torch takes no read-only, reversed or byte-swapped arrays.
        dtype = np.asarray(values).dtype.newbyteorder("=")
        values = torch.from_numpy(np.array(values, dtype=dtype, order="C"))
    precision = values.dtype
    if values.is_floating_point():
        precision = like.dtype if like.is_floating_point() else torch.get_default_dtype()
    tensor: Tensor = values.detach().to(like.device, precision, copy=not is_copy)
    return tensor
