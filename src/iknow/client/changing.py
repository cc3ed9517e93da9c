"""Changes of a model's evidence, as a request asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def make_asked(
    add: tuple[Any, Any] | None,
    ids: Sequence[int] | None,
    remove: Sequence[int],
    relabel: Mapping[int, Any],
) -> dict[str, Any]:
    """The body of a request for a change, in JSON's types; see `Client.change`."""
    pairs = [{"id": as_plain(each), "label": as_plain(label)} for each, label in relabel.items()]
    asked: dict[str, Any] = {"remove": as_plain(remove), "relabel": pairs}
    if add is not None:
        asked["add"] = {"rows": as_plain(add[0]), "labels": as_plain(add[1])}
        asked["add"] |= {} if ids is None else {"ids": as_plain(ids)}
    return asked


def as_plain(value: Any) -> Any:
    """A value, or values in lists or arrays, as JSON has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [as_plain(each) for each in value]
    return value
