"""Overriding: whether the promises of a type hold for the methods that an object really has.

A subclass that overrides a method inherits promises made about the original, and a method set on an
instance replaces that of its type. Certificates rely on such promises, so they check.
"""

from __future__ import annotations

from typing import Any


def speaks_for(kind: type, promise: str, method: str) -> bool:
    """Whether a promise comes from the class that defines the method, or from a subclass of it."""
    order = kind.__mro__
    return _definer(order, promise) <= _definer(order, method)


def promise_of(thing: Any, promise: str, method: str = "reach") -> Any:
    """A promise, a value or a method, if it is about this `method`; else the first base's default,
    which is true of every subclass.
    """
    if speaks_for(type(thing), promise, method):
        return getattr(thing, promise)
    bases = reversed(type(thing).__mro__)
    general = next(vars(base)[promise] for base in bases if promise in vars(base))
    return general.__get__(thing, type(thing))


def replaced_methods(thing: object) -> list[str]:
    """Names of the methods that an instance has replaced on itself."""
    own = getattr(thing, "__dict__", {})
    return [name for name in own if callable(getattr(type(thing), name, None))]


def _definer(order: tuple[type, ...], name: str) -> int:
    """The position in the MRO of the class that defines a name; past the end if none does."""
    return next((at for at, kind in enumerate(order) if name in vars(kind)), len(order))
