"""Overriding: whether what a type promises is about the methods that an object really has.

A subclass that changes a method inherits promises that were made about another, and a method set on
an instance replaces the one of its type. Certificates rest on such promises, so they look.
"""

from __future__ import annotations


def speaks_for(kind: type, promise: str, method: str) -> bool:
    """Whether a promise was made by who defines the method, or by a subclass that knows it."""
    order = kind.__mro__
    return _definer(order, promise) <= _definer(order, method)


def replaced_methods(thing: object) -> list[str]:
    """Names of the methods of its type that an object has replaced by something of its own."""
    own = getattr(thing, "__dict__", {})
    return [name for name in own if callable(getattr(type(thing), name, None))]


def _definer(order: tuple[type, ...], name: str) -> int:
    """The place of the class that defines a name; behind all if none does."""
    return next((at for at, kind in enumerate(order) if name in vars(kind)), len(order))
