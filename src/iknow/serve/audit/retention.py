"""Retention: how long records are kept, and which ones go.

The oldest records go first, a bounded number at a time, in one transaction with an `Event` "pruned"
that states the last of them and its hash. The chain goes on from that hash, so what is left can
still be verified, and records that disappear without such an event are seen.

A journal of nothing but such events is left alone: else each would be replaced by the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from iknow.core.text import shown
from iknow.errors import InputError
from iknow.serve.audit.record import as_time

STEP = 1000
"""Records to remove in one transaction, at most."""
SMALLEST = 1 << 20
"""Bytes: the least size to ask for."""
ROOM = 0.05
"""The share of the largest size that is freed at a time."""


@dataclass(frozen=True)
class Retention:
    """What to keep. Without either, everything.

    Attributes:
        max_age: Records older than this are removed.
        max_bytes: Above this size the oldest records are removed, 1 MiB at least.

    Examples:
        >>> Retention(max_age=timedelta(days=90), max_bytes=10**9).max_age.days
        90
    """

    max_age: timedelta | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.max_age is not None and not (
            isinstance(self.max_age, timedelta) and self.max_age > timedelta(0)
        ):
            raise InputError(f"max_age must be a positive timedelta; got {shown(self.max_age)}")
        if self.max_bytes is not None and not (
            type(self.max_bytes) is int and self.max_bytes >= SMALLEST
        ):
            raise InputError(
                f"max_bytes must be an int of at least {SMALLEST:,}; got {shown(self.max_bytes)}"
            )


class Old(NamedTuple):
    """One of the oldest records. is_pruning: whether it is itself an event "pruned"."""

    seq: int
    time: str
    size: float
    is_pruning: bool


def choose(
    retention: Retention, oldest: Sequence[Old], used: float, moment: datetime | None = None
) -> int:
    """How many of the oldest records to remove. used: bytes of all records together."""
    expired = 0
    if retention.max_age is not None:
        limit = as_time((moment or datetime.now(UTC)) - retention.max_age)
        expired = next((i for i, old in enumerate(oldest) if old.time >= limit), len(oldest))
    excess = 0
    if retention.max_bytes is not None and used > retention.max_bytes:
        left = used - (1 - ROOM) * retention.max_bytes
        while excess < len(oldest) and left > 0:
            left -= oldest[excess].size
            excess += 1
    count = max(expired, excess)
    return 0 if all(old.is_pruning for old in oldest[:count]) else count
