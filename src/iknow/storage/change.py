"""Change: what happens to the evidence after it was collected.

Samples come, go, and get other labels. Every change is the same step: some rows no longer count,
and some count from now on. A relabeled sample does both, under the same number. So evidence after
any number of changes is that of a training set, and a rebuild from that set must say the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.arrays import Floats32, Ints
from iknow.core.text import names, shown
from iknow.errors import InputError

ADD, REMOVE, RELABEL = KINDS = ("add", "remove", "relabel")
WHEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", re.ASCII)
LONGEST = 2_000
"""Characters of who and why."""


@dataclass(frozen=True, eq=False)
class Change:
    """One change of the evidence, in all layers, and who made it.

    Attributes:
        what: "add", "remove" or "relabel".
        when: The time in UTC, ISO 8601 with Z.
        who: Who made it; "" if nobody said.
        why: Why; "" if nobody said.
        removed: Numbers of the samples that no longer count as they did, ascending.
        rows: Numbers of the samples that count from now on, of shape (m,), ascending.
        labels: Their class codes, of shape (m,).
        points: By layer, their activations as the metric transforms them, of shape (m, n_features).
        classes: Labels of classes that were not known before; their codes follow those known.
    """

    what: str
    when: str
    who: str
    why: str
    removed: Ints
    rows: Ints
    labels: Ints
    points: Mapping[str, Floats32]
    classes: tuple[Any, ...] = ()

    @property
    def ids(self) -> Ints:
        """Numbers of the samples it is about."""
        return self.removed if self.what == REMOVE else self.rows

    def logged(self) -> Logged:
        """Return what a log keeps of it: no activations."""
        return Logged(self.what, self.when, self.who, self.why, self.ids, self.classes)


@dataclass(frozen=True, eq=False)
class Logged:
    """What the log says about a change: what, when, who, why, and the samples it was about.

    Attributes:
        what: "add", "remove" or "relabel".
        when: The time in UTC, ISO 8601 with Z.
        who: Who made it; "" if nobody said.
        why: Why; "" if nobody said.
        ids: Numbers of the samples, ascending.
        classes: Labels of the classes that came with it, which the model does not score.
    """

    what: str
    when: str
    who: str
    why: str
    ids: Ints
    classes: tuple[Any, ...] = ()

    def sentence(self) -> str:
        """Say what happened, in words."""
        n, what = len(self.ids), {ADD: "added", REMOVE: "removed", RELABEL: "relabeled"}[self.what]
        by = f" by {shown(self.who)}" if self.who else ""
        why = f", because {shown(self.why)}" if self.why else ""
        return f"{n:,} sample{'' if n == 1 else 's'} {what} at {self.when}{by}{why}"


def check_change(change: Change, layers: Iterable[str]) -> None:
    """Refuse a change that no classifier with these layers can take; what it is about comes later.

    Every field may come from a file or a request, and so may be anything.
    """
    if change.what not in KINDS:
        raise InputError(f"a change must be one of {names(KINDS)}; got {shown(change.what)}")
    if not isinstance(change.when, str) or not WHEN.fullmatch(change.when):
        raise InputError(
            f"a change must say when in UTC, such as 2026-11-01T12:00:00Z; got {shown(change.when)}"
        )
    check_said(change.who, "who")
    check_said(change.why, "why")
    for name in ("removed", "rows"):
        _check_numbers(getattr(change, name), name)
    n, given = len(change.rows), set(change.points)
    if change.labels.shape != (n,) or change.labels.dtype.kind not in "iu":
        raise InputError(f"a change needs a class code for each of its {n} samples")
    if n and given != set(layers):
        raise InputError(
            f"a change needs activations of the layers {names(sorted(layers))}; got "
            f"{names(sorted(given, key=shown))}"
        )
    _check_fits(change)


def check_said(text: Any, what: str) -> str:
    """Who made a change, or why: text of bounded length."""
    if not isinstance(text, str) or len(text) > LONGEST:
        raise InputError(f"{what} must be text of at most {LONGEST} characters; got {shown(text)}")
    return text


def _check_numbers(numbers: Any, name: str) -> None:
    """Numbers of samples must be distinct, ascending and >= 0."""
    if not isinstance(numbers, np.ndarray) or numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise InputError(f"{name} of a change must be an array of numbers; got {shown(numbers)}")
    if len(numbers) and (numbers[0] < 0 or not (numbers[1:] > numbers[:-1]).all()):
        raise InputError(f"{name} of a change must be distinct numbers >= 0, ascending")


def _check_fits(change: Change) -> None:
    """What comes and what goes must be what the kind of change says."""
    came, went = len(change.rows), len(change.removed)
    fits = {
        ADD: came and not went,
        REMOVE: went and not came,
        RELABEL: came and np.array_equal(change.rows, change.removed),
    }
    if not fits[change.what]:
        raise InputError(f"{change.what} cannot remove {went} samples and bring {came}")
