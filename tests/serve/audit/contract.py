"""The contract of a journal, as tests to inherit.

A backend is tested by a class with the fixture `where`, the name of a new journal, and with ways
to change what is stored behind its back.
"""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from iknow.errors import AuditError
from iknow.serve.audit import (
    Event,
    Label,
    NotedHead,
    Retention,
    as_time,
    now,
    open_journal,
    verify,
)
from iknow.serve.audit.records import Chain, encode
from iknow.serve.audit.tables import COLUMNS
from tests.serve.audit.records import make_answer, make_records

KEY = b"0123456789abcdef"
STRANGE = ["", "é", "a\0b", "\ud800", "'; DROP TABLE x; --", '"\\\n', "x" * 10_000, "?%s%b"]


class JournalContract:
    """What every journal keeps."""

    @pytest.fixture
    def where(self):
        """The name of a journal that does not exist yet."""
        raise NotImplementedError

    def change(self, where, statement, *parameters):
        """Run SQL on what is stored, as an intruder would; parameters are marked by ?."""
        raise NotImplementedError

    def insert(self, where, row):
        marks = ", ".join("?" * len(row))
        self.change(where, f"INSERT INTO iknow_audit_records ({COLUMNS}) VALUES ({marks})", *row)

    @pytest.fixture
    def journal(self, where):
        with open_journal(where) as journal:
            yield journal

    def test_what_is_appended_comes_back_in_order(self, journal):
        records = make_records(30, keep=True)
        journal.append(records[:7])
        journal.append([])
        journal.append(records[7:])
        assert list(journal.records()) == list(enumerate(records, start=1))
        assert [seq for seq, _ in journal.records(after=30)] == [31, 32]
        assert journal.head()[0] == len(records)

    def test_a_new_journal_is_empty_and_holds(self, journal):
        assert list(journal.records()) == []
        assert journal.find("r", 0) is None
        seq, head = journal.head()
        assert seq == 0
        assert len(bytes.fromhex(head)) == 32
        assert verify(journal).holds

    def test_no_two_journals_begin_alike(self, journal, other_where):
        with open_journal(other_where) as other:
            assert other.head() != journal.head()

    def test_a_label_is_known_once_it_came(self, journal):
        journal.append([make_answer(0), make_answer(1)])
        before = journal.labelled("r", 1)
        journal.append([Label(now(), "r", 1, "me", "7")])
        assert (before, journal.labelled("r", 1), journal.labelled("r", 0)) == (False, True, False)

    def test_an_answer_is_found_and_the_last_one_if_its_name_was_used_again(self, journal):
        journal.append(make_records(5, "one") + make_records(5, "two"))
        assert journal.find("two", 3) == make_answer(3, "two")
        assert journal.find("two", 5) is None
        journal.append([make_answer(3, "two", belief="9")])
        assert journal.find("two", 3).belief == "9"

    def test_rows_that_no_journal_holds_are_not_found(self, journal):
        for row in (-1, 2**63, 10**30):
            assert journal.find("r", row) is None
            assert not journal.labelled("r", row)

    @pytest.mark.parametrize("text", STRANGE)
    def test_any_text_comes_back_and_is_found(self, journal, text):
        answer = make_answer(1, text, caller=text, model=text, belief=text, exemplars={text: 1})
        event = Event(now(), text, text, {text: [text]})
        journal.append([answer, event])
        assert [record for _, record in journal.records()] == [answer, event]
        assert journal.find(text, 1) == answer
        assert verify(journal).holds

    def test_a_closed_journal_opens_again_and_goes_on(self, where):
        with open_journal(where) as journal:
            journal.append(make_records(5))
            head = journal.head()
        with open_journal(where) as journal:
            assert journal.head() == head
            journal.append(make_records(5, "later"))
            found = verify(journal, heads=[NotedHead.from_text(f"{head[0]}:{head[1]}")])
            assert (found.holds, found.n_records) == (True, 14)
            journal.close()
        with pytest.raises(AuditError, match="closed"):
            journal.append(make_records(1))
        with pytest.raises(AuditError, match="closed"):
            journal.find("r", 0)

    def test_one_process_writes_and_others_read(self, journal, where):
        with pytest.raises(AuditError, match="open for writing elsewhere"):
            open_journal(where)
        with open_journal(where, readonly=True) as reader:
            journal.append(make_records(3))
            assert len(list(reader.records())) == 5
            assert verify(reader).holds
            with pytest.raises(AuditError, match="for reading"):
                reader.append(make_records(1))
        journal.append(make_records(3))  # the one that was refused took nothing away

    def test_a_journal_to_read_must_exist(self, where):
        with pytest.raises(AuditError, match="no journal"):
            open_journal(where, readonly=True)

    @pytest.mark.parametrize(
        "record",
        [
            None,
            make_answer(caller=None),
            make_answer(request=5),
            make_answer(level=float("nan")),
            make_answer(exemplars={"a": "b"}),
            make_answer(input="text"),
            Event(now(), "x", "", {"a": object()}),
            Event(now(), "x", "", {"a": float("inf")}),
        ],
    )
    def test_what_cannot_be_recorded_changes_nothing(self, journal, record):
        journal.append(make_records(2))
        with pytest.raises(AuditError):
            journal.append([make_answer(1), record])
        assert journal.head()[0] == 4
        journal.append(make_records(2))
        assert verify(journal).holds

    def test_threads_share_a_journal(self, journal):
        def work(name):
            for i in range(5):
                journal.append([make_answer(i, name), make_answer(i + 1, name)])
                assert journal.find(name, i) is not None

        threads = [threading.Thread(target=work, args=(str(i),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (verify(journal).holds, journal.head()[0]) == (True, 40)

    # The chain.

    @pytest.mark.parametrize(
        ("statement", "told"),
        [
            ("UPDATE iknow_audit_records SET body = ? WHERE seq = 3", "record 3: it was changed"),
            ("UPDATE iknow_audit_records SET input = ? WHERE seq = 3", "record 3: it was changed"),
            ("UPDATE iknow_audit_records SET input = NULL WHERE seq = 3", "record 3: it was chan"),
            ("UPDATE iknow_audit_records SET hash = ? WHERE seq = 3", "record 3: it was changed"),
            ("UPDATE iknow_audit_records SET time = '2020' WHERE seq = 3", "columns were changed"),
            ("UPDATE iknow_audit_records SET request = 'z' WHERE seq = 3", "columns were changed"),
            ("UPDATE iknow_audit_records SET kind = 'x' WHERE seq = 3", "columns were changed"),
            ("DELETE FROM iknow_audit_records WHERE seq = 3", "missing: 3 to 3"),
            ("DELETE FROM iknow_audit_records WHERE seq IN (3, 4)", "missing: 3 to 4"),
            ("DELETE FROM iknow_audit_records WHERE seq > 7", "ends with record 7"),
            ("DELETE FROM iknow_audit_records WHERE seq < 3", "missing: 1 to 2"),
            ("UPDATE iknow_audit_state SET seal = ?", "note of its head was changed"),
            ("UPDATE iknow_audit_state SET cut_hash = ?", "begin with the journal's genesis"),
        ],
    )
    def test_a_change_is_seen(self, where, statement, told):
        with open_journal(where, key=KEY) as journal:
            journal.append(make_records(8, keep=True))
        self.change(where, statement, *[b"\x00" * 32] * statement.count("?"))
        with open_journal(where, key=KEY, readonly=True) as journal:
            found = verify(journal)
        assert not found.holds
        assert told in " / ".join(found.problems), found.problems

    def test_records_that_changed_places_are_named(self, where):
        with open_journal(where) as journal:
            journal.append(make_records(8))
        for one, other in ((2, -1), (7, 2), (-1, 7)):
            self.change(where, "UPDATE iknow_audit_records SET seq = ? WHERE seq = ?", other, one)
        with open_journal(where, readonly=True) as journal:
            problems = verify(journal).problems
        assert any("record 2: it" in problem for problem in problems)
        assert any("record 7: it" in problem for problem in problems)

    @pytest.mark.parametrize("seq", [0, -1, -(2**63), 11, 2**63 - 1])
    def test_a_row_beside_the_chain_is_seen_and_never_read(self, where, seq):
        """Put in by somebody who lacks the key, as there is room before the chain and behind it."""
        with open_journal(where, key=KEY) as journal:
            journal.append(make_records(8))
            row = next(journal.pages()).rows[0]
        forged = encode(make_answer(0, "forged"))
        self.insert(where, row._replace(seq=seq, request="forged", body=forged.body))
        with open_journal(where, readonly=True) as journal:
            assert [number for number, _ in journal.records()] == list(range(1, 11))
            assert [number for number, _ in journal.records(after=-5)] == list(range(1, 11))
            assert list(journal.events()) == [r for _, r in journal.records() if type(r) is Event]
            assert len(list(journal.records(since="2000"))) == 10
            assert journal.find("forged", 0) is None
            assert not journal.labelled("forged", 0)
        with open_journal(where, key=KEY, readonly=True) as journal:
            found = verify(journal)
            told = f"record {seq}: it is no part of the chain, which goes from 1 to 10"
            assert (found.problems, found.n_records) == ((told,), 10)

    def test_a_row_that_moved_out_of_the_chain_is_missed_there(self, where):
        with open_journal(where, key=KEY) as journal:
            journal.append(make_records(8))
        self.change(where, "UPDATE iknow_audit_records SET seq = -1 WHERE seq = 3")
        with open_journal(where, key=KEY, readonly=True) as journal:
            assert verify(journal).problems == (
                "record -1: it is no part of the chain, which goes from 1 to 10",
                "record 4: the records before it are missing: 3 to 3",
            )

    def test_a_reader_that_misses_a_row_is_told(self, where):
        """As an index would that lacks an entry: what is counted is not what is read."""
        with open_journal(where, key=KEY) as journal:
            journal.append(make_records(8))
            journal.survey = lambda: (next(journal.pages()).state, 11, [])
            assert verify(journal).problems == ("its table has 11 rows, and its chain 10",)

    def test_an_answer_that_was_changed_is_not_found(self, where):
        with open_journal(where, key=KEY) as journal:
            journal.append(make_records(8))
        forged = encode(make_answer(2, belief="9")).body
        self.change(where, "UPDATE iknow_audit_records SET body = ? WHERE seq = 3", forged)
        with open_journal(where, key=KEY) as journal:
            with pytest.raises(AuditError, match=r"record 3 of .* was changed"):
                journal.find("r", 2)
            assert journal.find("r", 1) == make_answer(1)

    def test_a_record_that_is_not_written_as_records_are_is_seen(self, where):
        """Two keys of one name, or another order: readers could disagree about what it says."""
        with open_journal(where) as journal:
            journal.append([make_answer(), make_answer(1)])
            state, (row, _) = next(journal.pages())
            body = row.body.replace(b'"reason"', b'"reason":"X","reason"')
            last = journal.chain.next(state.genesis, body, None)
        self.change(where, "DELETE FROM iknow_audit_records WHERE seq > 1")
        self.change(
            where, "UPDATE iknow_audit_records SET body = ?, hash = ? WHERE seq = 1", body, last
        )
        seal = Chain().seal(1, last)
        self.change(
            where, "UPDATE iknow_audit_state SET head_seq = 1, head_hash = ?, seal = ?", last, seal
        )
        with open_journal(where, readonly=True) as journal:
            assert verify(journal).problems == ("record 1: it is not written as a record is",)

    def test_exchanged_contents_are_named(self, where):
        with open_journal(where) as journal:
            journal.append(make_records(8))
            bodies = {row.seq: row.body for row in next(journal.pages()).rows}
        for one, other in ((2, 7), (7, 2)):
            self.change(
                where, "UPDATE iknow_audit_records SET body = ? WHERE seq = ?", bodies[other], one
            )
        with open_journal(where, readonly=True) as journal:
            problems = verify(journal).problems
        for seq in (2, 7):
            assert f"record {seq}: it was changed, or the one before it was" in problems

    def test_a_removed_end_is_seen_by_a_head_that_was_noted(self, where):
        """Somebody who can compute hashes, as there is no key, and so makes a sound journal."""
        with open_journal(where) as journal:
            journal.append(make_records(8))
            head = journal.head()
            rows = next(journal.pages()).rows
            seal = journal.chain.seal(6, rows[5].hash)
        self.change(where, "DELETE FROM iknow_audit_records WHERE seq > 6")
        self.change(
            where, "UPDATE iknow_audit_state SET head_seq = 6, head_hash = ?, seal = ?",
            rows[5].hash, seal,
        )  # fmt: skip
        with open_journal(where) as journal:
            assert verify(journal).holds
            noted = NotedHead(head[0], bytes.fromhex(head[1]))
            assert verify(journal, heads=[noted]).problems == (
                "record 10, a head that was noted, is missing",
            )
            journal.append(make_records(8))
            (problem,) = verify(journal, heads=[noted]).problems
            assert problem == "record 10: its hash is not that of the head that was noted"

    def test_with_a_key_nobody_else_can_compute_the_end(self, where):
        with open_journal(where, key=KEY) as journal:
            journal.append(make_records(8))
            rows = next(journal.pages()).rows
        self.change(where, "DELETE FROM iknow_audit_records WHERE seq > 6")
        self.change(
            where, "UPDATE iknow_audit_state SET head_seq = 6, head_hash = ?, seal = ?",
            rows[5].hash, Chain().seal(6, rows[5].hash),
        )  # fmt: skip
        with open_journal(where, key=KEY) as journal:
            assert verify(journal).problems == ("the journal's note of its head was changed",)

    def test_a_journal_opens_with_its_own_key_alone(self, where, monkeypatch, tmp_path):
        open_journal(where, key=KEY).close()
        with pytest.raises(AuditError, match="another key"):
            open_journal(where, key=KEY[::-1])
        with pytest.raises(AuditError, match="made with a key: set IKNOW_AUDIT_KEY"):
            open_journal(where)
        with open_journal(where, readonly=True) as journal:  # everybody may read it
            assert journal.head()[0] == 0
            with pytest.raises(AuditError, match="made with a key: set IKNOW_AUDIT_KEY"):
                verify(journal)
        (tmp_path / "key").write_bytes(KEY + b"\n")
        monkeypatch.setenv("IKNOW_AUDIT_KEY_FILE", str(tmp_path / "key"))
        open_journal(where).close()

    def test_a_key_is_not_taken_by_a_journal_without_one(self, where):
        open_journal(where).close()
        with pytest.raises(AuditError, match="without a key"):
            open_journal(where, key=KEY)

    def test_a_journal_that_is_replaced_while_it_is_open_takes_nothing_more(self, where):
        with open_journal(where) as journal:
            journal.append(make_records(3))
            self.change(where, "DELETE FROM iknow_audit_records")
            self.change(
                where, "UPDATE iknow_audit_state SET genesis = ?, cut_seq = 0, head_seq = 0", b"x"
            )
            with pytest.raises(AuditError, match="replaced"):
                journal.append(make_records(3))

    def test_a_newer_version_is_refused(self, where):
        open_journal(where).close()
        self.change(where, "UPDATE iknow_audit_state SET version = 2")
        with pytest.raises(AuditError, match="version 2"):
            open_journal(where)

    @pytest.mark.parametrize(
        "statement",
        [
            "DELETE FROM iknow_audit_state",
            "DROP TABLE iknow_audit_records",
            "DELETE FROM iknow_audit_records WHERE seq > 2",
        ],
    )
    def test_a_damaged_journal_is_refused(self, where, statement):
        with open_journal(where) as journal:
            journal.append(make_records(3))
        self.change(where, statement)
        with pytest.raises(AuditError):
            open_journal(where)

    # Retention.

    def test_old_records_go_and_the_rest_still_holds(self, where):
        today = datetime.now(UTC)
        old, recent = as_time(today - timedelta(days=9)), as_time(today)
        with open_journal(where, Retention(max_age=timedelta(days=7))) as journal:
            journal.append([make_answer(i, "old", time=old) for i in range(2500)])
            journal.append([make_answer(i, "new", time=recent) for i in range(10)])
            head = journal.head()
            assert [journal.prune() for _ in range(4)] == [True, True, False, False]
            records = dict(journal.records())
            assert list(records) == list(range(2501, 2514))
            assert {r.what for r in records.values() if isinstance(r, Event)} == {"pruned"}
            assert journal.find("old", 2499) is None
            assert verify(journal, heads=[NotedHead(head[0], bytes.fromhex(head[1]))]).holds
            journal.append([make_answer(1, "new")])
            assert verify(journal).first == 2501

    def test_a_journal_stays_below_its_size(self, where):
        with open_journal(where, Retention(max_bytes=1 << 20)) as journal:
            for i in range(9):
                journal.append(make_records(300, str(i), keep=True))
                while journal.prune():
                    pass
            n_records = len(list(journal.records()))
            assert 400 < n_records < 2400
            assert journal.find("8", 3) is not None
            assert journal.find("0", 3) is None
            assert verify(journal).holds

    def test_pruning_ends_when_nothing_but_its_own_events_is_left(self, where):
        old = as_time(datetime.now(UTC) - timedelta(days=9))
        with open_journal(where, Retention(max_age=timedelta(microseconds=1))) as journal:
            journal.append([make_answer(time=old)])
            for _ in range(5):
                journal.prune()
            assert journal.head()[0] == 2

    def test_a_beginning_that_was_not_pruned_is_missed(self, where):
        with open_journal(where) as journal:
            journal.append(make_records(8))
            hashes = {row.seq: row.hash for row in next(journal.pages()).rows}
        self.change(where, "DELETE FROM iknow_audit_records WHERE seq <= 3")
        self.change(where, "UPDATE iknow_audit_state SET cut_seq = 3, cut_hash = ?", hashes[3])
        with open_journal(where, readonly=True) as journal:
            (problem,) = verify(journal).problems
        assert problem.startswith("records up to 3 are missing, and nothing in the chain says")

    def test_pruning_while_somebody_verifies(self, where):
        """The reader is in the middle when the rows that it would read next disappear."""
        old = as_time(datetime.now(UTC) - timedelta(days=9))
        with open_journal(where, Retention(max_age=timedelta(days=7))) as journal:
            journal.append([make_answer(i, time=old) for i in range(3000)])
            journal.append(make_records(10, time=as_time(datetime.now(UTC))))
            with open_journal(where, readonly=True) as reader:
                found = verify(reader, told=lambda _: journal.prune() and journal.prune())
        assert found.problems == ()

    def test_records_are_read_by_time_and_kind(self, journal):
        journal.append([make_answer(i, seconds=i) for i in range(20)])
        since = make_answer(seconds=7).time
        journal.append([Event(since, "x"), make_answer(seconds=3)])
        assert [seq for seq, _ in journal.records(since=since)] == list(range(8, 22))
        assert [seq for seq, _ in journal.records(kind="event", since=since)] == [21]
        assert list(journal.records(since="2100-01-01T00:00:00.000000Z")) == []
