"""A progress bar appears on a terminal, and nowhere else."""

import io
import os
import pty
import subprocess
import sys

import pytest

from iknow.models.samples import track

SCRIPT = """
import sys
import numpy as np
from iknow import Ball, EpistemicClassifier
from iknow.models import PrecomputedModel

outputs = (np.eye(2)[[0, 1] * 4], {"a": np.arange(8.0)[:, None]})
classifier = EpistemicClassifier(
    PrecomputedModel(), rule=Ball(1), batch_size=2, progress=sys.argv[1] == "yes"
)
classifier.fit(outputs, [0, 1] * 4).assess(outputs)
"""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run_in_a_terminal(progress):
    """What the script writes to a pseudo-terminal as its standard error."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, progress], stderr=theirs, env=environment
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # Linux says so when the other end is closed
            break
        if not part:
            break
        written += part
    os.close(ours)
    assert process.wait() == 0
    return written.decode()


def test_a_terminal_sees_a_bar_for_each_long_work():
    written = run_in_a_terminal("yes")
    assert "Collecting evidence" in written
    assert "Gathering evidence" in written


def test_a_terminal_sees_nothing_with_progress_off():
    assert run_in_a_terminal("no") == ""


def test_nothing_is_written_where_standard_error_is_no_terminal():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "yes"], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("n", [0, 1, 5])
def test_all_items_come_in_order_with_and_without_a_bar(monkeypatch, enabled, n):
    monkeypatch.setattr(sys, "stderr", Terminal())
    for total in (n, None):
        assert list(track(iter(range(n)), total, "Working", enabled=enabled)) == list(range(n))


def test_one_item_is_not_worth_a_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    list(track([1], 1, "Working", enabled=True))
    assert sys.stderr.getvalue() == ""
    list(track([1, 2], 2, "Working", enabled=True))
    assert "Working" in sys.stderr.getvalue()


def test_there_is_a_bar_if_nobody_knows_how_many_will_come(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    list(track(iter([1, 2, 3]), None, "Working", enabled=True))
    assert "Working" in sys.stderr.getvalue()
