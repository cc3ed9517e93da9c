"""A change is announced in the audit before it is made, and after a crash both agree."""

import asyncio
import errno
import json
import os
import random
import shutil
import subprocess
import time
from collections import Counter
from datetime import timedelta
from itertools import count
from typing import NamedTuple

import pytest

from iknow import Client, EpistemicClassifier
from iknow.errors import ServiceError
from iknow.serve.audit import Retention, open_journal, verify
from iknow.serve.audit.announced import ANNOUNCED, FOUND, MADE, UNDONE, complete, shorten
from iknow.serve.audit.records import make_event
from iknow.serve.served import BundleSource, serve_classifier
from iknow.serve.settings import Settings
from iknow.storage.bundle import compact_bundle
from tests.serve.audit.crashing import Nursery
from tests.serve.killed import failing_fsync, make_classifier, make_service

WORK = "tests.serve.killed:change"


@pytest.fixture
def path(tmp_path):
    """A bundle that was changed once already."""
    path = tmp_path / "digits.iknow"
    make_classifier().save(path)
    EpistemicClassifier.load(path).memory.remove([0], why="before").commit()
    return path


@pytest.fixture
def audit(tmp_path):
    return tmp_path / "audit.db"


@pytest.fixture(scope="module")
def nursery():
    with Nursery(WORK) as nursery:
        yield nursery


def restart(path, audit, **settings):
    async def work():
        service = make_service(path, audit, **settings)
        await service.start()
        await service.stop()

    asyncio.run(work())


def events_in(audit):
    with open_journal(str(audit), readonly=True) as journal:
        assert verify(journal).problems == ()
        return [each for each in journal.events() if each.what != "start"]


def log_of(path):
    log = EpistemicClassifier.load(path).memory.log
    return json.loads(json.dumps(shorten(log)))


def changes_in(events):
    told = [each.details["changes"] for each in events if each.what in (MADE, FOUND)]
    return [entry for entries in told for entry in entries]


def check_agree(path, audit):
    """The audit tells once of each change in the bundle, and how each announced one ended."""
    events, log = events_in(audit), log_of(path)
    assert changes_in(events) == log
    for each in events:
        if each.what == ANNOUNCED:
            made = [entry for entry in each.details["changes"] if entry in log]
            undone = [other for other in events if other.what == UNDONE
                      and other.details["bundle"] == each.details["bundle"]]  # fmt: skip
            assert len(made) == (0 if undone else len(each.details["changes"]))
    return [each.what for each in events]


def kill_at(nursery, made, folder, at, power=False, full=-1):
    """Change a copy of a bundle and its audit, and be killed; what the child said, and the copies.

    The child says nothing if it was killed before it had answered.
    """
    path, audit = (shutil.copy(each, folder / each.name) for each in made)
    for rest in folder.glob("audit.db-*"):
        rest.unlink()
    nursery.said.clear()
    nursery.start(str(path), str(audit), str(at), str(power), str(full))
    if nursery.wait_for(1):
        nursery.kill()
    else:
        assert nursery.code == -9, "the child ended by itself"
    return nursery.said, path, audit


def check_after(said, path, audit):
    """Restart, and compare; what came of the change."""
    was_made = [each.split()[1] for each in said if each.startswith("made")]
    restart(path, audit)
    whats = check_agree(path, audit)
    if was_made:
        assert EpistemicClassifier.load(path).plan_.bundled["sha256"] == was_made[0]
    restart(path, audit)
    assert check_agree(path, audit) == whats  # nothing is said twice
    return tuple(whats[1:])  # without the change that was there before


@pytest.mark.parametrize("power", [False, True])
def test_a_kill_at_any_point_leaves_audit_and_bundle_in_agreement(
    nursery, path, audit, tmp_path, power
):
    restart(path, audit)
    (tmp_path / "killed").mkdir()
    ends = Counter()
    for at in count():
        said, *files = kill_at(nursery, (path, audit), tmp_path / "killed", at, power)
        assert nursery.failures == []
        ends[check_after(said, *files)] += 1
        if said:
            break
    # Two commits of the journal; four writings of segments, one of a mark, and two fsyncs.
    assert at == 2 * (2 + 4 + 1 + 2)
    assert set(ends) == {(), (ANNOUNCED, UNDONE), (ANNOUNCED, FOUND), (ANNOUNCED, MADE)}


