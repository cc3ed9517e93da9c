"""The journal in a file, beyond the contract."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from contextlib import contextmanager

import pytest

from iknow.errors import AuditError
from iknow.serve.audit import databases, open_journal, verify
from tests.serve.audit.contract import JournalContract
from tests.serve.audit.records import make_answer, make_records


class TestSqlite(JournalContract):
    @pytest.fixture
    def where(self, tmp_path):
        return str(tmp_path / "audit #1%.db")

    @pytest.fixture
    def other_where(self, tmp_path):
        return str(tmp_path / "other.db")

    def change(self, where, statement, *parameters):
        with sqlite3.connect(where) as connection:
            connection.execute(statement, parameters)
        connection.close()


@pytest.fixture
def where(tmp_path):
    return str(tmp_path / "audit.db")


def test_commits_are_durable(where):
    with open_journal(where) as journal:
        journal.append(make_records(1))
        assert journal._writer.execute("PRAGMA synchronous").fetchone() == (2,)
        assert journal._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert stat.S_IMODE(os.stat(where).st_mode) == 0o600


def test_a_full_disk_fails_the_append_and_nothing_else(where):
    with open_journal(where) as journal:
        journal.append(make_records(10))
        pages = journal._writer.execute("PRAGMA page_count").fetchone()[0]
        journal._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(AuditError, match="full: make room"):
            journal.append(make_records(200, "too much", keep=True))
        assert journal.find("too much", 0) is None
        assert (verify(journal).holds, journal.head()[0]) == (True, 12)
        journal.append(make_records(200, "now it fits", keep=True))
        assert (verify(journal).holds, journal.head()[0]) == (True, 214)


FULL = """
import resource, signal, sys
from iknow.serve.audit import open_journal, verify
from iknow.errors import AuditError
from tests.serve.audit.records import make_records
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
with open_journal(sys.argv[1]) as journal:
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, most))
    written = 0
    try:
        while True:
            journal.append(make_records(20, str(written), keep=True))
            written += 22
    except AuditError as error:
        print(error, file=sys.stderr)
    assert verify(journal).holds
    assert journal.head()[0] == written > 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    journal.append(make_records(20))
    assert verify(journal).holds
    assert journal.head()[0] == written + 22
