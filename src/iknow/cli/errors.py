"""Errors: a command that fails prints one line and returns an exit code.

    0   success                  2   invalid command line
    1   failure                  3   iknow itself failed: a bug      130   interrupted

The line says what failed: iknow's own errors unchanged, system errors with the file's name, and
errors from a model or its module as such. IKNOW_DEBUG=1 in the environment shows the traceback.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from iknow.core.text import name
from iknow.errors import IknowError

FAILURE, BUG, INTERRUPTED = 1, 3, 130
LONGEST_LINE = 1_500
DEBUG = "IKNOW_DEBUG"
UNNAMED = "X does not have valid feature names"
USER_CODE = ("iknow.models.", "iknow.cli.model_files", "iknow.metrics.")
"""Modules that call the user's own code: an error right below these comes from the model."""


class OneLine:
    """A command line that reports every error in one line, never as a traceback."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run a command; exit with its code in standalone mode, else return its result."""
        _open_streams()
        with _warnings_in_a_line():
            try:
                code = super().main(*args, standalone_mode=False, **extra)  # type: ignore[misc]
                sys.stdout.flush()
            except Exception as error:
                code = tell(error)
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code


class OneLineErrors(OneLine, TyperGroup): ...


class OneLineCommand(OneLine, TyperCommand): ...


def _open_streams() -> None:
    """Make the streams accept any text; replace closed streams with ones to nowhere."""
    for which in ("stdout", "stderr"):
        if getattr(sys, which) is None:
            setattr(sys, which, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        stream = getattr(sys, which)
        if hasattr(stream, "reconfigure"):  # escapes what a terminal cannot encode
            stream.reconfigure(errors="backslashreplace")


def tell(error: Exception) -> int:
    """Say in one line on stderr what failed, and return the exit code."""
    line, code = describe(error)
    _silence_if_broken(sys.stdout)
    with suppress(OSError, ValueError):  # stderr may be full or closed
        if os.environ.get(DEBUG):
            traceback.print_exception(error)
        _say("error:", "bold red", line)
    _silence_if_broken(sys.stderr)
    return code


def describe(error: Exception) -> tuple[str, int]:
    """The line for an error, and its exit code."""
    kind = type(error).__name__
    if isinstance(error, IknowError):
        return str(error), FAILURE
    if hasattr(error, "format_message"):  # from the command line, about its arguments
        hint = getattr(getattr(error, "ctx", None), "command_path", "iknow")
        return f"{error.format_message()} Try '{hint} --help'.", int(error.exit_code)  # type: ignore[attr-defined]
    if isinstance(error, (typer.Abort, EOFError)):
        return "interrupted", INTERRUPTED
    if isinstance(error, MemoryError):
        return f"not enough memory: {error or 'it ran out'}", FAILURE
    # The modules that the error passed through; the last one raised it.
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    modules = [str(frame.f_globals.get("__name__", "")) for frame in frames]
    own = [module for module in modules if module.startswith("iknow.")]
    if own and f"{own[-1]}.".startswith(USER_CODE):
        return f"the model raised {kind}: {error} ({DEBUG}=1 shows where)", FAILURE
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        file = "" if error.filename is None else f": {os.fsdecode(error.filename)}"
        return f"{reason}{file}", FAILURE
    if isinstance(error, UnicodeError):
        return f"some text cannot be read or written: {error}", FAILURE
    # scikit-learn may refuse the data, for example in `fit --train`.
    if isinstance(error, ValueError) and modules[-1].startswith("sklearn."):
        return str(error), FAILURE
    bug = f"iknow failed because of a bug: {kind}: {error}"
    return f"{bug}. Please report it, with the output under {DEBUG}=1", BUG


def _say(word: str, style: str, line: str) -> None:
    shown = name(" ".join(line.split()), LONGEST_LINE)
    Console(stderr=True).print(Text(f"{word} ", style=style), Text(shown), sep="", soft_wrap=True)


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    def show(message: Warning | str, *_: Any) -> None:
        with suppress(OSError, ValueError):
            _say("warning:", "bold yellow", str(message))

    with warnings.catch_warnings():
        # Columns are compared by their names, and put into their order, before a model sees them.
        warnings.filterwarnings("ignore", message=UNNAMED)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _silence_if_broken(stream: Any) -> None:
    """Discard the rest for a full or closed stream; Python would fail on it again at exit."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
