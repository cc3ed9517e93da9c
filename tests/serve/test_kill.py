"""SIGKILL in the middle of load: what a client received is recorded, once, and the chain holds.

`python -m benchmarks.service kill` does so hundreds of times.
"""

import os

import pytest

from benchmarks.service.kill import kill_rounds

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")]


def test_nothing_that_a_client_received_is_lost(tmp_path):
    counts = kill_rounds(tmp_path / "audit.db", 25)
    assert counts.kills == 25
    assert counts.answers > 100
    lost = counts.missing, counts.repeated, counts.different, counts.broken_chains
    assert lost == (0, 0, 0, 0)
