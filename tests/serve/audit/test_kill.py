"""A process that is killed at any moment loses nothing that it acknowledged."""

import random
import signal
import time
from collections import Counter

import pytest

from iknow.serve.audit import Answer, open_journal, verify
from tests.serve.audit.crashing import Nursery

KILLS = 210
WORK = "tests.serve.audit.workload:record_forever"


def kill_at_random(nursery, chance, where, *words):
    """Start a child and kill it: while it opens the journal, or after some acknowledgements."""
    nursery.start(where, *words)
    if chance.random() < 0.8:
        assert nursery.wait_for(chance.randrange(1, 16)), "the child ended by itself"
    time.sleep(chance.uniform(0, 0.01))  # no condition to wait for: the moment is what is tested
    assert nursery.kill() == -9, "the child ended by itself"


def check(where):
    """The chain holds."""
    with open_journal(where, readonly=True) as journal:  # the next child finds it as it was left
        assert verify(journal).problems == ()


def check_all(where, said):
    """Each acknowledged request is there once with all its rows; others whole or not at all."""
    with open_journal(where, readonly=True) as journal:
        found = verify(journal)
        answers = [record for _, record in journal.records() if isinstance(record, Answer)]
    assert found.problems == ()
    rows = Counter((answer.request, answer.row) for answer in answers)
    assert set(rows.values()) == {1}
    stored = Counter(answer.request for answer in answers)
    acknowledged = {request: int(count) for request, count in map(str.split, said)}
    assert len(acknowledged) == len(said)
    lost = {request for request, count in acknowledged.items() if stored[request] != count}
    assert lost == set()
    whole = {request: 1 + sum(map(int, request.split("-")[-2:])) % 5 for request in stored}
    assert stored == whole
    return len(acknowledged), len(stored)


@pytest.mark.slow
def test_sigkill_loses_nothing_that_was_acknowledged(tmp_path):
    where = str(tmp_path / "audit.db")
    chance = random.Random(0)
    with Nursery(WORK) as nursery:
        for kill in range(KILLS):
            kill_at_random(nursery, chance, where, str(kill))
            if nursery.said:
                check(where)
    assert nursery.failures == []
    acknowledged, stored = check_all(where, nursery.said)
    print(f"{KILLS} kills, {acknowledged} requests acknowledged, {stored} stored, 0 lost")
    assert stored >= acknowledged > KILLS


@pytest.mark.slow
def test_sigkill_in_the_middle_of_pruning_leaves_a_sound_chain(tmp_path):
    where = str(tmp_path / "audit.db")
    chance = random.Random(1)
    with Nursery(WORK) as nursery:
        for kill in range(40):
            kill_at_random(nursery, chance, where, str(kill), "0.01")
            if nursery.said:
                with open_journal(where, readonly=True) as journal:
                    found = verify(journal)
                assert found.problems == ()
    assert found.first > 100


@pytest.mark.slow
def test_sigkill_loses_nothing_in_postgresql(new_schema):
    where = new_schema()
    chance = random.Random(2)
    with Nursery(WORK) as nursery:
        for kill in range(20):
            kill_at_random(nursery, chance, where, str(kill))
            if nursery.said:
                check(where)
    assert nursery.failures == []
    acknowledged, stored = check_all(where, nursery.said)
    print(f"20 kills, {acknowledged} requests acknowledged, {stored} stored, 0 lost")


@pytest.mark.slow
def test_killing_the_server_loses_nothing(new_schema, server):
    """The process that records goes on meanwhile: it fails, and recovers by itself."""
    where = new_schema()
    with Nursery(WORK) as nursery:
        nursery.start(where, "a")
        for how in (signal.SIGQUIT, signal.SIGKILL, signal.SIGINT) * 2:
            assert nursery.wait_for(20)
            server.stop(how)
            server.start()
        assert nursery.wait_for(20)
        assert nursery.kill() == -9
    assert nursery.failures != []
    acknowledged, stored = check_all(where, nursery.said)
    print(f"6 ends, {acknowledged} requests acknowledged, {stored} stored, 0 lost")