"""


@pytest.mark.slow
def test_a_limit_of_the_system_fails_the_append_and_nothing_else(where):
    done = subprocess.run(
        [sys.executable, "-c", FULL, where], capture_output=True, text=True, check=True
    )
    assert "cannot be written" in done.stderr
    with open_journal(where) as journal:
        assert verify(journal).holds


@pytest.mark.parametrize("ending", ["", "-wal"])
def test_a_journal_that_is_removed_while_it_is_open_acknowledges_nothing(where, ending):
    with open_journal(where) as journal:
        journal.append(make_records(2))
        os.unlink(where + ending)
        with pytest.raises(AuditError, match="removed or replaced"):
            journal.append(make_records(2))
        if not ending:  # no new one is made in its place
            with pytest.raises(AuditError, match="cannot be written: unable to open"):
                journal.append(make_records(2))
            assert not os.path.exists(where)


def test_what_fails_after_a_commit_is_acknowledged_and_not_doubled(where, monkeypatch):
    """SQLite reports a failed checkpoint as an error of the commit that it follows."""
    inner = databases.transaction

    @contextmanager
    def failing(connection, kind):
        with inner(connection, kind):
            yield
        if kind == "IMMEDIATE" and not failed:
            failed.append(True)
            raise sqlite3.OperationalError("database or disk is full")

    failed = []
    with open_journal(where) as journal:
        monkeypatch.setattr(databases, "transaction", failing)
        journal.append(make_records(2))
        assert (journal.head()[0], failed) == (4, [True])
        assert verify(journal).holds


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"not a database, but text of some length" * 40, "not a database"),
        (b"SQLite format 3\0" + bytes(4000), "cannot be opened"),
    ],
)
def test_a_foreign_file_is_refused_and_stays_as_it_is(where, content, told):
    with open(where, "wb") as file:
        file.write(content)
    with pytest.raises(AuditError, match=told):
        open_journal(where)
    with open(where, "rb") as file:
        assert file.read() == content


def test_a_foreign_database_is_refused_and_stays_as_it_is(where):
    with sqlite3.connect(where) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    before = os.stat(where).st_size, os.stat(where).st_mtime_ns
    with pytest.raises(AuditError, match="another program"):
        open_journal(where)
    assert (os.stat(where).st_size, os.stat(where).st_mtime_ns) == before


def test_damaged_pages_are_told(where):
    with open_journal(where) as journal:
        journal.append(make_records(500))
    with open(where, "r+b") as file:
        file.seek(8 * 4096)
        file.write(b"\xff" * 4096 * 4)
    with open_journal(where, readonly=True) as journal, pytest.raises(AuditError, match="damaged"):
        verify(journal)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE iknow_audit_records SET body = 'text' WHERE seq = 3",
        "UPDATE iknow_audit_records SET hash = 5 WHERE seq = 3",
        "UPDATE iknow_audit_records SET place = x'00' WHERE seq = 3",
        "UPDATE iknow_audit_records SET input = 1.5 WHERE seq = 3",
    ],
)
def test_values_of_other_types_are_told(where, statement):
    """SQLite holds what it is given, whatever its column was declared as."""
    with open_journal(where) as journal:
        journal.append(make_records(4))
    with sqlite3.connect(where) as connection:
        connection.execute(statement)
    connection.close()
    with open_journal(where) as journal:
        assert (
            verify(journal).problems[0] == "record 3: it was changed: it has values of other types"
        )


def test_a_state_of_other_types_is_told(where):
    open_journal(where).close()
    with sqlite3.connect(where) as connection:
        connection.execute("UPDATE iknow_audit_state SET head_hash = 'text'")
    connection.close()
    with pytest.raises(AuditError, match="must have one row, of numbers and hashes"):
        open_journal(where, readonly=True)


def test_a_broken_chain_of_any_length_is_told_soon(where):
    with open_journal(where) as journal:
        journal.append(make_records(1000))
    with sqlite3.connect(where) as connection:
        connection.execute("UPDATE iknow_audit_records SET hash = x'00' WHERE seq < 1000")
    connection.close()
    with open_journal(where, readonly=True) as journal:
        found = verify(journal)
    assert found.n_problems == 1000
    assert [problem.split(":")[0] for problem in found.problems] == [
        f"record {i}" for i in range(1, 101)
    ]


def test_paths_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    for wrong, told in [
        (str(tmp_path), "is a folder"),
        (str(tmp_path / "none" / "a.db"), "no folder"),
        ("a\0b", "NUL"),
        ("", "a path or a URL"),
        (None, "a path or a URL"),
        ("mysql://me:secret@host/x", "begins with 'mysql'"),
        (str(tmp_path / ("x" * 300)), "cannot be opened"),
        (str(tmp_path / "file" / "a.db"), "no folder"),
        ("/dev/null", "no file"),
    ]:
        with pytest.raises(AuditError, match=told) as error:
            open_journal(wrong)
        assert "secret" not in str(error.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(AuditError, match="must be writable"):
        open_journal(str(tmp_path / "a.db"))


AS_NOBODY = """
import os, sys
from iknow.serve.audit import databases, open_journal, verify
from iknow.errors import AuditError
os.setgid(65534)
os.setuid(65534)
try:
    open_journal(sys.argv[1])
except AuditError as error:
    print(error)
with open_journal(sys.argv[1], readonly=True) as journal:
    print(verify(journal).n_records)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_a_journal_in_a_folder_that_cannot_be_written_can_be_read(where):
    with open_journal(where) as journal:
        journal.append(make_records(3))
    folder = tempfile.mkdtemp()
    try:
        copy = shutil.copy(where, folder)
        os.chmod(copy, 0o444)
        os.chmod(folder, 0o555)
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, copy], capture_output=True, text=True, check=True
        )
    finally:
        shutil.rmtree(folder)
    refused, count = done.stdout.strip().split("\n")
    assert "writable" in refused
    assert count == "5"


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("CREATE TABLE notes (x)", "table 'notes'"),
        ("CREATE VIEW notes AS SELECT 1", "view 'notes'"),
        ("ALTER TABLE iknow_audit_records ADD COLUMN note TEXT", "table 'iknow_audit_records'"),
        ("CREATE TRIGGER t AFTER INSERT ON iknow_audit_records BEGIN SELECT 1; END", "trigger 't'"),
        ("DROP INDEX iknow_audit_events", "index 'iknow_audit_events'"),
        (
            "ALTER TABLE iknow_audit_records RENAME TO hidden; "
            "CREATE VIEW iknow_audit_records AS SELECT * FROM hidden WHERE seq > 0",
            "view 'iknow_audit_records'",
        ),
    ],
)
def test_anything_else_in_the_file_is_told_and_takes_nothing_more(where, statement, what):
    with open_journal(where) as journal:
        journal.append(make_records(4))
    with sqlite3.connect(where) as connection:
        connection.executescript(statement)
    connection.close()
    with open_journal(where, readonly=True) as journal:
        problems = verify(journal).problems
    assert f"its {what} is not one that a journal has, is missing or was changed" in problems
    with pytest.raises(AuditError, match="is damaged: its"):
        open_journal(where)


