"""Change: what happens to the evidence after it was collected.

Samples come, go, and get other labels. Every change is the same step: some rows no longer count,
and some count from now on. A relabeled sample does both, under the same number. So evidence after
any number of changes is that of a training set, and a rebuild from that set must say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iknow.core.arrays import Floats32, Ints


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
