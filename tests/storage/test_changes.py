"""Segments: what was acknowledged is there, what is damaged is refused, what is torn is ignored."""

import os
import random
import threading
from dataclasses import replace

import numpy as np
import pytest

import iknow.storage.bundle
from iknow.errors import BundleError, ConflictError, InputError
from iknow.storage import archive
from iknow.storage.archive import SECTOR, START
from iknow.storage.bundle import Bundle, append_changes, compact_bundle, read_bundle, write_bundle
from iknow.storage.changes import (
    Change,
    Folding,
    check_change,
    check_said,
    decode_change,
    encode_change,
    fold_changes,
)
from tests.conditions import wait_until
from tests.storage.changing import LAYERS, NONE, TIME, addition, ints, removal
from tests.storage.test_bundle import make_classifier


def relabeling(bundle, row, label):
    place = bundle.rows.tolist().index(row)
    points = {name: values[[place]] for name, values in bundle.activations.items()}
    what = "relabel", TIME, "ada", ""
    return Change(*what, ints(row), ints(row), ints(label), points)


@pytest.fixture
def path(tmp_path):
    make_classifier().save(tmp_path / "it.iknow")
    return tmp_path / "it.iknow"


def state_of(bundle):
    """All that a bundle holds by now, as values to compare."""
    folded = fold_changes(bundle)
    points = {name: values.tobytes() for name, values in folded.activations.items()}
    log = [(each.what, each.ids.tolist()) for each in folded.log]
    return folded.rows.tolist(), folded.labels.tolist(), points, folded.classes.tolist(), log


def test_a_change_is_read_as_it_was_written(path):
    before = read_bundle(path)
    changes = removal(3, 5), addition(100, 200), relabeling(before, 7, 2)
    digests = {before.sha256}
    for change in changes:
        digests.add(append_changes(path, [change]))
        assert read_bundle(path).sha256 in digests
    found = read_bundle(path, verify="now")
    assert len(digests) == 4
    assert found.n_torn == 0
    for one, other in zip(changes, found.changes, strict=True):
        assert encode_change(one) == encode_change(other)
    assert np.array_equal(found.rows, before.rows)


@pytest.mark.parametrize("said", ["", "ü", "\ud800", "x" * 2_000])
def test_what_was_said_is_read_as_it_was_written(path, said):
    append_changes(path, [replace(removal(3), who=said, why=said)])
    for _ in range(2):
        (log,) = fold_changes(read_bundle(path, verify="now")).log
        assert (log.who, log.why) == (said, said)
        compact_bundle(path)


def test_folding_is_the_same_as_a_dictionary_of_samples(path):
    """The oracle is a plain dictionary: number → label and points."""
    bundle = read_bundle(path)
    chance, rng = random.Random(1), np.random.default_rng(1)
    known = {
        int(row): (
            int(bundle.labels[i]),
            {n: v[i].tobytes() for n, v in bundle.activations.items()},
        )
        for i, row in enumerate(bundle.rows)
    }
    changes = []
    for step in range(60):
        kind = chance.choice(["add", "remove", "relabel"])
        rows = np.sort(np.array(chance.sample(sorted(known), 2)))
        if kind == "add":
            rows = np.unique(rng.integers(0, 500, 5))
            rows = rows[[int(row) not in known for row in rows]]
            change = addition(*rows, label=chance.randrange(3), seed=step)
        elif kind == "remove":
            change = removal(*rows)
        else:
            held = [known[int(row)][1] for row in rows]
            points = {n: np.stack([np.frombuffer(each[n], "f4") for each in held]) for n in LAYERS}
            labels = rng.integers(0, 3, 2)
            change = Change(kind, TIME, "", "", rows, rows, labels, points)
        for row in change.removed.tolist():
            known.pop(row)
        for i, row in enumerate(change.rows.tolist()):
            held = {n: change.points[n][i].tobytes() for n in LAYERS}
            known[row] = int(change.labels[i]), held
        changes.append(change)
    append_changes(path, changes)
    compact_bundle(path)
    found = read_bundle(path, verify="now")
    order = sorted(known, key=lambda row: (known[row][0], row))
    assert found.rows.tolist() == order
    assert found.labels.tolist() == [known[row][0] for row in order]
    for name, values in found.activations.items():
        assert values.tobytes() == b"".join(known[row][1][name] for row in order)
    assert len(found.log) == 60


