"""Checks of values from JSON: each takes a value and its place, for errors, and returns it."""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Union, get_args, get_origin, get_type_hints

from iknow.errors import BundleError


def misfit(where: str, expected: str, value: object) -> BundleError:
    """The error for a value other than expected."""
    shown = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return BundleError(f"{where} must be {expected}; it is {shown}")


def check_record(value: object, where: str, keys: Collection[str]) -> dict[str, Any]:
    """An object with exactly these keys."""
    record = check_mapping(value, where)
    if set(record) != set(keys):
        wrong = sorted(set(record) ^ set(keys))[0]
        problem = "is missing" if wrong in keys else "does not belong in it"
        raise BundleError(f"{where} must have the keys {', '.join(keys)}: {wrong[:80]!r} {problem}")
    return record


def check_mapping(value: object, where: str) -> dict[str, Any]:
    """An object with any keys."""
    if not isinstance(value, dict):
        raise misfit(where, "an object", value)
    return value


def check_list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise misfit(where, "a list", value)
    return value


def check_text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise misfit(where, "text", value)
    return value


def check_whole(value: object, where: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise misfit(where, f"a whole number >= {least}", value)
    return value


def check_fields(
    cls: type, record: Mapping[str, Any], where: str, others: Collection[str] = ()
) -> None:
    """Check the fields of a dataclass against their annotations, except for `others`."""
    hints = {name: hint for name, hint in get_type_hints(cls).items() if name not in others}
    values = {name: value for name, value in record.items() if name not in others}
    check_record(values, where, hints)
    for name, hint in hints.items():
        if not is_of_type(values[name], hint):
            expected = getattr(hint, "__name__", str(hint))
            raise misfit(f"{where}.{name}", f"of type {expected}", values[name])


def is_of_type(value: object, hint: Any) -> bool:
    """Whether a value from JSON fits an annotated type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(is_of_type(value, each) for each in arguments)
    if hint in (None, type(None)):
        return value is None
    if hint in (float, int):
        kinds = (int, float) if hint is float else int
        return isinstance(value, kinds) and not isinstance(value, bool)
    if hint in (str, bool):
        return isinstance(value, hint)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, dict) and all(is_of_type(v, arguments[1]) for v in value.values())
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return isinstance(value, list) and all(is_of_type(v, arguments[0]) for v in value)
    raise TypeError(f"values of type {hint} are not written as JSON")
