"""The sections of a run: what each measures, at its full size and at a quick one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.agreement import assertions_differ, distances_differ
from benchmarks.cases import Case, Layer, Shape, draw_clustered, make_case
from benchmarks.machine import describe_machine
from benchmarks.memory import measure_memory
from benchmarks.mnist import FIRST_LAYER, Digits, make_mnist_case, train_digits
from benchmarks.race import Answer, Contestant, Lap, best_of, latencies, race, tell, timed
from benchmarks.records import (
    ASSERTION,
    BALL_TREE,
    CLASS_DISTANCES,
    DENSE,
    LOAD,
    MEDIAN_LATENCY,
    OURS,
    TAIL_LATENCY,
    WITH_FEW,
    WITH_NEIGHBORS,
    LeftOut,
    Quantity,
    Results,
    Timing,
)
from benchmarks.rivals import (
    Entrant,
    contestants_in_assertion,
    enter_dense,
    enter_products,
    rivals_in_distances,
)
from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.arrays import Floats
from iknow.errors import DataError, InputError, MissingExtraError
from iknow.models import PrecomputedModel
from iknow.rules import Ball, BallElseNearest, BallWithNearest
from iknow.search.cells import CpuIndex
from iknow.selection import Goal, Validation, select
from iknow.selection.exact.boxes import sample_boxes
from iknow.selection.exact.depth import deepest_point
from iknow.version import __version__

N_NEIGHBORS, PER_CLASS = 10, 5
K = 5
"""Of the rules that are selected."""
REPEATS = 3
"""Of what is timed alone, not in a race."""
EXACT, BAYES, SORT = "exact", "Bayes, 50 trials", "np.sort of the ends"
IMPORTS = {
    "iknow": "import iknow",
    "sklearn.neighbors": "import sklearn.neighbors",
    "iknow, and a first answer": (
        "import numpy; from iknow.search.cells import CpuIndex;"
        "a = numpy.eye(100, dtype=numpy.float32);"
        "CpuIndex(a, numpy.arange(100) % 10, 10).gather(a)"
    ),
}

Differ = Callable[[Any, Entrant], str | None]


@dataclass(frozen=True)
class Effort:
    """Rounds of a race, the approximate time limit of a contestant in one, and latencies."""

    repeats: int
    seconds_per_call: float
    single_queries: int = 0
    latency_seconds: float = 0.0
    pause: float = 0.0


class Run:
    """One run into one set of results; its public methods are the sections."""

    def __init__(self, quick: bool, repeats: int | None = None) -> None:
        if repeats is not None and repeats < 1:
            raise InputError(f"a race needs at least one round; got {repeats} repeats")
        self.effort = Effort(2, 0.05, 100, 0.5) if quick else Effort(5, 0.8, 1_000, 5.0, 0.1)
        self.brief = Effort(1, 0.02) if quick else Effort(3, 0.4, pause=0.1)  # of a curve's point
        if repeats is not None:
            self.effort = replace(self.effort, repeats=repeats)
            self.brief = replace(self.brief, repeats=repeats)
        self.quick = quick
        self.plain = Shape(10_000, 64, 10, 200) if quick else Shape(1_000_000, 64, 10, 1_000)
        self.results = Results(__version__, quick, self.effort.repeats, describe_machine())

    @cached_property
    def _digits(self) -> Digits:
        tell("mnist: training the network")
        return train_digits(2_500 if self.quick else None)

    def mnist(self) -> None:
        measure_case(make_mnist_case(self._digits), self.effort, self.results)

    def synthetic(self) -> None:
        many = 30 if self.quick else 1_000
        self._measure("synthetic, 10 classes", self.plain)
        self._measure(f"synthetic, {many:,} classes", replace(self.plain, n_classes=many))
        self._measure("isotropic", replace(self.plain, isotropic=True))

    def pixels(self) -> None:
        shape = Shape(2_000, 784, 10, 200) if self.quick else Shape(100_000, 784, 10, 2_000)
        self._measure("pixels", shape)

    def scaling(self) -> None:
        rows = (1_000, 4_000, 16_000) if self.quick else (10**4, 30_000, 10**5, 300_000, 10**6)
        features = (2, 10, 32, 128) if self.quick else (2, 10, 32, 64, 128, 784)
        n, asked = (4_000, (200, 200)) if self.quick else (50_000, (1_000, 2_000))
        shapes = {f"rows {each:,}": Shape(each, 64, 10, asked[0]) for each in rows}
        shapes |= {f"features {each}": Shape(n, each, 10, asked[1]) for each in features}
        for name, shape in shapes.items():
            tell(f"{name}: drawing the data")
            race_assertions(make_case(name, shape), self.brief, self.results, curve=True)

    def selection(self) -> None:
        sizes = (1_000, 3_000) if self.quick else (10_000, 30_000, 100_000)
        measure_selection(self._digits, sizes, self.results)

    def memory(self) -> None:
        cases = [(self.plain, N_NEIGHBORS)]
        if not self.quick:
            cases += [
                (Shape(50_000, 32, 10, 10_000), N_NEIGHBORS),
                (replace(self.plain, n_classes=1_000), 0),
                (Shape(100_000, 784, 10, 2_000), 0),
            ]
        measure_memory(cases, self.results)

    def startup(self) -> None:
        measure_imports(1 if self.quick else 5, self.results)
        measure_bundle(self.plain, self.results)

    def _measure(self, name: str, shape: Shape) -> None:
        tell(f"{name}: drawing the data")
        measure_case(make_case(name, shape), self.effort, self.results)


SECTIONS = ("mnist", "synthetic", "pixels", "scaling", "selection", "memory", "startup")


def choose_sections(names: str | None) -> tuple[str, ...]:
    """Sections by their names, separated by commas; None for all."""
    if names is None:
        return SECTIONS
    asked = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in asked if name not in SECTIONS]
    if unknown or not asked:
        raise InputError(
            f"no section is named {', '.join(unknown) or 'nothing'}: choose from "
            f"{', '.join(SECTIONS)}, separated by commas"
        )
    return tuple(name for name in SECTIONS if name in asked)


def run_sections(run: Run, names: Sequence[str]) -> Results:
    """Measure section by section; what lacks data or a package is left out, with the reason."""
    # Compile everything now, so that no race pays for it.
    warm_up = Effort(1, seconds_per_call=0.01, single_queries=10, latency_seconds=0.1)
    measure_case(make_case("warm-up", Shape(500, 8, 3, 20)), warm_up, Run(quick=True).results)
    for name in names:
        tell(f"section {name}")
        try:
            getattr(run, name)()
        except (DataError, MissingExtraError) as error:
            run.results.left_out.append(LeftOut(name, "all", "all", str(error)))
    return run.results


def measure_case(case: Case, effort: Effort, results: Results) -> None:
    """Race all contestants on a case and record their other costs."""
    for layer in case.layers:
        race_distances(case, layer, effort, results)
    race_assertions(case, effort, results)


def race_distances(case: Case, layer: Layer, effort: Effort, results: Results) -> None:
    """Race those that find class distances in one layer, and what else iknow may find."""
    name, expected = case.label_of(layer), _class_distances(case, layer)

    def differ(answer: Any, entrant: Entrant) -> str | None:
        assert entrant.precision is not None
        return distances_differ(layer, expected[: len(answer)], answer, entrant.precision)

    rivals = rivals_in_distances(case, layer)
    entrants = [enter_products([layer]), enter_dense(case, layer), *rivals]
    plain = build(name, CLASS_DISTANCES, entrants, case.n_queries, differ, results)
    more = {
        WITH_NEIGHBORS: enter_dense(case, layer, min(N_NEIGHBORS, case.n_rows)),
        WITH_FEW: enter_dense(case, layer, per_class=PER_CLASS),
    }
    others = [Contestant(DENSE, _ready(entrant)) for entrant in more.values()]
    # All tasks race in the same rounds: some figures are their ratios.
    laps = _race(name, [*plain, *others], case.n_queries, effort)
    record_laps(name, CLASS_DISTANCES, laps[: len(plain)], results)
    for task, lap in zip(more, laps[len(plain) :], strict=True):
        record_laps(name, task, [lap], results)


def race_assertions(case: Case, effort: Effort, results: Results, *, curve: bool = False) -> None:
    """Race the contestants that can assert; for a point of a curve, fewer and nothing else."""
    expected = [_class_distances(case, layer) for layer in case.layers]
    within = [found <= layer.radius for layer, found in zip(case.layers, expected, strict=True)]
    asserted = case.assert_about(slice(None), within)
    results.cases.append(case.describe(asserted))

    def differ(answer: Any, entrant: Entrant) -> str | None:
        assert entrant.precision is not None
        n = len(answer)
        return assertions_differ(
            case, [each[:n] for each in expected], asserted[:n], answer, entrant.precision
        )

    entrants = [enter_products(case.layers), *contestants_in_assertion(case, not curve)]
    kept = None if curve else results.quantities
    built = build(case.name, ASSERTION, entrants, case.n_queries, differ, results, kept)
    record_laps(case.name, ASSERTION, _race(case.name, built, case.n_queries, effort), results)
    for each in built:
        if not curve and each.name in (*OURS, BALL_TREE):
            tell(f"{case.name}: one query at a time, {each.name}")
            n = min(case.n_queries, effort.single_queries)
            taken = latencies(each.answer, n, effort.latency_seconds)[:, 0]
            for what, percent in ((MEDIAN_LATENCY, 50), (TAIL_LATENCY, 99)):
                # One of the times themselves: a tail is not softened by interpolation.
                value = 1e6 * float(np.percentile(taken, percent, method="inverted_cdf"))
                note = f"{len(taken):,} queries"
                found = Quantity("latency", case.name, what, each.name, value, "µs", note)
                results.quantities.append(found)


def build(
    name: str,
    task: str,
    entrants: Sequence[Entrant],
    n_queries: int,
    differ: Differ,
    results: Results,
    build_times: list[Quantity] | None = None,
) -> list[Contestant]:
    """The contestants that can be built and answer correctly; records why others are left out."""
    built: list[Contestant] = []
    for entrant in entrants:
        tell(f"{name}: building {entrant.name}")
        try:
            answer, seconds, _ = timed(partial(_ready, entrant))
        except ImportError as error:
            reason: str | None = f"not installed ({error})"
        else:
            checked = n_queries if entrant.whole else min(entrant.fewest, n_queries)
            exact = entrant.precision is None
            reason = None if exact else differ(answer(slice(0, checked)), entrant)
        if reason is not None:
            results.left_out.append(LeftOut(name, task, entrant.name, reason))
            continue
        if build_times is not None and entrant.precision is not None:
            build_times.append(Quantity("build", name, "build", entrant.name, seconds, "s"))
        built.append(Contestant(entrant.name, answer, entrant.whole, entrant.fewest, entrant.note))
    return built


def record_laps(name: str, task: str, laps: Sequence[Lap], results: Results) -> None:
    """Record the times; for two variants of one contestant, the faster."""
    fastest: dict[str, Lap] = {}
    for lap in laps:
        other = fastest.setdefault(lap.contestant.name, lap)
        fastest[lap.contestant.name] = min(lap, other, key=lambda each: each.best)
    for who, lap in fastest.items():
        timing = Timing(name, task, who, lap.n_queries, lap.seconds, lap.contestant.note)
        results.timings.append(timing)


def _class_distances(case: Case, layer: Layer) -> Floats:
    """The reference answer, of shape (n_queries, n_classes)."""
    index = CpuIndex(layer.points, case.labels, case.n_classes)
    return index.gather(layer.queries).class_distances


def _ready(entrant: Entrant) -> Answer:
    """Build and ask once: an index may leave work for the first query."""
    answer = entrant.build()
    answer(slice(0, 1))
    return answer


def _race(name: str, built: Sequence[Contestant], n_queries: int, effort: Effort) -> list[Lap]:
    tell(f"{name}: {len(built)} contestants take turns, {effort.repeats} rounds")
    return race(built, n_queries, effort.repeats, effort.seconds_per_call, effort.pause)


def measure_selection(digits: Digits, sizes: Sequence[int], results: Results) -> None:
    """`tune` as a whole, then selection alone by rule and number of layers, then its growth."""
    _measure_tune(digits, results)
    layers = (FIRST_LAYER, *digits.layers)
    evidence = digits.evidence(layers, K)
    for some in (layers[2:], layers[1:], layers):
        part = {name: evidence[name] for name in some}
        validation = Validation(part, digits.val.outputs.belief, digits.val.y_true)
        for rule in (Ball, BallElseNearest, BallWithNearest):
            what = f"{rule.__name__}, {len(some)} layer{'s' if len(some) > 1 else ''}"
            _select(what, validation, rule, results)
    _measure_growth(digits, sizes, results)


def _measure_tune(digits: Digits, results: Results) -> None:
    tell("selection: tune on precomputed outputs")
    what = f"two layers, {len(digits.val.y_true):,} validation samples"
    train, val = (
        (part.outputs.scores, {name: part.outputs.activations[name] for name in digits.layers})
        for part in (digits.train, digits.val)
    )
    classifier = EpistemicClassifier(PrecomputedModel(), progress=False)
    classifier.fit(train, digits.train.y_true)
    known = Validation(digits.evidence(digits.layers), digits.val.outputs.belief, digits.val.y_true)
    for name, work in {
        "tune, with the search": lambda: classifier.tune(val, digits.val.y_true),
        "select, from evidence": lambda: select(Goal(), known, Ball),
    }.items():
        spent = 1e3 * best_of(work, REPEATS)
        results.quantities.append(Quantity("tuning", "mnist", what, name, spent, "ms"))


def _select(what: str, validation: Validation, rule: Any, results: Results) -> None:
    tell(f"selection: {what}")
    exact, seconds, _ = timed(lambda: select(Goal(k=K), validation, rule))
    proof = "proven" if exact.optimal else f"gap {exact.gap:.4f}"
    note = f"exact {exact.coverage:.4f}, {proof}"
    found = Quantity("selection", "mnist", what, EXACT, 1e3 * seconds, "ms", note)
    results.quantities.append(found)
    try:
        bayes, seconds, _ = timed(lambda: select(Goal("bayes", k=K), validation, rule))
    except MissingExtraError as error:
        results.left_out.append(LeftOut("mnist", what, BAYES, str(error)))
        return
    note = f"Bayes {bayes.coverage:.4f}"
    found = Quantity("selection", "mnist", what, BAYES, 1e3 * seconds, "ms", note)
    results.quantities.append(found)


def _measure_growth(digits: Digits, sizes: Sequence[int], results: Results) -> None:
    """Two layers, samples redrawn with a jitter, next to sorting the ends of their boxes."""
    belief = digits.val.outputs.belief
    lows, highs = sample_boxes(digits.evidence(digits.layers), belief, Ball)
    rng = np.random.default_rng(0)
    for size in sizes:
        what = f"two layers, {size:,} samples"
        tell(f"selection: {what}")
        drawn = rng.integers(len(lows), size=size)
        low = lows[drawn] * rng.uniform(0.95, 1.05, (size, 2))
        high = highs[drawn] * rng.uniform(0.95, 1.05, (size, 2))
        ends, weights = np.concatenate([low, high]), np.ones(size)
        works: dict[str, Callable[[], Any]] = {
            EXACT: partial(deepest_point, low, high, weights),
            SORT: partial(np.sort, ends, axis=0),
        }
        for name, work in works.items():
            spent = 1e3 * best_of(work, REPEATS)
            results.quantities.append(Quantity("growth", "mnist", what, name, spent, "ms"))


def measure_imports(repeats: int, results: Results) -> None:
    """Times of imports, each in fresh processes."""
    times = dict.fromkeys(("", *IMPORTS.values()), np.inf)
    for turn in range(repeats):
        tell(f"startup: importing, turn {turn + 1} of {repeats}")
        for statement in times:
            times[statement] = min(times[statement], timed(partial(_child, statement)).wall)
    loads_torch = _child("import iknow, sys; print('torch' in sys.modules)").strip() == "True"
    for name, statement in IMPORTS.items():
        beyond = 1e3 * (times[statement] - times[""])
        note = ("loads torch" if loads_torch else "without torch") if name == "iknow" else ""
        found = Quantity("import", "startup", "import", name, beyond, "ms", note)
        results.quantities.append(found)


def _child(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def measure_bundle(shape: Shape, results: Results) -> None:
    """Times of saving a bundle, of loading it, and of its first answer."""
    name = f"{shape.n_rows:,} × {shape.n_features}"
    tell(f"startup: a bundle of {name}")
    points, labels, queries, _, _ = draw_clustered(shape)
    scores = np.eye(shape.n_classes, dtype=np.float32)
    classifier = EpistemicClassifier(
        PrecomputedModel(), rule=Ball(1.0), progress=False, batch_size=1 << 16
    ).fit((scores[labels], {"layer": points}), labels)
    query = (scores[:1], {"layer": queries[:1]})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.iknow"
        works: dict[str, tuple[int, Callable[[], Any]]] = {
            "save": (1, lambda: classifier.save(path)),
            LOAD: (5, lambda: EpistemicClassifier.load(path)),
            "load and first answer": (2, lambda: EpistemicClassifier.load(path).assess(query)),
        }
        for what, (repeats, work) in works.items():
            spent = 1e3 * best_of(work, repeats)
            results.quantities.append(Quantity("bundle", name, what, "iknow", spent, "ms"))
