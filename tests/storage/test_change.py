"""Changes say in words what they were, and keep no activations in the log."""

import numpy as np
import pytest

from iknow.errors import InputError
from iknow.storage.change import Change, check_change, check_said

NONE = np.empty(0, dtype=np.int64)
WHEN = "2026-11-01T12:00:00Z"


def test_the_log_keeps_who_when_why_and_the_numbers():
    points = {"input": np.zeros((1, 2), np.float32)}
    add = Change("add", WHEN, "Ada", "more", NONE, np.array([7]), np.array([2]), points, ("new",))
    logged = add.logged()
    assert (logged.ids.tolist(), logged.classes) == ([7], ("new",))
    assert not hasattr(logged, "points")
    assert logged.sentence() == f"1 sample added at {WHEN} by 'Ada', because 'more'"
    remove = Change("remove", WHEN, "", "", np.array([3, 9]), NONE, NONE, {})
    assert remove.logged().ids.tolist() == [3, 9]
    assert remove.logged().sentence() == f"2 samples removed at {WHEN}"
    check_change(add, ["input"])
    check_change(remove, ["input"])


def test_words_are_bounded_and_shown_safely():
    spoof = Change("remove", WHEN, "a\x1b[2Jb", "", np.array([3]), NONE, NONE, {})
    assert "\x1b" not in spoof.logged().sentence()
    for text in (None, 3, b"x", "x" * 2001):
        with pytest.raises(InputError, match="who must be text of at most 2000 characters"):
            check_said(text, "who")


@pytest.mark.parametrize("when", ["", "2026-11-01", "2026-11-01T12:00:00+01:00", WHEN + "\n", 5])
def test_the_time_is_in_utc(when):
    with pytest.raises(InputError, match="must say when in UTC"):
        check_change(Change("remove", when, "", "", np.array([3]), NONE, NONE, {}), ["input"])
