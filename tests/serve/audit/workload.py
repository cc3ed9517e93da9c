"""What a child does until it is killed: record, from several threads, and say what is acknowledged.

It imports the audit trail and nothing else of iknow's rooms.
"""

import threading
from datetime import timedelta

from iknow.errors import AuditError
from iknow.serve.audit import AuditWriter, Retention, now, open_journal
from tests.serve.audit.crashing import FAILURE
from tests.serve.audit.records import make_answer

THREADS = 4


def record_forever(say, where, name, retention=""):
    """Record requests of one to five rows; say `REQUEST ROWS` for each that is acknowledged."""
    kept = Retention(max_age=timedelta(seconds=float(retention))) if retention else None
    with open_journal(where, kept) as journal, AuditWriter(journal) as writer:

        def work(thread):
            for i in range(1_000_000):
                request, n_rows = f"{name}-{thread}-{i}", 1 + (i + thread) % 5
                time = now()
                rows = [make_answer(j, request, time=time, keep=j == 0) for j in range(n_rows)]
                try:
                    writer.submit(rows).result()
                    say(f"{request} {n_rows}")
                except AuditError as error:
                    say(f"{FAILURE}{error}")

        def prune():
            while kept:
                journal.prune()

        threading.Thread(target=prune, daemon=True).start()
        threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
