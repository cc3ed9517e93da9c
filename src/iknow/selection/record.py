"""Records as plain values for JSON, and back, bit for bit.

The annotations of a record's fields say what they may hold, msgspec checks that, and the record
itself checks the rest when it is made. JSON writes numbers in decimals and has no infinity, so an
array is written as its shape and the base64 of its values, little-endian. Reading trusts nothing: a
record must read back as it stands.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from iknow.core.rule import Rule
from iknow.core.text import names, shown
from iknow.errors import InputError
from iknow.rules import rule_from_dict, rule_to_dict

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """A record, or what it holds, as plain values for JSON; None for what is not finite."""
    if isinstance(value, Rule):
        return to_plain(rule_to_dict(value))
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: to_plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        little = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        text = base64.b64encode(little.tobytes()).decode("ascii")
        return {"shape": list(value.shape), "base64": text}
    if isinstance(value, (tuple, list)):
        return [to_plain(each) for each in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def from_plain(kind: type[T], record: Any, where: str) -> T:
    """The record of a kind that `to_plain` wrote; an `InputError` says what is wrong where."""
    try:
        found = msgspec.convert(record, kind, dec_hook=_read)
    except msgspec.ValidationError as error:
        raise InputError(f"{where} cannot be read: {error}") from error
    again, given = to_plain(found), to_plain(record)
    if again != given:
        wrong = [key for key in {**again, **given} if again.get(key, ...) != given.get(key, ...)]
        raise InputError(
            f"{where} must have the entries {names(again, 50)}, each as it was written; it differs "
            f"in {names(wrong)}"
        )
    return found


def _read(kind: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        raise InputError(f"expected an object; got {shown(value)}")
    if kind is Rule:  # a parameter that is not finite is inf
        return rule_from_dict({key: np.inf if v is None else v for key, v in value.items()})
    (number,) = get_args(get_args(kind)[1])  # of NDArray[number]
    return _read_array(value, np.dtype(number))


def _read_array(record: dict[str, Any], number: np.dtype[Any]) -> NDArray[Any]:
    try:
        values = np.frombuffer(base64.b64decode(record["base64"]), number.newbyteorder("<"))
        return values.astype(number).reshape(record["shape"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"no array of {number}: {shown(record)}") from error
