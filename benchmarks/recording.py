"""Collecting results during a run, and announcing each measurement."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.records import CaseFacts, LeftOut, Quantity, Results, Timing


class Recorder:
    """A notebook. say: called with the current measurement, to show progress."""

    def __init__(self, say: Callable[[str], None] = lambda text: None) -> None:
        self.say = say
        self._cases: list[CaseFacts] = []
        self._timings: list[Timing] = []
        self._quantities: list[Quantity] = []
        self._left_out: list[LeftOut] = []

    def add_case(self, case: CaseFacts) -> None:
        self._cases.append(case)

    def add_timing(self, timing: Timing) -> None:
        self._timings.append(timing)

    def add(self, quantity: Quantity) -> None:
        self._quantities.append(quantity)

    def leave_out(self, case: str, task: str, contestant: str, reason: str) -> None:
        self._left_out.append(LeftOut(case, task, contestant, reason))

    def finish(self, version: str, quick: bool, repeats: int, machine: dict[str, str]) -> Results:
        """All results so far."""
        return Results(
            version=version,
            quick=quick,
            repeats=repeats,
            machine=machine,
            cases=tuple(self._cases),
            timings=tuple(self._timings),
            quantities=tuple(self._quantities),
            left_out=tuple(self._left_out),
        )
