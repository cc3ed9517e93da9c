"""The writer: groups, futures, a bounded queue, and failures that pass."""

import threading
from datetime import timedelta

import pytest

from iknow.errors import AuditError
from iknow.serve.audit import AuditWriter, Retention, now, open_journal, verify
from iknow.serve.audit.records import encode
from tests.serve.audit.records import make_answer, make_records


class Slow:
    """A journal in memory that writes when it may, and fails when it is told to."""

    def __init__(self):
        self.groups, self.asked, self.may = [], threading.Semaphore(0), threading.Semaphore(0)
        self.errors = []

    def write(self, rows):
        self.asked.release()
        self.may.acquire()
        if self.errors:
            raise self.errors.pop()
        self.groups.append([row.request for row in rows])

    def prune(self):
        return False


def test_what_waits_is_written_together():
    journal = Slow()
    writer = AuditWriter(journal)
    futures = [writer.submit([make_answer(request="first")])]
    journal.asked.acquire()  # it writes the first
    futures += [writer.submit([make_answer(i, str(i))]) for i in range(50)]
    assert not any(future.done() for future in futures)
    journal.may.release(2)
    writer.close()
    assert journal.groups == [["first"], [str(i) for i in range(50)]]
    assert all(future.result() is None for future in futures)


def test_a_group_has_a_limit_and_requests_stay_whole(monkeypatch):
    monkeypatch.setattr("iknow.serve.audit.writer.GROUP", 10)
    journal = Slow()
    writer = AuditWriter(journal)
    for size in (1, 8, 1, 3, 40, 2):
        writer.submit([make_answer(i, str(size)) for i in range(size)])
    journal.may.release(10)
    writer.close()
    sizes = [len(group) for group in journal.groups]
    assert sum(sizes) == 55
    assert max(sizes) == 40
    assert sum(group.count("40") for group in journal.groups if "40" in group) == 40


@pytest.mark.parametrize(
    "error", [AuditError("the disk is full"), RuntimeError("odd"), MemoryError()]
)
def test_a_failure_fails_its_group_alone(error):
    journal = Slow()
    journal.errors = [error]
    with AuditWriter(journal) as writer:
        failed = writer.submit([make_answer(request="a")])
        journal.asked.acquire()
        later = writer.submit([make_answer(request="b")])
        journal.may.release(2)
        with pytest.raises(AuditError, match=str(error) or "MemoryError"):
            failed.result()
        assert later.result() is None
    assert journal.groups == [["b"]]


def test_the_queue_is_bounded(monkeypatch):
    size = sum(encode(each).size for each in make_records(8))
    monkeypatch.setattr("iknow.serve.audit.writer.MOST_BYTES", size)
    journal = Slow()
    writer = AuditWriter(journal)
    writer.submit([make_answer()])
    journal.asked.acquire()
    kept = [writer.submit(make_records(8))]
    with pytest.raises(AuditError, match=f"too much waits to be recorded: {size:,} bytes"):
        writer.submit([make_answer()]).result()
    journal.may.release(2)
    journal.asked.acquire()
    kept[0].result()
    kept.append(writer.submit([make_answer()]))
    journal.asked.acquire()
    large = make_answer(input=b"x" * 30_000)
    kept.append(writer.submit([large]))  # alone, it may be of any size
    with pytest.raises(AuditError, match="too much waits"):
        writer.submit([large]).result()
    journal.may.release(9)
    writer.close()
    assert all(future.result() is None for future in kept)


def test_what_cannot_be_recorded_fails_by_itself():
    journal = Slow()
    journal.may.release(9)
    with AuditWriter(journal) as writer:
        good = writer.submit([make_answer(request="a")])
        bad = writer.submit([make_answer(request="b"), None])
        assert good.result() is None
        with pytest.raises(AuditError, match="expected an Answer"):
            bad.result()
        assert writer.submit([]).result() is None


def test_a_future_cannot_be_cancelled_as_its_records_are_written_all_the_same():
    journal = Slow()
    writer = AuditWriter(journal)
    future = writer.submit([make_answer()])
    assert not future.cancel()
    journal.may.release()
    writer.close()
    assert future.result() is None


def test_closing_writes_what_waits_and_takes_nothing_more(tmp_path):
    with open_journal(str(tmp_path / "a.db")) as journal:
        writer = AuditWriter(journal)
        futures = [writer.submit([make_answer(i)]) for i in range(200)]
        writer.close()
        writer.close()
        assert all(future.done() and future.result() is None for future in futures)
        with pytest.raises(AuditError, match="closed"):
            writer.submit([make_answer()]).result()
        assert journal.head()[0] == 200


def test_threads_record_and_it_recovers_by_itself(tmp_path):
    """A disk that is full for a while fails some; what was acknowledged is there, once."""
    acknowledged, failed = [], []
    with open_journal(str(tmp_path / "a.db")) as journal, AuditWriter(journal) as writer:

        def work(name):
            for i in range(40):
                request = f"{name}-{i}"
                try:
                    writer.submit([make_answer(0, request), make_answer(1, request)]).result()
                    acknowledged.append(request)
                except AuditError:
                    failed.append(request)
                if request == "2-10":
                    pages = journal._writer.execute("PRAGMA page_count").fetchone()[0]
                    journal._writer.execute(f"PRAGMA max_page_count = {pages}")

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert verify(journal).holds
        stored = [record.request for _, record in journal.records()]
    assert sorted(stored) == sorted(2 * acknowledged)
    assert len(acknowledged) + len(failed) == 160
    assert failed


def test_old_records_go_while_new_ones_come(tmp_path, monkeypatch):
    monkeypatch.setattr("iknow.serve.audit.writer.PRUNE_RECORDS", 100)
    retention = Retention(max_age=timedelta(microseconds=1))
    with open_journal(str(tmp_path / "a.db"), retention) as journal:
        with AuditWriter(journal) as writer:
            for i in range(20):
                time = now()
                rows = [make_answer(j, str(i), time=time) for j in range(50)]
                writer.submit(rows).result()
        assert journal.find("0", 0) is None
        found = verify(journal)
    assert found.holds
    assert found.n_records < 250


def test_pruning_that_fails_does_not_stop_the_records(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("iknow.serve.audit.writer.PRUNE_RECORDS", 1)
    with open_journal(str(tmp_path / "a.db")) as journal:

        def fail():
            raise AuditError("no")

        journal.prune = fail
        with AuditWriter(journal) as writer:
            writer.submit([make_answer()]).result()
            writer.submit([make_answer()]).result()
        assert journal.head()[0] == 2
    assert "could not be removed: no" in caplog.text