# Torn or damaged


def test_a_file_cut_short_anywhere_after_a_removal_never_brings_the_sample_back(path):
    append_changes(path, [removal(3)])
    append_changes(path, [removal(5)])
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 37), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(BundleError):
            read_bundle(path, verify=False)


@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_no_flipped_bit_undoes_a_change(path, every):
    end = path.stat().st_size
    append_changes(path, [removal(3)])
    append_changes(path, [removal(5)])
    whole, expected = path.read_bytes(), state_of(read_bundle(path))
    n_refused = 0
    places = [*range(0, START, every), *range(end, len(whole), every)]
    for place in places:
        path.write_bytes(
            whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
        )
        try:
            assert state_of(read_bundle(path)) == expected  # a mark, of which there are two
        except BundleError:
            n_refused += 1
    assert n_refused == sum(place >= START for place in places)


@pytest.mark.parametrize("n", [100, pytest.param(20_000, marks=pytest.mark.slow)])
def test_any_mutation_behind_the_base_is_refused_or_changes_nothing(path, n):
    """Bytes overwritten, cut out, inserted or moved; or in the marks."""
    end = path.stat().st_size
    for change in (removal(3), addition(100), removal(5)):
        append_changes(path, [change])
    whole, expected = path.read_bytes(), state_of(read_bundle(path))
    chance = random.Random(n)
    for _ in range(n):
        changed = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            one = chance.choice([chance.randrange(START), chance.randrange(end, len(changed) + 1)])
            other = min(len(changed), one + chance.choice([1, 2, 4, 8, 64, SECTOR, 1000]))
            filling = chance.choice(
                [b"", b"\0" * (other - one), chance.randbytes(other - one), whole[end:][:99]]
            )
            changed[one:other] = filling
        path.write_bytes(changed)
        try:
            found = read_bundle(path)
        except BundleError:
            continue
        assert state_of(found) == expected


@pytest.mark.parametrize("n", [100, pytest.param(20_000, marks=pytest.mark.slow)])
def test_any_mutation_of_a_payload_is_refused_or_a_sound_change(path, n):
    """Whoever can write the file can compute checksums: the values themselves must be checked."""
    payload = encode_change(addition(100, 101))
    chance, bundle = random.Random(n), read_bundle(path)
    for _ in range(n):
        changed = bytearray(payload)
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(changed))
            changed[place] = chance.choice([0, 255, 127, chance.randrange(256)])
        try:
            folded = Folding(bundle, [decode_change(bytes(changed))]).fold()
        except BundleError:
            continue
        assert len(folded.rows) == len(bundle.rows) + 2


class Killed(BaseException):
    """Stands for the end of a process: nothing is taken back."""


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_what_an_interrupted_writer_leaves_is_ignored_and_cut_off(path, monkeypatch, nth, share):
    """Killed during the nth write: of a header, a payload, or a mark."""
    append_changes(path, [removal(3)])
    old = state_of(read_bundle(path))
    calls, real = [], os.write

    def write(descriptor, content):
        calls.append(content)
        if len(calls) < nth:
            return real(descriptor, content)
        real(descriptor, content[: int(share * len(content))])
        raise Killed

    monkeypatch.setattr(archive.os, "write", write)
    monkeypatch.setattr(archive, "_take_back", lambda *arguments: None)
    with pytest.raises(Killed):
        append_changes(path, [removal(5)])
    monkeypatch.undo()
    left = read_bundle(path, verify="now")
    assert len(left.changes) == (2 if nth == 3 and share else 1)
    assert (left.n_torn > 0) == (nth < 3 or not share) or (nth, share) == (1, 0.0)
    assert nth == 3 or state_of(left) == old
    append_changes(path, [removal(7)])
    found = read_bundle(path, verify="now")
    assert found.n_torn == 0
    assert found.changes[-1].removed.tolist() == [7]
    assert len(found.changes) == len(left.changes) + 1


