"""The journal in PostgreSQL, by a real server, beyond the contract."""

import signal
from contextlib import contextmanager

import pytest

from iknow.errors import AuditError
from iknow.serve.audit import AuditWriter, open_journal, verify
from iknow.serve.audit.databases import NOT_SHOWN, hide_secrets
from tests.serve.audit.contract import JournalContract
from tests.serve.audit.records import make_records
from tests.serve.audit.server import PASSWORD, QUOTED

pytest.importorskip("psycopg")


@pytest.fixture
def where(new_schema, monkeypatch):
    monkeypatch.setattr("iknow.serve.audit.databases.WAITING", 1)
    return new_schema()


@pytest.fixture
def other_where(new_schema):
    return new_schema()


@pytest.mark.slow
class TestPostgres(JournalContract):
    @pytest.fixture
    def where(self, new_schema, monkeypatch):
        monkeypatch.setattr("iknow.serve.audit.databases.WAITING", 1)
        return new_schema()

    def change(self, where, statement, *parameters):
        import psycopg

        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(statement.replace("?", "%s"), parameters)


TABLE = "iknow_audit_records"


@pytest.mark.slow
@pytest.mark.parametrize(
    "statements",
    [
        [f"ALTER TABLE {TABLE} ADD COLUMN note TEXT"],
        [f"ALTER TABLE {TABLE} ALTER COLUMN input SET DEFAULT 'x'"],
        [f"ALTER TABLE {TABLE} ALTER COLUMN kind DROP NOT NULL"],
        [f"ALTER TABLE {TABLE} DROP CONSTRAINT {TABLE}_pkey"],
        [f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY"],
        [f"ALTER TABLE {TABLE} RENAME TO hidden", f"CREATE VIEW {TABLE} AS SELECT * FROM hidden"],
        [f"CREATE TABLE child () INHERITS ({TABLE})"],
        [f"CREATE RULE r AS ON DELETE TO {TABLE} DO INSTEAD NOTHING"],
        [
            "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            "CREATE TRIGGER t BEFORE INSERT ON iknow_audit_state EXECUTE FUNCTION f()",
        ],
    ],
)
def test_a_table_that_is_not_a_journals_is_told_and_takes_nothing_more(where, statements):
    import psycopg

    with open_journal(where) as journal:
        journal.append(make_records(4))
        assert verify(journal).holds
    with psycopg.connect(where, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)
    with open_journal(where, readonly=True) as journal:
        (problem,) = verify(journal).problems
    assert problem.endswith("is not a plain table as a journal has it")
    with pytest.raises(AuditError, match="is damaged: its table"):
        open_journal(where)


@pytest.mark.slow
def test_other_tables_of_a_database_are_not_ours(where):
    import psycopg

    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("CREATE TABLE mine (x int)")
    with open_journal(where) as journal:
        journal.append(make_records(4))
        assert verify(journal).holds


@pytest.mark.slow
def test_commits_are_durable(where, server):
    import psycopg

    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("ALTER ROLE iknow SET synchronous_commit = off")
        try:
            with open_journal(where) as journal:
                shown = journal._writer.execute("SHOW synchronous_commit").fetchone()
        finally:
            connection.execute("ALTER ROLE iknow RESET synchronous_commit")
    assert shown == ("on",)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL])
def test_a_server_that_goes_away_and_comes_back(where, server, how):
    with open_journal(where) as journal, AuditWriter(journal) as writer:
        writer.submit(make_records(3, "before")).result()
        server.stop(how)
        try:
            failed = writer.submit(make_records(3, "meanwhile"))
            with pytest.raises(AuditError, match="cannot be written") as error:
                failed.result()
            assert PASSWORD not in str(error.value)
            with pytest.raises(AuditError, match="cannot be read"):
                journal.find("before", 0)
        finally:
            server.start()
        writer.submit(make_records(3, "after")).result()
        assert journal.find("before", 0) is not None
        assert journal.find("meanwhile", 0) is None
        assert (verify(journal).problems, journal.head()[0]) == ((), 10)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_lost_acknowledgement_neither_loses_nor_doubles(where, server, moment):
    """The connection is cut right before or right after the server commits."""
    import psycopg

    def cut(connection):
        with psycopg.connect(where, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))

    with open_journal(where) as journal:
        journal.append(make_records(3, "first"))
        inner = journal._transaction

        @contextmanager
        def transaction(connection):
            journal._transaction = inner
            with inner(connection):
                yield
                if moment == "before":
                    cut(connection)
            cut(connection)
            connection.execute("SELECT 1")  # finds out

        journal._transaction = transaction
        journal.append(make_records(3, "second"))
        requests = [getattr(record, "request", "") for _, record in journal.records()]
        assert requests.count("second") == 4
        assert (verify(journal).problems, journal.head()[0]) == ((), 10)


@pytest.mark.slow
def test_our_own_former_connection_is_ended(where, server):
    """If the network hides our end, the server believes in the old connection and its lock."""
    with open_journal(where) as journal:
        journal.append(make_records(3))
        lost, journal._writer = journal._writer, None
        journal.append(make_records(3))
        assert (verify(journal).problems, journal.head()[0]) == ((), 10)
        lost.close()


@pytest.mark.slow
def test_a_server_that_cannot_keep_its_word_is_refused(where, server):
    with server.connect() as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
    try:
        with pytest.raises(AuditError, match="fsync = off"):
            open_journal(where)
    finally:
        with server.connect() as connection:
            connection.execute("ALTER SYSTEM RESET fsync")
            connection.execute("SELECT pg_reload_conf()")


@pytest.mark.slow
def test_wrong_passwords_and_absent_databases_are_told(server):
    with pytest.raises(AuditError, match="password authentication failed") as error:
        open_journal(server.url(password="s3cr3t-and-wrong"))
    assert "s3cr3t" not in repr(error.value)
    with pytest.raises(AuditError, match="does not exist"):
        open_journal(server.url("absent"))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cr3t@127.0.0.1:1/db",
        "postgresql://me:s3cr3t@127.0.0.1:port/db",
        "postgresql://me:s3cr3t@s3cr3t@127.0.0.1:1/db",
        "postgresql://me:s3cr3t%zz@127.0.0.1:1/db",
        "postgresql://me@127.0.0.1:1/db?password=s3cr3t&oops=1",
        "postgresql://me@127.0.0.1:1/db?password=s3cr3t",
        "postgres://me:/s3cr3t@127.0.0.1:1/db",
        "postgresql://me:s3cr3t@[::1/db",
        "postgresql://me:s3cr3t@127.0.0.1:1/\ud800",
    ],
)
def test_no_message_holds_a_password(url):
    with pytest.raises(AuditError) as error:
        open_journal(url)
    assert "s3cr3t" not in repr(error.value)
    assert error.value.__cause__ is None
    assert error.value.__context__ is None or error.value.__suppress_context__


def test_a_message_that_quotes_a_password_is_not_shown():
    url = f"postgresql://me:{QUOTED}@host/db"
    assert hide_secrets("no host", url, {}) == "no host"
    assert hide_secrets(f"no host {PASSWORD}", url, {}) == NOT_SHOWN
    assert hide_secrets(f"no host {QUOTED}", url, {}) == NOT_SHOWN
    assert hide_secrets("no host secret@host", "postgresql://me:a@secret@host/db", {}) == NOT_SHOWN
    assert hide_secrets("no pw1 here", "postgresql://me@host/db", {"password": "pw1"}) == NOT_SHOWN
