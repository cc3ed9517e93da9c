"""The errors iknow raises on purpose. Messages say what was expected, what came, and what to do.

`InputError` is also a `ValueError`, so that code written for scikit-learn catches it.
"""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType

LONGEST_MESSAGE = 1400
"""Characters, as a message may quote input of any size. The command line prints longer lines, so
that no message is cut twice.
"""


class IknowError(Exception):
    """Base of all errors that iknow raises. An overlong message keeps its beginning and its end."""

    def __init__(self, message: str = "") -> None:
        super().__init__(_shorten(str(message)))


class InputError(IknowError, ValueError):
    """Data or a parameter that iknow cannot use as given."""


class RefusedError(InputError):
    """Inputs for which the model itself raised an error."""


class LayerError(InputError):
    """A layer that the model lacks, or whose activations cannot be read."""


class SelectionError(IknowError, ValueError):
    """No choice of neighborhoods satisfies the request."""


class BundleError(IknowError):
    """A bundle that is damaged, belongs to another model, or has an unknown format."""


class ConflictError(BundleError):
    """A bundle that somebody else changed meanwhile: load it again, and repeat what you did."""


class AuditError(IknowError):
    """A record that could not be written, or a journal that cannot be read or does not fit."""


class ExportError(IknowError):
    """A model that cannot become an ONNX file, or whose file answers differently."""


class ServiceError(IknowError):
    """A service that refused a request, failed, or could not be reached.

    Attributes:
        status: The HTTP status; None if there was no answer.
        retry_after: Seconds after which the service asks to try again; None if it does not say.
    """

    def __init__(
        self, message: str, status: int | None = None, retry_after: float | None = None
    ) -> None:
        self.status, self.retry_after = status, retry_after
        super().__init__(message)

    def __reduce__(self) -> tuple[type[ServiceError], tuple[str, int | None, float | None]]:
        return type(self), (str(self), self.status, self.retry_after)  # pickle would drop two


class ClusterError(IknowError):
    """A cluster of Ray's that cannot be reached, or that lost a part of a computation.

    No data is lost with it: the call can be repeated.
    """


class DataError(IknowError):
    """A dataset file that is missing, damaged, or cannot be downloaded."""


class MissingExtraError(IknowError, ImportError):
    """A feature whose optional dependency is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        self.feature, self.extra = feature, extra
        super().__init__(
            f"{feature} needs an optional dependency: install it with pip install 'iknow[{extra}]'"
        )

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        return type(self), (self.feature, self.extra)  # pickle would pass the message


HOME = os.path.dirname(__file__) + os.sep


def warn(message: str) -> None:
    """Warn of the line that called iknow, however deep inside we are.

    Between two frames of ours may be others, such as those of functools.
    """
    frame: FrameType | None = sys._getframe()
    level = caller = 1
    while frame is not None:
        frame, level = frame.f_back, level + 1
        if frame is not None and frame.f_code.co_filename.startswith(HOME):
            caller = level
    warnings.warn(message, stacklevel=caller + 1)


def _shorten(message: str) -> str:
    if len(message) <= LONGEST_MESSAGE:
        return message
    gap = f" … ({len(message):,} characters in all) … "
    end = LONGEST_MESSAGE // 4
    return message[: LONGEST_MESSAGE - end - len(gap)] + gap + message[len(message) - end :]
