"""Refusal: an answer that the service does not give, and why, as HTTP says it."""

from __future__ import annotations

from iknow.errors import IknowError


class Refusal(IknowError):  # noqa: N818 - it is an answer too
    """A request that is not answered.

    Args:
        status: The HTTP status.
        message: What was expected, what came, and what to do.
        retry_after: Seconds after which the same request may succeed; None if it never will.

    Examples:
        >>> Refusal(404, "there is no model 'x'").status
        404
    """

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        self.status, self.retry_after = status, retry_after
        super().__init__(message)
