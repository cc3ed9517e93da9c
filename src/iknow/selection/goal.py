"""Goal: what a user may ask tuning for, kept so that it can be asked again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from iknow.core.level import NEIGHBORS
from iknow.core.quorum import ONE, Quorum
from iknow.core.rule import Rule, check_k, has_k
from iknow.core.text import as_flag, as_real, as_whole, shown
from iknow.errors import InputError
from iknow.selection.exact.cells import Deadline

INSIDE: tuple[str, Callable[[float], bool]] = (
    "lie between 0 and 1, both excluded",
    lambda share: 0 < share < 1,
)
RANGES = {
    **dict.fromkeys(("accuracy", "confidence", "false_alarm"), INSIDE),
    "coverage": ("lie in (0, 1]", lambda share: 0 < share <= 1),
    "premium": ("be a finite number >= 0", lambda share: 0 <= share < np.inf),
}


@dataclass(frozen=True)
class Goal:
    """What to tune for: an accuracy, a coverage, a rate of false alarms, or what is usual.

    `accuracy`, `confidence`, `each_class`, `coverage`, `false_alarm`, `premium`, `method`, `k` and
    `time_limit` are those of `EpistemicClassifier.tune`. `random_state`: seed for the split that
    certifies and for method "bayes".

    Examples:
        >>> Goal(coverage=0.8).neighbors_needed(Nearest, n_rows=75)
        75
    """

    method: Literal["exact", "grid", "bayes"] = "exact"
    accuracy: float | None = None
    confidence: float = 0.95
    each_class: bool = False
    coverage: float | None = None
    false_alarm: float | None = None
    premium: float = 0.05
    k: int | Sequence[int] | None = None
    time_limit: float = 60.0
    random_state: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.method, str) or self.method not in ("exact", "grid", "bayes"):
            raise InputError(f"method must be 'exact', 'grid' or 'bayes'; got {shown(self.method)}")
        as_flag(self.each_class, "each_class")
        several = isinstance(self.k, np.ndarray) and self.k.ndim == 1
        if several or isinstance(self.k, (list, tuple, range)):
            object.__setattr__(self, "k", tuple(map(check_k, self.k)))  # type: ignore[arg-type]
        elif self.k is not None:
            object.__setattr__(self, "k", check_k(self.k))
        most = 2**32 - 1
        as_whole(self.random_state, "random_state", "be a seed from 0 to 2**32 - 1", 0, most)
        Deadline(self.time_limit)  # which checks it
        asked = [self.accuracy, self.coverage, self.false_alarm]
        if sum(each is not None for each in asked) > 1:
            raise InputError("ask for one of accuracy, coverage and false_alarm, not for more")
        if self.method != "exact" and any(each is not None for each in asked):
            raise InputError(
                f"method={shown(self.method)} is a way to the largest coverage; leave it out when "
                "you ask for an accuracy, a coverage or a rate of false alarms"
            )
        if self.each_class and self.accuracy is None:
            raise InputError("each_class needs an accuracy to guarantee")
        for name, (what, fits) in RANGES.items():
            if (value := getattr(self, name)) is not None or name in ("confidence", "premium"):
                object.__setattr__(self, name, as_real(value, name, what, fits))

    @property
    def target(self) -> float:
        """The accuracy to guarantee."""
        if self.accuracy is None:
            raise InputError("a guarantee needs an accuracy: Goal(accuracy=0.99)")
        return self.accuracy

    def neighbors_needed(self, rule: type[Rule], n_rows: int, quorum: Quorum = ONE) -> int:
        """Return how many neighbor distances it takes to tune `rule` on `n_rows` training rows.

        `quorum`: how many samples the belief needs, and how many another class.
        """
        if rule.by_level:
            return min(NEIGHBORS, n_rows)
        if rule.neighbors_to_match:
            return min(rule.neighbors_to_match, n_rows)
        return int(np.max(0 if self.k is None else self.k, initial=0)) if has_k(rule) else 0
