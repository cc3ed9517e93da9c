"""Proposers that propose the worst, all of which the contract must survive."""

import numpy as np


class Stub:
    """Proposes what `rule(n_queries, n, n_rows)` returns, whatever is asked."""

    def __init__(self, rule):
        self.rule = rule

    def __call__(self, points):
        return _Proposer(self.rule, points)


class _Proposer:
    def __init__(self, rule, points):
        self.rule, self.points = rule, points

    def propose(self, queries, n):
        return self.rule(queries, n, self.points)


def nothing(queries, n, points):
    return np.empty((len(queries), 0), dtype=np.int64)


def absent(queries, n, points):
    return np.full((len(queries), n), -1)


def garbage(queries, n, points):
    """Any numbers, most of no row, in a type of FAISS's."""
    rng = np.random.default_rng(len(queries))
    return rng.integers(-5, 2 * len(points) + 3, size=(len(queries), n + 3))


def repeated(queries, n, points):
    """The nearest row, again and again: not a quorum."""
    return np.repeat(_order(queries, points)[:, :1], n + 2, axis=1)


def furthest(queries, n, points):
    return _order(queries, points)[:, ::-1][:, :n]


def second(queries, n, points):
    """Everything but the nearest row."""
    return _order(queries, points)[:, 1 : n + 1]


def perfect(queries, n, points):
    return _order(queries, points)[:, :n].astype(np.int32)


def _order(queries, points):
    apart = points[None].astype(np.float64) - queries[:, None].astype(np.float64)
    return np.argsort(np.square(apart).sum(axis=2), axis=1, kind="stable")


STUBS = [nothing, absent, garbage, repeated, furthest, second, perfect]
