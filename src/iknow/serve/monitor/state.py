"""State: arrays and a random generator as plain values for JSON, and back, bit for bit.

Reading trusts nothing, as a state may come from a file that somebody has edited.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.text import names, shown
from iknow.errors import InputError

SIGNED = ("exponents", "now", "highest")


def array_to_text(values: NDArray[Any]) -> str:
    """The base64 of an array's values, little-endian."""
    return base64.b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode("ascii")


def array_from_text(text: Any, like: NDArray[Any], name: str) -> NDArray[Any]:
    """The array that `array_to_text` wrote, of the shape and type of another; finite."""
    try:
        content = base64.b64decode(text.encode("ascii"), validate=True)
        values = np.frombuffer(content, dtype=like.dtype.newbyteorder("<"))
        values = values.reshape(like.shape).astype(like.dtype)
    except (AttributeError, ValueError) as error:
        raise InputError(
            f"{name} must be {like.dtype} values of shape {like.shape} as base64; got "
            f"{shown(text, 80)}"
        ) from error
    if not np.isfinite(values).all() or (name not in SIGNED and (values < 0).any()):
        raise InputError(f"{name} must hold finite numbers, none negative")
    return values


def check_entries(record: Any, keys: Collection[str], where: str) -> Mapping[str, Any]:
    """A mapping with exactly these keys."""
    if not isinstance(record, Mapping) or set(record) != set(keys):
        came = names(list(record)) if isinstance(record, Mapping) else shown(record)
        raise InputError(f"{where} must have the entries {', '.join(keys)}; got {came}")
    return record


def check_texts(values: Any, where: str) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise InputError(f"{where} must be a list of texts; got {shown(values)}")
    return values


def generator_to_dict(generator: np.random.Generator) -> dict[str, Any]:
    """The state of a generator made by `numpy.random.default_rng`, in whole numbers and text."""
    return dict(generator.bit_generator.state)


def generator_from_dict(record: Any) -> np.random.Generator:
    """A generator that goes on where the one of `generator_to_dict` was."""
    generator = np.random.default_rng(0)
    try:
        generator.bit_generator.state = record
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise InputError(f"the state of the random generator cannot be read: {error}") from error
    return generator
