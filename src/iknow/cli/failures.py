"""Failures: whatever goes wrong in a command is told in one line, and by an exit code.

    0   all went well            2   the command line cannot be understood
    1   it could not be done     3   iknow itself failed: a bug      130   interrupted

The line says what failed: iknow's own errors as they are, the system's with the file's name, what a
model or its module raised as theirs. With IKNOW_DEBUG=1 in the environment the traceback is shown.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
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
USER_CODE = ("iknow.models.", "iknow.cli.model_file", "iknow.geometry.")
"""Where the user's own code is called: what fails right behind these modules is the model's."""


class OneLine:
    """A command line that reports every error in one line, never as a traceback."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command; the exit code of `main` in standalone mode, else what it returns."""
        _open_streams()
        with _warnings_in_a_line():
            try:
                code = super().main(  # type: ignore[misc]
                    args, prog_name, complete_var, False, windows_expand_args, **extra
                )
                sys.stdout.flush()
            except Exception as error:
                code = tell(error)
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code


class OneLineErrors(OneLine, TyperGroup):
    """Several commands."""


class OneLineCommand(OneLine, TyperCommand):
    """A single one."""


def _open_streams() -> None:
    """Streams that take any text; where they are closed, streams to nowhere."""
    for which in ("stdout", "stderr"):
        if getattr(sys, which) is None:
            setattr(sys, which, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        stream = getattr(sys, which)
        if hasattr(stream, "reconfigure"):  # a terminal of another language shows escapes
            stream.reconfigure(errors="backslashreplace")


def tell(error: Exception) -> int:
    """Say in one line on stderr what failed, and return the exit code."""
    line, code = describe(error)
    _silence_if_broken(sys.stdout)
    with suppress(OSError, ValueError):  # where stderr is full or closed there is nobody to tell
        if os.environ.get(DEBUG):
            traceback.print_exception(error)
        _say("error:", "bold red", line)
    _silence_if_broken(sys.stderr)
    return code


def describe(error: Exception) -> tuple[str, int]:
    """The line that tells of an error, and the exit code that goes with it."""
    kind = type(error).__name__
    if isinstance(error, IknowError):
        return str(error), FAILURE
    if hasattr(error, "format_message"):  # the command line's own, on its arguments
        hint = getattr(getattr(error, "ctx", None), "command_path", "iknow")
        return f"{error.format_message()} Try '{hint} --help'.", int(error.exit_code)  # type: ignore[attr-defined]
    if isinstance(error, (typer.Abort, EOFError)):
        return "interrupted", INTERRUPTED
    if isinstance(error, MemoryError):
        return f"there is not enough memory for it: {error or 'it ran out'}", FAILURE
    if _is_the_models(error):
        return f"the model raised {kind}: {error} ({DEBUG}=1 shows where)", FAILURE
    if isinstance(error, OSError):
        return _about_a_file(error), FAILURE
    if isinstance(error, UnicodeError):
        return f"there is text that cannot be read or written: {error}", FAILURE
    if isinstance(error, ValueError) and _is_sklearns(error):
        return str(error), FAILURE
    return (
        f"iknow failed, and should not have: {kind}: {error}. Please report it, with what is shown "
        f"under {DEBUG}=1",
        BUG,
    )


def _about_a_file(error: OSError) -> str:
    reason = error.strerror or str(error)
    return reason if error.filename is None else f"{reason}: {os.fsdecode(error.filename)}"


def _modules(error: Exception) -> list[str]:
    """The modules that an error came through, the one it was raised in last."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return [str(frame.f_globals.get("__name__", "")) for frame in frames]


def _is_the_models(error: Exception) -> bool:
    own = [module for module in _modules(error) if module.startswith("iknow.")]
    return bool(own) and f"{own[-1]}.".startswith(USER_CODE)


def _is_sklearns(error: Exception) -> bool:
    """Whether scikit-learn refused the data, as it does what `fit --train` cannot learn from."""
    return _modules(error)[-1].startswith("sklearn.")


def _say(word: str, style: str, line: str) -> None:
    shown = name(" ".join(line.split()), LONGEST_LINE)
    Console(stderr=True).print(Text(f"{word} ", style=style), Text(shown), sep="", soft_wrap=True)


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    def show(message: Warning | str, *_: Any) -> None:
        with suppress(OSError, ValueError):
            _say("warning:", "bold yellow", str(message))

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _silence_if_broken(stream: Any) -> None:
    """Where a stream is full or closed, let what is left for it go nowhere.

    Python writes what is left when it ends, and would tell of the failure once more.
    """
    try:
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
