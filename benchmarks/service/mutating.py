"""Mutating: broken requests. What is sent is drawn from traps made by hand and from good requests
that are cut, flipped, repeated or given odd heads, by a seed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from benchmarks.service.asking import as_json, good_requests
from benchmarks.service.traps import traps
from benchmarks.service.wire import JSON, Asked


def requests(seed: int) -> Iterator[Asked]:
    """Broken requests without end."""
    rng = random.Random(seed)
    while True:
        yield make_request(rng)


def make_request(rng: random.Random) -> Asked:
    """One request: a good one in ten, a trap in ten, a mutation otherwise."""
    kind = rng.random()
    if kind < 0.1:
        return rng.choice(_good())
    if kind < 0.2:
        return rng.choice(traps())
    return rng.choice(MUTATIONS)(rng, rng.choice([each for each in _good() if each.body]))


@cache
def _good() -> tuple[Asked, ...]:
    return tuple(good_requests())


def _cut(rng: random.Random, asked: Asked) -> Asked:
    body = asked.body[: rng.randrange(len(asked.body) + 1)]
    return replace(asked, body=body, what=f"{asked.what}, cut")


def _flip(rng: random.Random, asked: Asked) -> Asked:
    body = bytearray(asked.body)
    for _ in range(rng.choice((1, 1, 2, 8, 40))):
        if body:
            body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    return replace(asked, body=bytes(body), what=f"{asked.what}, flipped")


def _overwrite(rng: random.Random, asked: Asked) -> Asked:
    """Some bytes by those that numbers have at their ends, where lengths and counts may be."""
    body, odd = bytearray(asked.body), rng.choice((b"\xff", b"\x00", b"\x7f", b"\x80"))
    place = rng.randrange(len(body) + 1)
    body[place : place + rng.choice((1, 2, 4, 8))] = odd * rng.choice((1, 2, 4, 8))
    return replace(asked, body=bytes(body), what=f"{asked.what}, overwritten")


def _repeat(rng: random.Random, asked: Asked) -> Asked:
    start = rng.randrange(len(asked.body) + 1)
    part = asked.body[start : start + rng.randrange(1, 200)]
    body = asked.body[:start] + part * rng.choice((1, 2, 50)) + asked.body[start:]
    return replace(asked, body=body, what=f"{asked.what}, repeated")


def _swap_kind(rng: random.Random, asked: Asked) -> Asked:
    kind = rng.choice([each.kind for each in _good()])
    return replace(asked, kind=kind, what=f"{asked.what}, of another type")


def _swap_path(rng: random.Random, asked: Asked) -> Asked:
    path, method = rng.choice([(each.path, each.method) for each in _good()])
    return replace(asked, path=path, method=method, what=f"{asked.what}, to another path")


def _json_value(rng: random.Random, asked: Asked) -> Asked:
    """One value somewhere in a JSON text by another."""
    if asked.kind != JSON:
        return _flip(rng, asked)
    said = json.loads(asked.body)
    holder, key = rng.choice(list(_places(said)))
    holder[key] = rng.choice(VALUES)
    return replace(asked, body=as_json(said), what=f"{asked.what}, other value")


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in list(keys):
        yield value, key
        yield from _places(value[key])


VALUES: tuple[Any, ...] = (None, True, -1, 0, 2**31, 2**63, 2**64, 10**400, 1e308, -1e308,
                           float("nan"), float("inf"), 5e-324, "", "1", "\x00", "\ud800", "é" * 99,
                           [], [[]], {}, {"a": 1}, [None], [1, "a"])  # fmt: skip
MUTATIONS: tuple[Callable[[random.Random, Asked], Asked], ...] = (
    _cut, _flip, _flip, _overwrite, _overwrite, _repeat, _swap_kind, _swap_path, _json_value,
    _json_value,
)  # fmt: skip
