"""Records: what a service tells besides answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from iknow.client.answers import Label

R = TypeVar("R")


@dataclass(frozen=True)
class Model:
    """A model that is served.

    Attributes:
        name: What it is called.
        version: Its version.
        bundle: The sha256 of its bundle; empty if it was not loaded from one.
        created: When the bundle was made, if that is known.
        note: What its maker wrote down.
        classes: Its labels.
        features: Their names, if it was fitted with names.
        n_features: How many there are, if that is known.
        layers: Where evidence is searched.
        promises: What is promised, in sentences.
        stale: Since when nothing is promised, as the evidence changed; empty if all holds.
        changes: How often the evidence changed.
    """

    name: str
    version: str
    bundle: str
    created: str | None
    note: str
    classes: tuple[Label, ...]
    features: tuple[str, ...] | None
    n_features: int | None
    layers: tuple[str, ...]
    promises: tuple[str, ...]
    stale: str
    changes: int


@dataclass(frozen=True)
class Learned:
    """What became of labels.

    Attributes:
        counted: Labels of IKs, which are compared with the certificate.
        others: Labels of other answers.
        repeated: Labels of rows that had one before.
        unknown: Labels of rows that the audit does not hold.
    """

    counted: int
    others: int
    repeated: int
    unknown: int


@dataclass(frozen=True)
class Entry:
    """One change of a model's evidence.

    Attributes:
        what: "add", "remove" or "relabel".
        when: The time in UTC.
        who: Who made it.
        why: Why.
        ids: Numbers of the samples.
        classes: Labels of classes that came with it.
    """

    what: str
    when: str
    who: str
    why: str
    ids: tuple[int, ...]
    classes: tuple[Label, ...]


@dataclass(frozen=True)
class Changed:
    """What became of a change. bundle: the sha256 from now on, before: until then."""

    model: str
    version: str
    bundle: str
    before: str
    changes: tuple[Entry, ...]


@dataclass(frozen=True)
class Reloaded:
    """What became of one model at a reload. error: why its new bundle was refused, or None."""

    name: str
    version: str
    bundle: str
    changed: bool
    error: str | None


def read_record(kind: type[R], said: Mapping[str, Any]) -> R:
    """A record from the JSON of a response; what a newer service tells besides is left out.

    Raises:
        KeyError, TypeError: The response holds something else.
    """
    values = {each.name: said[each.name] for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def read_log(said: Mapping[str, Any]) -> tuple[Entry, ...]:
    """The changes in the JSON of a response."""
    return tuple(read_record(Entry, each) for each in said["changes"])


def read_changed(said: Mapping[str, Any]) -> Changed:
    """What became of a change, from the JSON of a response."""
    return read_record(Changed, {**said, "changes": read_log(said)})