@pytest.mark.slow
@pytest.mark.parametrize("full", range(1, 8))
def test_a_kill_while_a_full_disk_is_cleared_leaves_them_in_agreement(
    nursery, path, audit, tmp_path, full
):
    restart(path, audit)
    (tmp_path / "killed").mkdir()
    for at in count():
        said, *files = kill_at(nursery, (path, audit), tmp_path / "killed", at, full=full)
        whats = check_after(said, *files)
        if said:
            break
        assert whats in ((), (ANNOUNCED, UNDONE), (ANNOUNCED, FOUND))
    assert said == ["refused 507"]
    assert whats == (ANNOUNCED, UNDONE)


@pytest.mark.slow
def test_kills_at_random_lose_no_change_that_was_acknowledged(path, audit):
    chance = random.Random(0)
    with Nursery("tests.serve.killed:change_forever") as nursery:
        for _ in range(40):
            nursery.start(str(path), str(audit))
            assert nursery.wait_for(chance.randrange(1, 8)), "the child ended by itself"
            time.sleep(chance.uniform(0, 0.02))  # the moment is what is tested
            nursery.kill()
            restart(path, audit)
            check_agree(path, audit)
        assert nursery.failures == []
    made = {each.details["bundle"] for each in events_in(audit) if each.what == MADE}
    assert set(nursery.said) <= made
    assert len(nursery.said) > 40


@pytest.fixture
def client(running, digits, tmp_path):
    """A client of a service whose bundle and audit are `b.iknow` and `audit.db`."""

    def client(**settings):
        path = tmp_path / "b.iknow"
        if not path.exists():
            digits.classifier.save(path)
        served = serve_classifier("digits", EpistemicClassifier.load(path, digits.classifier.model))
        server = running([served], Settings(audit=str(tmp_path / "audit.db"), **settings))
        return Client(server.url, retries=0), server, path

    return client


MANY = {"relabel": dict.fromkeys(range(900), 1), "why": "x" * 1900}
"""A change whose record needs more than a page of the journal."""


def fill(journal):
    """Leave no room for the journal, until it opens its file anew after an error."""
    (n_pages,) = journal._writer.execute("PRAGMA page_count").fetchone()
    journal._writer.execute(f"PRAGMA max_page_count = {n_pages}")


def test_a_change_that_the_audit_cannot_hold_is_not_made(client):
    asker, server, path = client()
    before, bundle = path.read_bytes(), asker.model("digits").bundle
    fill(server.service.audit.journal)
    with pytest.raises(ServiceError, match="could not be recorded, so it is not made") as refused:
        asker.change("digits", **MANY)
    assert refused.value.status == 503
    assert path.read_bytes() == before
    assert asker.model("digits").bundle == bundle
    assert asker.change("digits", **MANY).before == bundle  # there is room again
    server.stop()
    assert check_agree(path, path.parent / "audit.db") == [ANNOUNCED, MADE]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root mounts")
