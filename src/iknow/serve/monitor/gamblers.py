"""Gamblers who bet on a stream: each has a capital, and rings once, when that is high enough.

They are plain arrays, so that a restart changes no bit. A state that is read back is checked, as it
may come from a file that somebody has edited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, Self

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.text import as_real
from iknow.errors import InputError
from iknow.serve.monitor.martingale import N_BETS, as_evidence, play, start

SIGNED = ("exponents", "now", "highest")


def tell_evidence(evidence: float) -> str:
    """Evidence in words; beyond a million nobody needs to know how much."""
    return "over 1,000,000" if evidence >= 1e6 else f"{float(f'{evidence:.3g}'):,g}"


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
            f"drift{where}: at sample {self.sample:,} the evidence is "
            f"{tell_evidence(self.evidence)}, and {tell_evidence(self.threshold)} was enough"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


@dataclass(eq=False)
class Gamblers:
    """Several gamblers, each with a stream of its own.

    Attributes:
        stakes, exponents: Their capital, as `start` has it.
        seen: How many steps each has made.
        now, highest: Logarithms of the capital to base 2.
        rang_at: The number of the sample at which each rang, or 0.
        rang: Those that rang, in order, with their evidence.
    """

    stakes: Floats
    exponents: Ints
    seen: Ints
    now: Floats
    highest: Floats
    rang_at: Ints
    rang: list[tuple[int, float]]

    @classmethod
    def begin(cls, n: int, n_bets: int = N_BETS) -> Self:
        """So many of them, each with capital 1."""
        whole, real = np.zeros(n, dtype=np.int64), np.zeros(n)
        return cls(*start((n,), n_bets), whole, real, real.copy(), whole.copy(), [])

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

    def ring(self, which: Ints, found: Floats, before: int, thresholds: Floats) -> None:
        """Note who rings, by the logarithms of the capitals of some after each sample.

        which, found: of shape (n, m). before: how many samples came before these.
        """
        for i, column in np.argwhere(found >= np.log2(thresholds)[which]).tolist():
            gambler = int(which[i, column])
            if not self.rang_at[gambler]:
                self.rang_at[gambler] = before + i + 1
                self.rang.append((gambler, as_evidence(found[i, column])))

    def alarms(self, names: Sequence[tuple[str, str]], thresholds: Floats) -> tuple[Alarm, ...]:
        """Those that rang, in order. names: the kind and the name of each."""
        at, enough = self.rang_at.tolist(), thresholds.tolist()
        return tuple(
            Alarm(*names[each], at[each], evidence, enough[each]) for each, evidence in self.rang
        )


def as_rate(value: Any, what: str = "rate") -> float:
    """A probability between 0 and 1."""
    return as_real(value, what, "lie between 0 and 1", lambda number: 0 < number < 1)


def check_state(state: Any, fresh: Any) -> None:
    """Refuse a state whose arrays have other shapes than those of a fresh one, or unsound values.

    Raises:
        InputError: It is damaged, or about something else.
    """
    for name in (field.name for field in fields(state)):
        found, known = getattr(state, name), getattr(fresh, name)
        if is_dataclass(found):
            check_state(found, known)
        elif isinstance(found, np.ndarray):
            is_sound = found.shape == known.shape and np.isfinite(found).all()
            if not is_sound or (name not in SIGNED and (found < 0).any()):
                raise InputError(f"{name} must hold finite numbers of shape {known.shape}")
    if isinstance(state, Gamblers) and (
        sorted(each for each, _ in state.rang) != np.flatnonzero(state.rang_at).tolist()
    ):
        raise InputError("the alarms of a state do not fit the samples at which they rang")
