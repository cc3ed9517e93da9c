"""A run: the sections of a plan, one after another, into one set of results."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from benchmarks.machine import describe_machine
from benchmarks.memory import measure_memory
from benchmarks.mnist import Digits, make_mnist_case, train_digits
from benchmarks.plan import Effort, Plan
from benchmarks.recording import Recorder
from benchmarks.records import Results
from benchmarks.searching import measure_case, race_assertions
from benchmarks.selecting import measure_selection
from benchmarks.startup import measure_startup
from benchmarks.synthetic import Shape, make_case
from iknow.errors import DataError, MissingExtraError
from iknow.version import __version__

WARM_UP = Effort(1, seconds_per_call=0.01, single_queries=10, latency_seconds=0.1)


def run_plan(plan: Plan, record: Recorder, started: Callable[[str], None]) -> Results:
    """Measure everything in the plan. started: called with the name of each section."""
    sections = _Sections(plan, record)
    # Compile everything now, so that no race pays for it.
    measure_case(make_case("warm-up", Shape(500, 8, 3, 20)), WARM_UP, Recorder())
    for name in plan.sections:
        started(name)
        try:
            getattr(sections, name)()
        except (DataError, MissingExtraError) as error:
            record.leave_out(name, "all", "all", str(error))
    return record.finish(__version__, plan.quick, plan.effort.repeats, describe_machine())


class _Sections:
    """One method for each name in `benchmarks.plan.SECTIONS`."""

    def __init__(self, plan: Plan, record: Recorder) -> None:
        self._plan = plan
        self._record = record

    @cached_property
    def _digits(self) -> Digits:
        self._record.say("mnist: training the network")
        return train_digits(self._plan.mnist_rows)

    def mnist(self) -> None:
        measure_case(make_mnist_case(self._digits), self._plan.effort, self._record)

    def synthetic(self) -> None:
        self._measure(self._plan.synthetic)

    def pixels(self) -> None:
        self._measure(self._plan.pixels)

    def scaling(self) -> None:
        for shapes in self._plan.scaling.values():
            for name, shape in shapes.items():
                self._record.say(f"{name}: drawing the data")
                case = make_case(name, shape)
                race_assertions(case, self._plan.scaling_effort, self._record, scaling=True)

    def selection(self) -> None:
        measure_selection(self._digits, self._plan.selection_sizes, self._record)

    def memory(self) -> None:
        measure_memory(self._plan.memory, self._record)

    def startup(self) -> None:
        measure_startup(self._plan.bundle, self._plan.import_repeats, self._record)

    def _measure(self, shapes: dict[str, Shape]) -> None:
        for name, shape in shapes.items():
            self._record.say(f"{name}: drawing the data")
            measure_case(make_case(name, shape), self._plan.effort, self._record)