def test_a_disk_that_is_full_for_the_audit_prevents_changes(running, path, tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        served = serve_classifier("digits", EpistemicClassifier.load(path))
        server = running([served], Settings(audit=str(folder / "audit.db")))
        asker, before = Client(server.url, retries=0), path.read_bytes()
        filled = subprocess.run(["dd", "if=/dev/zero", f"of={folder}/filler"], capture_output=True)
        assert b"No space left" in filled.stderr
        with pytest.raises(ServiceError, match="not made") as refused:
            asker.change("digits", remove=[3])
        assert refused.value.status == 503
        assert path.read_bytes() == before
        (folder / "filler").unlink()
        asker.change("digits", remove=[3])
        server.stop()
        assert check_agree(path, folder / "audit.db") == [FOUND, ANNOUNCED, MADE]
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_an_audit_that_is_optional_lets_a_change_pass_and_learns_of_it_later(client):
    asker, server, path = client(audit_required=False)
    fill(server.service.audit.journal)
    asker.change("digits", **MANY)  # its announcement is lost, and the next record is not
    server.stop()
    assert check_agree(path, path.parent / "audit.db") == [MADE]


def test_a_change_that_the_disk_does_not_take_is_told_as_undone(client, monkeypatch):
    asker, server, path = client()
    monkeypatch.setattr(os, "fsync", failing_fsync(path, lambda n: n == 2))
    with pytest.raises(ServiceError, match="the disk is full"):
        asker.change("digits", remove=[3])
    monkeypatch.undo()
    server.stop()
    assert check_agree(path, path.parent / "audit.db") == [ANNOUNCED, UNDONE]


def test_a_disk_that_fails_for_good_leaves_it_open_until_the_next_look(client, monkeypatch):
    asker, server, path = client()
    monkeypatch.setattr(os, "fsync", failing_fsync(path, lambda n: n > 1, errno.EIO))
    monkeypatch.setattr("iknow.storage.archive._take_back", lambda *_: None)
    with pytest.raises(ServiceError, match="not known whether the change was made") as refused:
        asker.change("digits", remove=[3])
    assert refused.value.status == 503
    monkeypatch.undo()
    server.stop()
    client()  # a restart
    assert check_agree(path, path.parent / "audit.db") == [ANNOUNCED, FOUND]


def test_what_others_change_is_found_at_a_start_and_compacting_changes_nothing(path, audit):
    restart(path, audit)
    ec = EpistemicClassifier.load(path)
    ec.memory.remove([3], who="Ada").relabel([7], [1]).commit()
    restart(path, audit)
    compact_bundle(path)
    restart(path, audit)
    assert check_agree(path, audit) == [FOUND, FOUND]
    assert [len(each.details["changes"]) for each in events_in(audit)] == [1, 2]


def test_a_reload_finds_what_others_changed(running, digits, tmp_path):
    path = tmp_path / "digits.iknow"
    digits.classifier.save(path, onnx=True)
    server = running([BundleSource(path)], Settings(audit=str(tmp_path / "audit.db")))
    EpistemicClassifier.load(path).memory.remove([3], who="Ada").commit()
    assert Client(server.url).reload()[0].changed
    server.stop()
    assert check_agree(path, tmp_path / "audit.db") == [FOUND, "reload"]


class Subject(NamedTuple):
    name: str
    version: str
    sha256: str = "head"


MODEL = Subject("m", "1")


def entry(what, when="2026-01-01T00:00:00Z"):
    return {"what": what, "when": when, "ids": [1], "n": 1}


def announce(bundle, *entries, subject=MODEL):
    return make_event(ANNOUNCED, subject, bundle=bundle, before="p", changes=list(entries))


def made(bundle, *entries):
    return make_event(MADE, MODEL, bundle=bundle, before="p", changes=list(entries))


def undone(bundle):
    return make_event(UNDONE, MODEL, bundle=bundle)


A, B = entry("a"), entry("b")
STATES = {
    "nothing": ([], [], []),
    "announced": ([announce("x", A)], [], [(UNDONE, "x")]),
    "announced, and there": ([announce("x", A)], [A], [(FOUND, "head")]),
    "undone": ([announce("x", A), undone("x")], [], []),
    "undone, and made again": ([announce("x", A), undone("x"), announce("x", A)], [A],
                               [(FOUND, "head")]),
    "made": ([announce("x", A), made("x", A)], [A], []),
    "made by others": ([], [A, B], [(FOUND, "head")]),
    "replaced by another file": ([announce("x", A), made("x", A)], [], []),
    "the same once more": ([announce("x", A), made("x", A), announce("y", A)], [A],
                           [(UNDONE, "y")]),
    "the same twice": ([announce("x", A), made("x", A), announce("y", A)], [A, A],
                       [(FOUND, "head")]),
    "another model": ([announce("x", A, subject=Subject("n", "1"))], [], []),
    "another version": ([announce("x", A, subject=Subject("m", "2"))], [], []),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_the_table_of_states(name):
    events, log, expected = STATES[name]
    added = complete(events, MODEL, log, Retention())
    assert [(each.what, each.details["bundle"]) for each in added] == expected
    assert complete([*events, *added], MODEL, log, Retention()) == []


def test_changes_older_than_what_is_kept_are_not_looked_for():
    old, new = entry("a", "2020-01-01T00:00:00Z"), entry("b", "2200-01-01T00:00:00Z")
    (added,) = complete([], MODEL, [old, new], Retention(timedelta(days=90)))
    assert added.details["changes"] == [new]
