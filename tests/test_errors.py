"""Errors: whatever is quoted in them, somebody can read them."""

import pickle
from pathlib import Path

import pytest

from iknow.errors import (
    HOME,
    LONGEST_MESSAGE,
    BundleError,
    InputError,
    MissingExtraError,
    ServiceError,
    warn,
)


@pytest.mark.parametrize("kind", [InputError, BundleError])
def test_a_message_of_any_length_keeps_its_beginning_and_its_end(kind):
    message = str(kind("expected " + "x" * 9_000_000 + ": do this"))
    assert len(message) <= LONGEST_MESSAGE
    assert message.startswith("expected xxx")
    assert message.endswith("xxx: do this")
    assert "9,000,018 characters" in message


def test_a_message_that_can_be_read_stays_as_it_is():
    assert str(InputError("x" * LONGEST_MESSAGE)) == "x" * LONGEST_MESSAGE


@pytest.mark.parametrize(
    "error", [InputError("a"), MissingExtraError("this", "that"), ServiceError("a", 429, 2.0)]
)
def test_errors_cross_processes(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_a_warning_is_of_the_line_that_called_iknow_whatever_stands_between():
    def made(source, file, known):
        exec(compile(source, file, "exec"), known)
        return known

    inside = str(Path(HOME) / "made_up.py")
    known = made("def inner():\n    warn('careful')", inside, {"warn": warn})
    known = made("def between(call):\n    call()", "functools.py", known)
    known = made("def outer():\n    between(inner)", inside, known)
    with pytest.warns(UserWarning, match="careful") as warned:
        known["outer"]()
    assert warned[0].filename == __file__
