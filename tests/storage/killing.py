"""A program that kills writers of a bundle, again and again: killing.py BUNDLE TURNS.

Each writer changes and compacts without end, and acknowledges each change through a pipe. At a
random moment it is killed. Then every change that it acknowledged must be there, and at most the
one that it had no time to acknowledge. Prints a JSON object of what happened. A machine may be too
quick or too busy for enough of the moments that matter: then there are up to `MOST` times as many.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from iknow.storage.bundle import append_changes, compact_bundle, read_bundle
from iknow.storage.changes import fold_changes
from tests.storage.changing import rows_after, step

MOST, ENOUGH = 10, 5


def work(path, first, acknowledge):
    """Change and compact without end, and say so each time; never returns."""
    try:
        os.write(acknowledge, (first - 1).to_bytes(4, "little", signed=True))
        number = first
        while True:
            append_changes(path, [step(number)])
            os.write(acknowledge, number.to_bytes(4, "little", signed=True))
            number += 1
            if number % 5 == 0:
                compact_bundle(path)
    finally:
        os._exit(1)


def kill_a_writer(path, first, chance, took):
    """Run a writer and kill it after a few changes; return the number that it acknowledged last.

    It is killed some moments after it acknowledged a change, up to the time that the next one took
    lately: `took[1]` if a compaction comes before it, as for every fourth writer, `took[0]` if not.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        work(path, first, write)
    os.close(write)
    least, in_compaction = chance.randint(2, 4), chance.random() < 0.25
    said, start, n_read, number = b"", time.perf_counter(), 0, first
    while n_read < least or (in_compaction and (number + 1) % 5):
        said, before, start = os.read(read, 4), start, time.perf_counter()
        number, n_read = int.from_bytes(said, "little", signed=True), n_read + 1
        if n_read > 2:  # by then nothing starts any more
            took[number % 5 == 0] = start - before
    time.sleep(chance.uniform(0.0, 1.2) * took[(number + 1) % 5 == 0])
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    while part := os.read(read, 1 << 16):
        said += part
    os.close(read)
    assert os.WIFSIGNALED(status), "the writer failed by itself"
    return int.from_bytes(said[-4:], "little", signed=True)


def main(path, turns):
    chance, last, took = random.Random(0), -1, [0.01, 0.01]
    counts = {"changes": 0, "torn": 0, "temporary": 0, "unsaid": 0}
    for turn in range(MOST * turns):
        if turn >= turns and min(counts["torn"], counts["temporary"]) > ENOUGH:
            break
        acknowledged = kill_a_writer(path, last + 1, chance, took)
        found = read_bundle(path, verify="now")
        folded = fold_changes(found)
        last = len(folded.log) - 1
        assert last in (acknowledged, acknowledged + 1), (last, acknowledged)
        assert set(folded.rows.tolist()) == rows_after(last)
        counts["torn"] += found.n_torn > 0
        counts["temporary"] += len(os.listdir(path.parent)) > 1
        counts["unsaid"] += last > acknowledged
    print(json.dumps(counts | {"changes": last + 1}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