def test_an_index_that_hides_rows_is_told(where):
    """It says something else than its table, so what is looked up may differ from what is there."""
    with open_journal(where) as journal:
        journal.append(make_records(4))
    with sqlite3.connect(where) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        found = "FROM sqlite_master WHERE name = 'iknow_audit_by_request'"
        (kept,) = connection.execute(f"SELECT * {found}").fetchall()
        connection.execute(f"DELETE {found}")
    connection.close()
    with sqlite3.connect(where) as connection:  # it does not know the index
        connection.execute("UPDATE iknow_audit_records SET request = 'hidden' WHERE seq = 1")
        connection.execute("UPDATE iknow_audit_records SET request = 'r' WHERE seq = 2")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", kept)
    connection.close()
    with open_journal(where, readonly=True) as journal:
        assert any("its file is damaged" in problem for problem in verify(journal).problems)


OPEN = """
import sys
from iknow.errors import AuditError
from iknow.serve.audit import open_journal
try:
    open_journal(sys.argv[1]).close()
    print("opened")
except AuditError as error:
    print(error)
"""


def open_elsewhere(path):
    """Open a journal in another process; what it says."""
    command = [sys.executable, "-c", OPEN, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(os.name == "nt", reason="files are not locked there")
def test_a_second_name_is_the_same_journal(where, tmp_path):
    with open_journal(where) as journal:
        journal.append(make_records(1))
        os.link(where, tmp_path / "second.db")
        with pytest.raises(AuditError, match="elsewhere"):
            open_journal(str(tmp_path / "second.db"))
        assert "elsewhere" in open_elsewhere(tmp_path / "second.db")
        assert not (tmp_path / "second.db-wal").exists()
        journal.append(make_records(1))
    for name in (where, str(tmp_path / "second.db")):
        with pytest.raises(AuditError, match=r"2 names \(hard links\)"):
            open_journal(name)
    os.unlink(tmp_path / "second.db")
    assert open_elsewhere(where) == "opened\n"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root mounts")
def test_a_mounted_file_is_the_same_journal(where, tmp_path):
    with open_journal(where) as journal:
        journal.append(make_records(1))
        other = tmp_path / "mounted.db"
        other.touch()
        if subprocess.run(["mount", "--bind", where, other], capture_output=True).returncode:
            pytest.skip("no file can be mounted here")
        try:
            assert "elsewhere" in open_elsewhere(other)
        finally:
            subprocess.run(["umount", "-l", other], check=True)


def test_a_refused_writer_leaves_the_locks_of_the_first(where):
    """Closing any descriptor of a file drops what SQLite has locked; others would remove its log.

    The last connection that closes a file removes its log, unless others hold a lock.
    """
    with open_journal(where) as journal:
        journal.append(make_records(1))
        with pytest.raises(AuditError, match="elsewhere"):
            open_journal(where)
        read = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT 1 FROM {}')"
        script = read.format("iknow_audit_state") + ".connection.close()"
        subprocess.run([sys.executable, "-c", script, where], check=True)
        assert os.path.exists(f"{where}-wal")
        journal.append(make_records(1))
        assert verify(journal).holds


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_does_not_keep_the_lock(where):
    with open_journal(where) as journal:
        journal.append(make_records(1))
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)  # until its parent has closed the pipe
            os._exit(0)
        os.close(read)
    try:
        assert open_elsewhere(where) == "opened\n"
    finally:
        os.close(write)
        os.waitpid(child, 0)


def test_a_link_is_the_same_journal(where, tmp_path):
    with open_journal(where) as journal:
        journal.append(make_records(1))
        (tmp_path / "link.db").symlink_to(where)
        with pytest.raises(AuditError, match="elsewhere"):
            open_journal(str(tmp_path / "link.db"))


def test_a_database_that_is_held_is_told(where, monkeypatch):
    monkeypatch.setattr("iknow.serve.audit.databases.PATIENCE", 0.01)
    with open_journal(where) as journal:
        other = sqlite3.connect(where, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        journal._drop_writer()  # the next one has no patience
        with pytest.raises(AuditError, match="another program holds it"):
            journal.append([make_answer()])
        other.execute("ROLLBACK")
        other.close()
        journal.append([make_answer()])
        assert journal.head()[0] == 1
