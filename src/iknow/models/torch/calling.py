"""Calling a torch module: by position, by name, or with one dict, as its forward takes it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from iknow.core.text import names
from iknow.errors import InputError
from iknow.models.inputs import Fields


def as_call(tensors: Fields) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Tensors by position and by name, to call a module with."""
    placed = {name: values for name, values in tensors.arrays.items() if name.isdigit()}
    named = {name: values for name, values in tensors.arrays.items() if name not in placed}
    return tuple(placed.values()), named


def arguments(tensors: Fields, module: nn.Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What to call a module with: tensors by position and by name, or one dict of them.

    A module with a single parameter, which is none of the names, takes the dict as a whole.
    """
    placed, named = as_call(tensors)
    if not named or not (taken := _parameters(module)):
        return placed, named
    kinds = {parameter.kind for parameter in taken.values()}
    unknown = [name for name in named if name not in taken]
    if not unknown or inspect.Parameter.VAR_KEYWORD in kinds:
        return placed, named
    if len(taken) == 1 and not placed and len(unknown) == len(named):
        return (named,), {}
    raise InputError(
        f"{type(module).__name__} takes no input {unknown[0]!r}: leave it out; it takes "
        f"{names(taken, 30)}"
    )


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


def is_optional(name: str, module: nn.Module) -> bool:
    """Whether the forward of a module has a parameter of a name that is None if left out."""
    parameter = _parameters(module).get(name)
    return parameter is not None and parameter.default is None


def _parameters(module: nn.Module) -> Mapping[str, inspect.Parameter]:
    """What the forward of a module takes; nothing if that is unknown, as for compiled code."""
    if isinstance(module, torch.jit.ScriptModule):
        return {}
    try:
        return inspect.signature(module.forward).parameters
    except (TypeError, ValueError):
        return {}
