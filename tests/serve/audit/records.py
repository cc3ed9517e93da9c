"""Records for tests."""

from datetime import UTC, datetime, timedelta

import numpy as np

from iknow.serve.audit import Answer, Event, Label, as_time, encode_inputs, hash_input

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
ENCODED = encode_inputs(ROWS)
HASHES = [hash_input(row) for row in ROWS]


def make_answer(i=0, request="r", *, keep=False, seconds=0, **changes):
    """The answer about row i of a request."""
    fields = {
        "time": as_time(START + timedelta(seconds=seconds)),
        "request": request,
        "row": i,
        "caller": "alice",
        "model": "digits",
        "version": "3",
        "bundle": "ab" * 32,
        "input_hash": HASHES[i % len(ROWS)],
        "belief": str(i % 10),
        "assertion": "IK",
        "reason": "KNOWN",
        "level": 0.25 + i / 1000 % 0.5,
        "exemplars": {"relu": i, "logits": 2 * i},
        "input": ENCODED[i % len(ROWS)] if keep else None,
    }
    return Answer(**{**fields, **changes})


def make_records(n, request="r", **how):
    """Answers, and a label and an event among them."""
    records = [make_answer(i, request, **how) for i in range(n)]
    time = records[0].time if records else as_time(START)
    return [
        *records[: n // 2],
        Label(time, request, 0, "bob", '"seven"'),
        Event(time, "reload", "digits", {"from": "2", "counts": [1, 2.5, None]}),
        *records[n // 2 :],
    ]
