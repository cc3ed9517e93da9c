"""Settings: everything about a service that is not a bundle, checked where it enters."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from iknow.core.text import shown
from iknow.errors import InputError
from iknow.serve.tokens import Tokens

WHOLE = ("workers", "most_body", "most_held", "most_rows", "most_waiting", "batch_rows")
POSITIVE = ("timeout", "drain", "retain_days", "retain_bytes")


@dataclass(frozen=True)
class Settings:
    """How to serve.

    Attributes:
        tokens: Who may do what; without any, the service answers everybody, on loopback only.
        workers: Processes that compute; 1 computes in the process that listens.
        most_body: Bytes of a request's body at most.
        most_held: Bytes that the bodies of all requests under way take together at most, JSON as
            what it unpacks to; a request beyond that is answered with 429.
        most_rows: Rows of a request at most.
        most_waiting: Rows that wait to be assessed at most, over all requests to a model; a request
            that does not fit is answered with 429.
        batch_rows: Rows that are assessed together at most.
        timeout: Seconds in which a request must be read, and in which it must be answered.
        drain: Seconds in which requests that are under way may end when the service stops.
        audit: Where answers are recorded: a file, or the URL of a PostgreSQL database; None records
            nothing.
        audit_required: Whether an answer that cannot be recorded is withheld, with 503.
        keep_inputs: Whether records hold the inputs, so that `iknow audit verify` can ask again.
        retain_days: How long the audit keeps records; None keeps them forever.
        retain_bytes: How much of them it keeps; None keeps all.
        alarm_rate: Probability with which an alarm may ever be false, for each model.
        state: The folder that keeps the state of alarms across restarts. None takes one beside the
            audit, if that is a file, or else beside the bundle: its name and `.state`.

    Examples:
        >>> Settings(audit="answers.db", keep_inputs=True).most_rows
        10000
    """

    tokens: Tokens = field(default_factory=Tokens)
    workers: int = 1
    most_body: int = 32 << 20
    most_held: int = 512 << 20
    most_rows: int = 10_000
    most_waiting: int = 20_000
    batch_rows: int = 512
    timeout: float = 30.0
    drain: float = 20.0
    audit: str | None = None
    audit_required: bool = True
    keep_inputs: bool = False
    retain_days: float | None = None
    retain_bytes: int | None = None
    alarm_rate: float = 0.01
    state: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        for name in WHOLE:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be a whole number above 0; got {shown(value)}")
        for name in POSITIVE:
            value = getattr(self, name)
            if value is None and name.startswith("retain"):
                continue
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not 0 < value < float("inf"):
                raise InputError(f"{name} must be a finite number above 0; got {shown(value)}")
        if not 0 < self.alarm_rate < 1:
            raise InputError(f"alarm_rate must lie between 0 and 1; got {self.alarm_rate}")
        if self.most_held < self.most_body:
            raise InputError(
                f"most_held must be at least most_body, {self.most_body}, or the largest request "
                f"would never be answered; got {self.most_held}"
            )
        if self.most_waiting < self.most_rows:
            raise InputError(
                f"most_waiting must be at least most_rows, {self.most_rows}, or the largest "
                f"request would never be answered; got {self.most_waiting}"
            )