# Writers


def test_of_two_writers_that_saw_the_same_bundle_one_is_told(path):
    seen = read_bundle(path).sha256
    append_changes(path, [removal(3)], after=seen)
    with pytest.raises(ConflictError, match="changed by somebody else meanwhile: load it again"):
        append_changes(path, [removal(5)], after=seen)
    assert [each.removed.tolist() for each in read_bundle(path).changes] == [[3]]


@pytest.mark.parametrize("change_it", [lambda p: append_changes(p, [removal(3)]), compact_bundle])
def test_a_bundle_with_two_names_is_not_changed_in_place(path, change_it):
    """A change by one name would be lost once the bundle is compacted by the other."""
    os.link(path, path.with_name("other.iknow"))
    before = path.read_bytes()
    with pytest.raises(BundleError, match=r"has 2 names .hard links.*: remove the others"):
        change_it(path)
    assert path.read_bytes() == before
    path.with_name("other.iknow").unlink()
    change_it(path)


def test_writers_at_once_lose_nothing(path):
    errors = []

    def write(first):
        try:
            for row in range(first, first + 10):
                append_changes(path, [addition(row)])
                if row % 4 == 0:
                    compact_bundle(path)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(1000 * i,)) for i in range(1, 5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors
    found = read_bundle(path, verify="now")
    rows, _, _, _, log = state_of(found)
    added = {1000 * i + j for i in range(1, 5) for j in range(10)}
    assert added <= set(rows)
    assert sorted(ids[0] for _, ids in log) == sorted(added)


@pytest.mark.parametrize("step", ["write", "fsync"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_full_disk_leaves_everything_as_it_was(path, monkeypatch, step, nth):
    append_changes(path, [removal(3)])
    before, calls = path.read_bytes(), []
    real = getattr(os, step)

    def fail(*arguments):
        calls.append(arguments)
        if len(calls) == nth:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(archive.os, step, fail)
    if (step, nth) == ("fsync", 3):
        append_changes(path, [removal(5)])
        return
    with pytest.raises(OSError, match="No space left"):
        append_changes(path, [removal(5)])
    monkeypatch.undo()
    assert path.read_bytes() == before
    append_changes(path, [removal(5)])
    assert len(read_bundle(path, verify="now").changes) == 2


def test_several_changes_are_committed_together(path, monkeypatch):
    before = path.read_bytes()
    with pytest.raises(
        BundleError, match=r"its change 2: there are no samples with these numbers: 3$"
    ):
        append_changes(path, [removal(3), removal(3)])
    assert path.read_bytes() == before


WRONG = {
    "there are no samples with these numbers: 999": [removal(999)],
    "there are samples with these numbers: 3": [addition(3)],
    "must give class codes from 0 to 2": [addition(100, label=3)],
    "no sample would be left": [removal(*range(30))],
    "activations of the layers 'a', 'b'; got 'a'": [
        replace(addition(100), points={"a": np.ones((1, 2), "f4")})
    ],
    "2 features each; got": [
        replace(addition(7777), points={n: np.ones((1, 3), "f4") for n in "ab"})
    ],
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_a_change_that_does_not_fit_is_refused(path, message):
    before = path.read_bytes()
    with pytest.raises(BundleError, match=message):
        append_changes(path, WRONG[message])
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        replace(removal(3), what="burn"),
        replace(removal(3), when="yesterday"),
        replace(removal(3), who="x" * 5000),
        replace(removal(3), removed=ints(5, 3)),
        replace(removal(3), removed=ints(-1)),
        replace(removal(3), removed=NONE),
        replace(addition(7), labels=NONE),
        replace(addition(7), points={"a": np.full((1, 2), np.nan, "f4")}),
    ],
)
def test_a_change_that_cannot_be_is_not_written(change):
    with pytest.raises(InputError, match="cannot be stored"):
        encode_change(change)


# Readers


def test_a_mapped_reader_goes_on_while_the_bundle_grows_and_is_compacted(path):
    for verify in (True, False):
        found = read_bundle(path, copied_up_to=0, verify=verify)
        expected = found.activations["a"].tobytes()
        found.check()
        append_changes(path, [addition(100 + verify)])
        found.check()
        compact_bundle(path)
        found.check()
        assert found.activations["a"].tobytes() == expected


@pytest.mark.parametrize("beside", [False, True])
def test_a_mapped_reader_notices_damage_before_or_beside_a_change(path, beside):
    found = read_bundle(path, copied_up_to=0)
    found.check()
    place = path.read_bytes().index(found.activations["a"].tobytes())
    if not beside:
        append_changes(path, [addition(100)])
        found.check()
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"\xff")
    if beside:
        append_changes(path, [addition(100)])
    with pytest.raises(BundleError, match="was changed after it was loaded"):
        check_until_it_raises(found)


def check_until_it_raises(bundle):
    """What is appended to is used at once, and compared meanwhile."""
    while True:
        bundle.check()


def test_a_mapped_reader_does_not_wait_while_its_bundle_grows(path, monkeypatch):
    found = read_bundle(path, copied_up_to=0)
    found.check()
    held, verified = threading.Event(), []

    def wait(sealed):
        held.wait()
        verified.append(1)

    monkeypatch.setattr(iknow.storage.bundle, "verify_all", wait)
    for row in (100, 101, 102):
        append_changes(path, [addition(row)])
        found.check()
    assert not verified
    held.set()
    wait_until(lambda: bool(verified))


def test_saving_waits_for_a_writer_and_replaces_what_it_wrote(path):
    bundle = read_bundle(path)
    append_changes(path, [removal(3)])
    write_bundle(path, replace(bundle, check=None))
    assert isinstance(read_bundle(path), Bundle)
    assert not read_bundle(path).changes


# What a change says


def test_the_log_keeps_who_when_why_and_the_numbers():
    points = {"input": np.zeros((1, 2), np.float32)}
    add = Change("add", TIME, "Ada", "more", NONE, np.array([7]), np.array([2]), points, ("new",))
    logged = add.logged()
    assert (logged.ids.tolist(), logged.classes) == ([7], ("new",))
    assert not hasattr(logged, "points")
    assert logged.sentence() == f"1 sample added at {TIME} by 'Ada', because 'more'"
    remove = Change("remove", TIME, "", "", np.array([3, 9]), NONE, NONE, {})
    assert remove.logged().ids.tolist() == [3, 9]
    assert remove.logged().sentence() == f"2 samples removed at {TIME}"
    check_change(add)
    check_change(remove)


def test_words_are_bounded_and_shown_safely():
    spoof = Change("remove", TIME, "a\x1b[2Jb", "", np.array([3]), NONE, NONE, {})
    assert "\x1b" not in spoof.logged().sentence()
    for text in (None, 3, b"x", "x" * 2001):
        with pytest.raises(InputError, match="who must be text of at most 2000 characters"):
            check_said(text, "who")


@pytest.mark.parametrize("when", ["", "2026-11-01", "2026-11-01T12:00:00+01:00", TIME + "\n", 5])
def test_the_time_is_in_utc(when):
    with pytest.raises(InputError, match="must say when in UTC"):
        check_change(Change("remove", when, "", "", np.array([3]), NONE, NONE, {}))
