"""Records: what the audit trail remembers, one kind for each thing that can happen.

An `Answer` is one row of one request, as it was answered. A `Label` is the truth about such a row,
which may come days later. An `Event` is anything else that explains the answers: a start, another
bundle, an alarm, records that were removed because of their age.

Times are texts of one width, `2026-01-31T09:30:00.000000Z`, so that their order as text is their
order in time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from iknow.core.text import shown
from iknow.errors import AuditError

TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
LARGEST = 2**63 - 1
"""The largest row number, which a database must hold."""


def now() -> str:
    """The time, as records hold it."""
    return as_time(datetime.now(UTC))


def as_time(moment: datetime) -> str:
    """A moment as records hold it; one without a time zone is in UTC.

    Examples:
        >>> as_time(datetime(2026, 1, 31, 9, 30))
        '2026-01-31T09:30:00.000000Z'
    """
    known = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return known.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said about one row of one request.

    Attributes:
        time: When, in UTC: `2026-01-31T09:30:00.000000Z`.
        request: The request's identifier.
        row: The row's position in the request.
        caller: Who asked.
        model: The name of the model.
        version: Its version.
        bundle: The sha256 of the bundle, in hexadecimal.
        input_hash: The sha256 of the row, in hexadecimal, by `hash_input`.
        belief: The label as JSON; "null" if there is none.
        assertion: IK, IMK or IDK.
        reason: The reason's name.
        level: From 0 to 1, if there are levels.
        exemplars: By layer, the nearest training row of the believed class.
        input: The row itself, by `encode_input`, if inputs are kept.

    Examples:
        >>> Answer("yesterday", "r1", 0, "me", "digits", "1", "ab", "cd", "7", "IK", "KNOWN", 0.5)
        Traceback (most recent call last):
        iknow.errors.AuditError: the time of a record must be like 2026-01-31T09:30:00.000000Z; ...
    """

    time: str
    request: str
    row: int
    caller: str
    model: str
    version: str
    bundle: str
    input_hash: str
    belief: str
    assertion: str
    reason: str
    level: float | None
    exemplars: Mapping[str, int] = field(default_factory=dict)
    input: bytes | None = None

    def __post_init__(self) -> None:
        _check_time(self.time)
        _check_row(self.row)


@dataclass(frozen=True, slots=True)
class Label:
    """The truth about one row of an earlier request.

    Attributes:
        time: When it came, in UTC.
        request: The identifier of the request that was answered.
        row: The row's position in that request.
        caller: Who said so.
        label: The label as JSON.
    """

    time: str
    request: str
    row: int
    caller: str
    label: str

    def __post_init__(self) -> None:
        _check_time(self.time)
        _check_row(self.row)


@dataclass(frozen=True, slots=True)
class Event:
    """Anything else that explains the answers.

    Attributes:
        time: When it happened, in UTC.
        what: Its kind, such as "start", "reload", "alarm" or "pruned".
        model: The name of the model that it is about; "" for all.
        details: What else there is to say, as values for JSON.
    """

    time: str
    what: str
    model: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_time(self.time)


Record = Answer | Label | Event


def _check_time(time: str) -> None:
    if not isinstance(time, str) or not TIME.fullmatch(time):
        raise AuditError(
            f"the time of a record must be like 2026-01-31T09:30:00.000000Z; got {shown(time)}"
        )


def _check_row(row: int) -> None:
    if type(row) is not int or not 0 <= row <= LARGEST:
        raise AuditError(f"the row of a record must be an int from 0 to 2^63 - 1; got {shown(row)}")
