"""Settings: everything about a service that is not a bundle, checked where it enters."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from math import inf

from iknow.core.text import as_real, as_whole
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
        show_training: Whether explanations tell values of training samples, and not only numbers.
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
    show_training: bool = False
    retain_days: float | None = None
    retain_bytes: int | None = None
    alarm_rate: float = 0.01
    state: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        for name in WHOLE:
            as_whole(getattr(self, name), name, "be a whole number above 0", 1)
        for name in POSITIVE:
            value = getattr(self, name)
            if value is not None or not name.startswith("retain"):
                as_real(value, name, "be a finite number above 0", lambda x: 0 < x < inf)
        as_real(self.alarm_rate, "alarm_rate", "lie between 0 and 1", lambda x: 0 < x < 1)
        for most, least in (("most_held", "most_body"), ("most_waiting", "most_rows")):
            if getattr(self, most) < getattr(self, least):
                raise InputError(
                    f"{most} must be at least {least}, {getattr(self, least)}, or the largest "
                    f"request might never be answered; got {getattr(self, most)}"
                )
