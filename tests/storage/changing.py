"""Changes to try on a bundle with the layers "a" and "b"; it imports little: it is forked often."""

import numpy as np

from iknow.storage.changes import Change

NONE = np.empty(0, dtype=np.int64)
LAYERS = {"a": 2, "b": 4}
TIME = "2026-11-16T12:00:00Z"


def ints(*numbers):
    return np.array(numbers, dtype=np.int64)


def removal(*ids):
    return Change("remove", TIME, "ada", "a slip", ints(*ids), NONE, NONE, {})


def addition(*ids, label=1, seed=0, classes=()):
    rng = np.random.default_rng((seed, *ids))
    points = {name: rng.normal(size=(len(ids), m)).astype("f4") for name, m in LAYERS.items()}
    labels = np.full(len(ids), label)
    return Change("add", TIME, "", "", NONE, ints(*ids), labels, points, classes)


def step(number):
    """The change of a number: every third one removes what came before it."""
    if number % 3 == 2:
        return removal(1000 + number - 1)
    return addition(1000 + number, label=number % 3)


def rows_after(number):
    """The samples that are there after the steps up to a number, of 60 at first."""
    rows = set(range(60))
    for each in map(step, range(number + 1)):
        rows = (rows - set(each.removed.tolist())) | set(each.rows.tolist())
    return rows
