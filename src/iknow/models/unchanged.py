"""Unchanged: whether a model still answers as it did when its evidence was collected.

Evidence says nothing about a model that was trained again in place. The probe tells, but asking a
model about 32 inputs takes longer than assessing one. So we ask

- the first time, and whenever a part of the model was replaced, such as an array of coefficients or
  a tree, or a tensor was written to: that takes microseconds to see. We hold on to the parts, as
  Python may give the address of what is gone to something new;
- once a second at most, in a hundredth of the time at most, whatever the parts say, as arrays and
  boosters can be changed where no reference shows it.

A model that replaces a part of itself each time it answers is asked by the clock alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import is_
from time import monotonic
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from iknow.errors import InputError
from iknow.models.model import Model
from iknow.models.probe import Probe

SECONDS = 1.0  # between two questions at least, if no part was replaced
SHARE = 0.01  # of the time, at most
MOST_PARTS = 200  # the nearest
LONGEST = 32  # of collections that are looked into
LENIENCE = 40  # times the tolerances of the probe, as the model may have moved to a GPU since
PATIENCE = 3  # times that parts may be replaced without another answer
NO_PARTS = (type, ModuleType, BuiltinFunctionType, str, bytes)

Parts = tuple[list[Any], list[int]]


class Unchanged:
    """What is known about a model that should not change; copies and pickles know nothing yet."""

    def __init__(self, batch_size: int | None = None) -> None:
        self._batch_size = batch_size
        self._parts: Parts | None = None
        self._patience = PATIENCE
        self._asked, self._took = -float("inf"), 0.0

    def __reduce__(self) -> tuple[type[Unchanged], tuple[int | None]]:
        return Unchanged, (self._batch_size,)

    def check(self, model: Model, probe: Probe) -> None:
        """Raise an `InputError` if the model is found to answer in another way."""
        parts = None
        with suppress(Exception):  # a user's object may raise anything when it is looked into
            parts = find_parts(model) if self._patience else None
        replaced = parts is not None and (self._parts is None or not alike(parts, self._parts))
        start = monotonic()
        if not replaced and start - self._asked < max(SECONDS, self._took / SHARE):
            return
        tolerances = {name: LENIENCE * each for name, each in probe.tolerances.items()}
        lenient = replace(probe, tolerances=tolerances)
        if (difference := lenient.find_difference(model, self._batch_size)) is not None:
            raise InputError(
                f"the model does not answer as it did when the evidence was collected: "
                f"{difference}. If it was trained again, call fit and tune again; else give the "
                "classifier the model as it was"
            )
        self._patience -= replaced and self._parts is not None
        self._parts, self._asked = parts, monotonic()
        self._took = self._asked - start


def find_parts(model: Model) -> Parts:
    """What a model is made of, in a fixed order, and how often its tensors were written to."""
    found: list[Any] = []
    versions: list[int] = []
    seen = set[int]()
    todo = deque[Any]([model if model.source is None else model.source])
    while todo and len(found) < MOST_PARTS:
        thing = todo.popleft()
        found.append(thing)
        if isinstance(thing, NO_PARTS) or id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, FunctionType):
            names = thing.__globals__
            todo += [names[name] for name in thing.__code__.co_names if name in names]
            todo += [cell.cell_contents for cell in thing.__closure__ or ()]
        elif isinstance(thing, MethodType):
            todo += [thing.__self__, thing.__func__]
        elif isinstance(thing, partial):
            todo += [thing.func, *thing.args, *thing.keywords.values()]
        elif isinstance(thing, (list, tuple, Mapping)):
            if len(thing) <= LONGEST:
                todo += thing.values() if isinstance(thing, Mapping) else thing
        elif hasattr(thing, "_parameters") and hasattr(thing, "modules"):  # of torch
            for module in thing.modules():
                for tensors in (module._parameters, module._buffers):
                    found += tensors.values()
                    versions += [t._version for t in tensors.values() if t is not None]
        elif hasattr(thing, "__dict__"):
            todo += vars(thing).values()
    return found, versions


def alike(one: Parts, other: Parts) -> bool:
    """Whether two looks found the very same parts, none of them written to in between."""
    same = len(one[0]) == len(other[0]) and all(map(is_, one[0], other[0]))
    return same and one[1] == other[1]
