"""Gamblers who bet on a stream: each has a capital, and rings once, when that is high enough.

Their state is plain values, so that a restart changes no bit. Reading it trusts nothing: it may
come from a file that somebody has edited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats, Ints
from iknow.core.text import as_real
from iknow.errors import InputError
from iknow.serve.monitor.martingale import N_BETS, as_evidence, play, start

SIGNED = ("exponents", "now", "highest")
T = TypeVar("T")


@dataclass(frozen=True)
class Alarm:
    """A detector rang.

    Attributes:
        kind: "overall", "class", "layer" or "accuracy".
        name: The label of the class, or the layer; else "".
        sample: The number of the sample at which it rang, from 1, since the last reset.
        evidence: The capital at that sample.
        threshold: What it takes to ring.
    """

    kind: str
    name: str
    sample: int
    evidence: float
    threshold: float

    def __str__(self) -> str:
        where = f" in {self.kind} {self.name}" if self.name else ""
        return (
            f"drift{where}: at sample {self.sample:,} the evidence is {self.evidence:.3g}, and "
            f"{self.threshold:.3g} was enough"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


class GamblersState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of `Gamblers`, its arrays as bytes; rang: those that rang, and their evidence."""

    stakes: bytes
    exponents: bytes
    seen: bytes
    now: bytes
    highest: bytes
    rang_at: bytes
    rang: list[tuple[int, float]]


ARRAYS = GamblersState.__struct_fields__[:-1]


class Gamblers:
    """Several gamblers, each with a stream of its own.

    Attributes:
        names: The kind and the name of each that may ring.
        thresholds: The capital at which each rings, of shape (n,); inf for never.
        stakes, exponents: Their capital, as `start` has it.
        seen: How many steps each has made.
        now, highest: Logarithms of the capital to base 2.
        rang_at: The number of the sample at which each rang, or 0.
        rang: Those that rang, in order, with their evidence.
    """

    def __init__(
        self, names: Sequence[tuple[str, str]], thresholds: Floats, n_bets: int = N_BETS
    ) -> None:
        self.names, self.thresholds = names, thresholds
        self.stakes, self.exponents = start(thresholds.shape, n_bets)
        self.now: Floats = np.zeros(thresholds.shape)
        self.highest: Floats = np.zeros(thresholds.shape)
        self.seen: Ints = np.zeros(thresholds.shape, dtype=np.int64)
        self.rang_at: Ints = np.zeros(thresholds.shape, dtype=np.int64)
        self.rang: list[tuple[int, float]] = []

    def play(self, which: int | slice, factors: Floats) -> Floats:
        """Let some bet, by what each bet wins; gives logarithms of their capitals after each step.

        factors: of shape (n, n_bets) for one gambler, (n, n_gamblers, n_bets) for a slice of them.
        """
        steps = int(np.min(self.seen[which]))
        stakes, exponents, found = play(self.stakes[which], self.exponents[which], factors, steps)
        self.stakes[which], self.exponents[which] = stakes, exponents
        self.seen[which] += len(factors)
        self.now[which] = found[-1]
        self.highest[which] = np.maximum(self.highest[which], found.max(axis=0))
        return found

    def ring(self, which: Ints, found: Floats, before: int) -> None:
        """Note who rings, by the logarithms of the capitals of some after each sample.

        which, found: of shape (n, m). before: how many samples came before these.
        """
        for i, column in np.argwhere(found >= np.log2(self.thresholds)[which]).tolist():
            gambler = int(which[i, column])
            if not self.rang_at[gambler]:
                self.rang_at[gambler] = before + i + 1
                self.rang.append((gambler, as_evidence(found[i, column])))

    def alarms(self) -> tuple[Alarm, ...]:
        """Those that rang, in order."""
        at, enough = self.rang_at.tolist(), self.thresholds.tolist()
        return tuple(
            Alarm(*self.names[each], at[each], evidence, enough[each])
            for each, evidence in self.rang
        )

    def state(self) -> GamblersState:
        """All that a restart needs."""
        arrays = {name: pack(getattr(self, name)) for name in ARRAYS}
        return GamblersState(**arrays, rang=list(self.rang))

    def restore(self, state: GamblersState) -> None:
        """Go on from a state. Raises an `InputError` if it is damaged."""
        for name in ARRAYS:
            setattr(self, name, unpack(getattr(state, name), getattr(self, name), name))
        self.rang = state.rang
        if sorted(each for each, _ in self.rang) != np.flatnonzero(self.rang_at).tolist():
            raise InputError("the alarms of a state do not fit the samples at which they rang")


def pack(values: NDArray[Any]) -> bytes:
    """The values of an array, little-endian."""
    return values.astype(values.dtype.newbyteorder("<")).tobytes()


def unpack(content: bytes, like: NDArray[Any], name: str) -> NDArray[Any]:
    """The array that `pack` wrote, of the shape and type of another; finite."""
    try:
        values = np.frombuffer(content, dtype=like.dtype.newbyteorder("<"))
        values = values.reshape(like.shape).astype(like.dtype)
    except ValueError as error:
        raise InputError(
            f"{name} must be {like.dtype} values of shape {like.shape}; got {len(content)} bytes"
        ) from error
    if not np.isfinite(values).all() or (name not in SIGNED and (values < 0).any()):
        raise InputError(f"{name} must hold finite numbers, none negative")
    return values


def as_rate(value: Any, what: str = "rate") -> float:
    """A probability between 0 and 1."""
    return as_real(value, what, "lie between 0 and 1", lambda number: 0 < number < 1)


def as_state(record: Mapping[str, Any], kind: type[T]) -> T:
    """A state of a certain kind from plain values; an `InputError` names what is wrong."""
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"this is no state that can be continued: {error}") from error
